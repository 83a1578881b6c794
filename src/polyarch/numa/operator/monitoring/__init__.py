"""Alerts and the dashboard of NUMA."""
