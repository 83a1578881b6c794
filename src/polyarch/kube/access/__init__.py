"""Which API server, as whom, and over which TLS: what is known before the first request (KR-001)."""
