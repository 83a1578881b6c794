"""Secrets, whose content must not appear in logs."""

import msgspec

from polyarch.model.meta import ObjectMeta

DOCKER_CONFIG_JSON = "kubernetes.io/dockerconfigjson"
DOCKER_CONFIG = "kubernetes.io/dockercfg"


class Secret(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 Secret; ``data`` is decoded from base64. The repr shows only its keys (PL-850)."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, bytes | None] | None = None

    def __repr__(self) -> str:
        return f"Secret({self.metadata.key}, type={self.type!r}, keys={sorted(self.data or ())})"
