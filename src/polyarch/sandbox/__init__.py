"""A real Kubernetes control plane, a real registry and simulated nodes on one machine: for trying and for testing.

Read ``cluster`` first: it starts and stops all of it. ``versions`` and ``binaries`` say what runs and where it comes
from, ``state`` is the folder of a sandbox, ``processes`` starts and ends programs by recorded pid, ``control_plane``
and ``services`` have the command lines. ``nodes`` is the process of all kubelets, ``pods`` runs pods as processes,
``registry`` serves images, ``operator`` installs polyarch, ``demo`` shows it, and ``document`` is its JSON.

Everything listens on 127.0.0.1, and nothing needs root or a container.
"""
