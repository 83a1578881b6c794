"""How bytes get there: the seam to the network, its TLS, and the addresses that may be reached."""
