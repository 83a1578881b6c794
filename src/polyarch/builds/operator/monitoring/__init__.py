"""Alerts and the dashboard of builds."""
