"""What keeps a process in step with a cluster: watch, store, informer, queue, controller, lease, events."""
