"""Panels as data, the Grafana dashboard generated from them, and Prometheus rules and alerts."""
