"""Panels, recording rules and alerts as data, and the Grafana and Prometheus files generated from them."""
