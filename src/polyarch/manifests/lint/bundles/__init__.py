"""MA201 to MA211: what operator bundles, their subscriptions and their catalogs promise, list and take away.

A check is given :class:`bundle_facts.BundleFacts`, those on subscriptions and catalogs what they are about. The
deployments of a bundle are judged as every pod specification is, as MA205.
"""
