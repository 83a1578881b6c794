"""The operator's processes: one module per role, which wires ``kube``, ``oci`` and its feature from the settings."""
