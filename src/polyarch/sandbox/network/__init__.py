"""The sandbox's network: ranges of addresses, listeners of this machine, paths of unix sockets (SB-008, SB-012)."""
