"""Objects by which others watch polyarch: ServiceMonitors, alerts, the dashboard."""
