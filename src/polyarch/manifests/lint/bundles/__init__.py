"""MA201 to MA211: operator bundles, their subscriptions and their catalogs.

A check takes :class:`bundle_facts.BundleFacts`, or a subscription or catalog. The rules for pods check the
deployments of a bundle, too; their findings are reported as MA205.
"""
