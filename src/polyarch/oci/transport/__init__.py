"""The network: the transport interface, its aiohttp implementation, TLS, and permitted addresses."""
