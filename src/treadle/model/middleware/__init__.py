"""Middleware of model calls: functions around each request, in effects, so that they work under every driver."""
