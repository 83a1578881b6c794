"""The operator: what it deploys, and how that comes and goes.

The modules of this folder are what all components have in common: names and labels of the objects, certificates,
Deployments with what stands around them, monitoring, and their apply sets. :mod:`polyarch.operator.components` has each
component's objects and its reconciler. Features know nothing of the operator.
"""
