"""The name of a MachineOSBuild (BD-263, BD-264): the stock builder's where a pool has one architecture.

Consumers find a build by its name, and builds that stock builders have made are to be found by us. Where a pool is
mixed there is no stock name to keep, and the name follows from the build key, which no order of fields can change. MD5
is for names only.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from polyarch.builds.machineos.naming import block_yaml

SALT: Final = bytes.fromhex(
    "107ccee48b38afaf4fe586769d9ad36e195d2ffdac6a2507ae0da0b96e115734db830cceda8d7487bcb5c097e93e7ea5"
    "4053b3770fa8d0c5926b3ae385bcee1a211aebca20ad1fea2990944f06ce1716"
)
"""A constant of stock builders, kept for compatibility."""
ANY_ARCHITECTURE: Final = "NoArch"
_OBJECT_REFERENCE: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


def stock_name(
    config: str, *, configuration: Mapping[str, Any], spec: Mapping[str, Any], os_images: Mapping[str, str]
) -> str:
    """Bit for bit what stock builders make of ``spec.configuration`` of the pool and ``spec`` of the MachineOSConfig.

    ``os_images``: see :func:`os_images`. Objects are taken as they are stored.
    """
    return _named(
        config,
        block_yaml.dump(configuration_of(configuration)),
        block_yaml.dump(spec_of(spec)),
        block_yaml.dump(dict(os_images)),
    )


def mixed_name(config: str, *, configuration: Mapping[str, Any], build_key: str) -> str:
    """The name where there is more than one architecture, or a text for one of them only."""
    return _named(config, block_yaml.dump(configuration_of(configuration)), build_key.encode())


def keeps_stock_name(architectures: Iterable[str], entries: Iterable[Mapping[str, Any]] | None) -> bool:
    """Whether a build for these architectures, with these ``containerFile`` entries, has the stock name."""
    texts = (entry.get("containerfileArch") or ANY_ARCHITECTURE for entry in entries or ())
    return len(set(architectures)) == 1 and all(each == ANY_ARCHITECTURE for each in texts)


def os_images(*, os_image: str, extensions_image: str, release: str) -> dict[str, str]:
    """What the stock builder hashes of the rendered config and its release."""
    return {
        "BaseOSContainerImage": os_image,
        "BaseOSExtensionsContainerImage": extensions_image,
        "OSImageURL": "",
        "ReleaseVersion": release,
    }


def configuration_of(stored: Mapping[str, Any]) -> dict[str, Any]:
    """``spec.configuration`` of a pool with the fields of v1 only (BD-264)."""
    found = _reference(stored)
    if source := stored.get("source"):
        found["source"] = [_reference(each) for each in source]
    return found


def spec_of(stored: Mapping[str, Any]) -> dict[str, Any]:
    """``spec`` of a MachineOSConfig with the fields of v1 only; without ``containerFile`` that is null (BD-264)."""
    entries = stored.get("containerFile")
    found: dict[str, Any] = {
        "machineConfigPool": {"name": _text(stored, "machineConfigPool", "name")},
        "imageBuilder": {"imageBuilderType": _text(stored, "imageBuilder", "imageBuilderType")},
        "renderedImagePushSecret": {"name": _text(stored, "renderedImagePushSecret", "name")},
        "renderedImagePushSpec": stored.get("renderedImagePushSpec") or "",
        "containerFile": None if entries is None else [_entry(each) for each in entries],
    }
    if stored.get("baseImagePullSecret") is not None:
        found["baseImagePullSecret"] = {"name": _text(stored, "baseImagePullSecret", "name")}
    return found


def _named(config: str, *parts: bytes) -> str:
    digest = hashlib.md5(SALT + b"".join(parts), usedforsecurity=False)
    return f"{config}-{digest.hexdigest()}"


def _entry(stored: Mapping[str, Any]) -> dict[str, Any]:
    found = {"content": stored.get("content") or ""}
    if architecture := stored.get("containerfileArch"):
        found["containerfileArch"] = architecture
    return found


def _reference(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {field: stored[field] for field in _OBJECT_REFERENCE if stored.get(field)}


def _text(stored: Mapping[str, Any], *path: str) -> str:
    value: Any = stored
    for each in path:
        value = value.get(each) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""
