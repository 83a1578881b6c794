"""Operator bundles of the Operator Lifecycle Manager: what they say about architectures, and two ways to judge it.

``loader`` finds the ClusterServiceVersion among the files, ``service_version`` and ``labels`` read it,
``lint.bundle_run`` judges it with the rules, ``compat`` (what ``shape`` lets through) in the words of operator-sdk's
validator, and ``hook`` answers operator-sdk itself. Pure: whoever calls reads the files and resolves the images.
"""
