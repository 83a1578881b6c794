"""Alerts and the dashboard of taints."""
