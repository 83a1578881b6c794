"""What kubelets are started with so that their nodes join with the taint, where no policy can add it (TN-027). Pure."""

from collections.abc import Iterable

import msgspec

from polyarch.taints.api.settings import TaintSettings


class KubeletFlag(msgspec.Struct, frozen=True):
    """For kubelets on nodes of one architecture."""

    architecture: str
    flag: str


def kubelet_flags(settings: TaintSettings, existing: Iterable[str]) -> tuple[KubeletFlag, ...]:
    """For the tainted architectures that are configured or that nodes have, sorted."""
    named = settings.tainted & (settings.given | set(existing))
    return tuple(
        KubeletFlag(architecture, f"--register-with-taints={settings.taint(architecture)}")
        for architecture in sorted(named)
    )
