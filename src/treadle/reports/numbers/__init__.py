"""The numbers of a dashboard, from a Prometheus or from recorded runs."""
