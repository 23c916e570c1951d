"""Dashboards: panels, recording rules and alerts as data, and what is built of them for Grafana and Prometheus."""
