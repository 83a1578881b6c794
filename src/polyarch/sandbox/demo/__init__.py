"""``polyarch up --demo``: the same pods with polyarch and without it, and the cost in time and requests.

``workloads`` (pure) has the pods; ``observation`` (pure) follows a pod over time; ``audit`` (pure) counts requests in
the API server's audit log; ``show`` runs the demo. The command line renders the result.
"""
