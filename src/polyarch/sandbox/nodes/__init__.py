"""Simulated nodes of any architecture: ``python -m polyarch.sandbox.nodes FOLDER KUBE-SCHEDULER``.

One process has the kubelets of all nodes. ``kubelets`` is its controller: ``lifecycle`` (pure) steps a pod's containers
through time, ``reporting`` (pure) builds the pod's status. ``plans`` (pure) and ``registration`` have the Node objects,
``kubelet_api`` the logs, and ``simulated_kubelet`` the managers of nodes with NUMA zones.

Pods of polyarch's own image are run (``sandbox.pods``). All others are only simulated. A container whose image is for
another architecture fails as it would on a real node, so that the sandbox shows the problem that polyarch solves.
"""
