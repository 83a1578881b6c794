"""One RuntimeClass per architecture: a pod that names it runs there, and tolerates the taint (TN-054).

For workloads whose images say nothing about where they belong, and for tools that may set ``runtimeClassName`` but no
tolerations. The handler is the container runtime's own, which nobody can guess. Pure.
"""

from collections.abc import Iterable
from typing import Any

from polyarch.kube.resources import RUNTIME_CLASSES
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.names import ARCH_KEY
from polyarch.tolerations import Toleration


def runtime_classes(settings: TaintSettings, existing: Iterable[str], *, handler: str) -> tuple[dict[str, Any], ...]:
    """``arch-<a>`` for each managed architecture among those of ``existing`` nodes, sorted."""
    return tuple(
        {
            "apiVersion": RUNTIME_CLASSES.api_version,
            "kind": RUNTIME_CLASSES.kind,
            "metadata": {"name": f"arch-{architecture}"},
            "handler": handler,
            "scheduling": {
                "nodeSelector": {ARCH_KEY: architecture},
                "tolerations": [_plain(settings.toleration(architecture))],
            },
        }
        for architecture in sorted(settings.managed.intersection(existing))
    )


def _plain(toleration: Toleration) -> dict[str, str]:
    return {
        "key": toleration.key,
        "operator": toleration.operator,
        "value": toleration.value,
        "effect": toleration.effect,
    }
