"""The components: placement, taints, builds, and the exporters and the scheduler of NUMA.

Of each, ``…_objects``, ``…_plan`` and ``…_status`` are pure functions, and ``…_reconciler`` has the effects. Modules of
NUMA are loaded only in clusters that use it.
"""
