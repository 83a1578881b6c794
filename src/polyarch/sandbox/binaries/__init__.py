"""The programs of the sandbox: found in a folder, cached, downloaded or built (SB-002)."""
