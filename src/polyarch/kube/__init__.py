"""A Kubernetes runtime: the counterpart of controller-runtime, on aiohttp and msgspec.

It knows no feature of polyarch. Which API server, as whom: ``config``, ``kubeconfig``, ``settings``, ``credentials``.
Requests: ``resources``, ``requests``, ``patches``, ``transport``, ``responses``, ``client``, ``errors``. Controllers:
``watch``, ``store``, ``informer``, ``queue``, ``controller``, ``lease``, ``events``. What an operator writes:
``apply``, ``managed_fields``, ``adoption``, ``owners``, ``conditions``, ``schema``, ``rbac``. Servers: ``admission``,
``conversion``, ``server``, ``certificates``, ``certificate_rotation``, ``x509``. One process: ``manager``, ``metrics``.
Import from the modules.
"""
