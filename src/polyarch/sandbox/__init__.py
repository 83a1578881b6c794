"""A real Kubernetes control plane, a real registry and fake nodes on one machine: for trying and for testing.

Reads in this order: ``versions`` and ``binaries`` (what runs and where it comes from), ``state`` (one
folder per sandbox), ``certificates`` and ``components`` (pure: documents and command lines), ``processes`` (started and
ended by recorded pid), ``cluster`` (the order of it all), ``registry``, ``nodes`` (its own
process), ``roles`` (polyarch itself), ``demo`` and ``document``.

Everything listens on 127.0.0.1 and nothing needs root or a container.
"""
