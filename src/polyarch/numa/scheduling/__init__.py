"""Which node can hold a pod inside its NUMA cells, which is best, and what is promised meanwhile. Pure.

The rooms are layers: ``facts`` (pods, nodes, the decision as a value), ``exact`` and ``compat`` (the rules of both
modes), ``fleet`` (the same rules over all nodes at once), ``ledger`` (reservations), then what is built on them.
"""
