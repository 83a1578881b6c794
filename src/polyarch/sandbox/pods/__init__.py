"""Pods of polyarch's own image, the stock kube-scheduler and builds, run as processes of this machine.

The nodes only simulate pods of other images. Pure: ``spec`` (wire types), ``programs`` (which containers are run, and
their command lines), ``environment`` (variables and the files of volumes), ``outcome`` (what the nodes' state machine
is told). Effects: ``volumes``, ``containers`` (processes and logs), ``probes``, and ``runner``, which is all of it for
the pods of all nodes.

This package does not import ``sandbox.nodes``, which uses it.
"""
