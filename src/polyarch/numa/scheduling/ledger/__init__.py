"""What is promised and not shown yet (NS-100 – NS-113): cells are reserved from the filter until the object has a pod.

Pure: events come in with their time, changes come out. :class:`polyarch.numa.scheduling.ledger.ledger.Ledger` is the
door; the other modules are its parts.
"""
