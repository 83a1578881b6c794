"""The controller runtime: watch, store, informer, queue, controller, lease, events (KR-010 – KR-031)."""
