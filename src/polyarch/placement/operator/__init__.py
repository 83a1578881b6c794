"""What the operator wants: the objects of placement in a cluster, their rights, and the conditions it writes. Pure.

The effects are in ``placement.reconcilers``.
"""
