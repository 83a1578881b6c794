"""What ``--pods-fingerprint-status-file`` says after each scan (NE-085): the pods behind a fingerprint, for those who
find that two of them differ. Its fields are those that tools read already. Pure.
"""

from typing import Any

from polyarch.numa.decide.zones import Zones


def status(decided: Zones, published: str) -> dict[str, Any]:
    """``published``: the fingerprint of the object in the cluster before this scan, empty if it has none."""
    return {
        "fingerprintExpected": published,
        "fingerprintComputed": decided.fingerprint,
        "pods": [{"Namespace": each.namespace, "Name": each.name} for each in decided.pods],
        "nodeName": decided.node,
    }
