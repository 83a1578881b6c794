"""``polyarch up --demo`` (SB-007): the same pods with polyarch and without, and what it cost.

``workloads`` (pure) is what is created; ``observation`` (pure) what one sees of a pod over time; ``audit`` (pure)
counts requests in the API server's audit log; ``show`` does it. How it looks is the command line's matter.
"""
