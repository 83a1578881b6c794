"""The exec-format-error monitor: programs that a node cannot execute, seen by its kernel and reported on the pod.

The node side (``tracefs`` → ``reader`` → ``attribution`` → ``reporter``) writes ENoExecEvents; the handler turns each
into an event and a label on the pod. Pure: ``trace``, ``cgroups``, ``pod_logs``, ``limits``, ``verdict``, ``removal``.
"""
