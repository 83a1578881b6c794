"""Pods of polyarch's own image and of the stock kube-scheduler, run as processes of this machine.

The nodes only play pods of other images. Pure: ``spec`` (wire types), ``programs`` (which containers are run, and their
command lines), ``environment``, ``volumes`` (what is in a volume's files), ``outcome`` (what the nodes' state machine
is told), ``loglines``. Effects: ``folders``, ``contents``, ``commands`` (what is started), ``containers`` (processes),
``probes``, and ``runner``, which is all of it for the pods of all nodes.

This room does not import ``sandbox.nodes``, which uses it.
"""
