"""Where the sandbox's programs come from: given, cached, downloaded or built (SB-002)."""
