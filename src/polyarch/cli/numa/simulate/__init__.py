"""``polyarch numa simulate``: where pods would go, before anybody makes them (NS-162)."""
