"""One module per process of the operator: reads its settings, wires ``kube``, ``oci`` and the features, runs."""
