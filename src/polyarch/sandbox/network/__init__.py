"""The sandbox's network: its address ranges, and the way from the API server to Services and pods (SB-012)."""
