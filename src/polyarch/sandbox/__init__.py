"""A real Kubernetes control plane, a real registry and fake nodes on one machine: for trying and for testing.

Reads in this order: ``versions`` and ``binaries`` (what runs and where it comes from, SB-001, SB-002), ``state`` (one
folder per sandbox), ``certificates`` and ``components`` (pure: documents and command lines), ``processes`` (started and
ended by recorded pid), ``cluster`` (the order of it all, SB-003), ``registry`` (SB-005), ``nodes`` (SB-004, its own
process), ``roles`` (polyarch itself, SB-006), ``demo`` (SB-007) and ``document`` (SB-010).

Everything listens on 127.0.0.1 and nothing needs root or a container (SB-008).
"""
