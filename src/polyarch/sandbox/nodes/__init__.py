"""Nodes of any architecture, without machines (SB-004): ``python -m polyarch.sandbox.nodes FOLDER``.

One process stands for the kubelets of all nodes. ``fleet`` (pure) says what Node objects look like; ``pulling`` (pure)
what a node of some architecture makes of an image; ``lifecycle`` (pure) what becomes of a pod's containers over time;
``kubelets`` does it, on ``polyarch.kube`` and ``polyarch.oci`` like any controller.

Nothing is executed. A container whose image is for another architecture ends as it would on a real node, so the problem
that polyarch solves can be seen here.
"""
