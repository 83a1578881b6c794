"""Simulated nodes of any architecture: ``python -m polyarch.sandbox.nodes FOLDER``.

One process plays the kubelets of all nodes. ``fleet`` (pure) builds Node objects; ``pulling`` (pure) decides what a
node of an architecture does with an image; ``lifecycle`` (pure) steps a pod's containers through time; ``reporting``
(pure) builds the pod's status; ``kubelets`` is the controller on top, using ``polyarch.kube`` and ``polyarch.oci``.

Pods of polyarch's own image are run (``sandbox.pods``), and their logs served (``kubelet_api``). All
others are only played. A container whose image is for another architecture fails as it would on a real node, so that
the sandbox shows the problem that polyarch solves.
"""
