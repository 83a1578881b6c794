"""Scraping, alerts and dashboards: the shapes; each feature has its own alerts and rows."""
