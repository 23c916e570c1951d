"""Sources of the dashboard metrics: a Prometheus, or recordings."""
