"""Operator bundles of the Operator Lifecycle Manager: how they declare architectures, and two ways to validate them.

``loader`` finds the ClusterServiceVersion among the files; ``service_version`` and ``labels`` read it.
``lint.bundle_run`` validates it with the rules; ``compat`` (for what ``shape`` accepts) reproduces operator-sdk's
validator, and ``hook`` answers operator-sdk itself. Pure: the caller reads files and resolves images.
"""
