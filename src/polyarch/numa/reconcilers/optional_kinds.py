"""Kinds that exporters have objects of only where a cluster has them."""

from collections.abc import Collection

from polyarch.kube.resources import Resource
from polyarch.numa.operator.exporters.openshift import CONSTRAINTS, MACHINE_CONFIGS
from polyarch.numa.operator.observed import Platform


def optional_kinds(platform: Platform, served: Collection[Resource]) -> frozenset[Resource]:
    """``served``: what discovery found of cert-manager and Prometheus."""
    openshift = {"openshift": (CONSTRAINTS, MACHINE_CONFIGS), "hypershift": (CONSTRAINTS,), "kubernetes": ()}
    return frozenset((*served, *openshift[platform]))
