"""Taints of nodes and tolerations of pods; ``polyarch.tolerations`` says which covers which."""

import msgspec


class Taint(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Taint. Key and effect identify it on its node."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None

    def __str__(self) -> str:
        """As ``kubectl taint`` takes it: ``key=value:effect``."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


class Toleration(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Toleration. An absent operator means ``Equal``; an absent effect means every effect."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None
