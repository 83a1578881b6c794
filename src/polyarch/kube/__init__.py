"""A Kubernetes runtime: the counterpart of controller-runtime, on aiohttp and msgspec.

It knows no feature of polyarch. Packages: ``access`` (kubeconfig, credentials), ``client``, ``runtime`` (informers,
queues, controllers, leader election, events), ``serving`` (webhooks, certificates, health), ``objects`` (apply sets,
conditions, finalizers, RBAC), ``process`` (roles and their manager). Import from the modules.
"""
