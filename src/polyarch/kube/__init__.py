"""Kubernetes as a library: what controller-runtime is to Go, on aiohttp and msgspec.

It knows no feature of polyarch. Import from the modules: ``config``, ``resources``, ``errors``, ``client``, ``watch``,
``store``, ``informer``, ``queue``, ``controller``, ``lease``, ``events``, ``admission``, ``certificates``, ``manager``.
"""
