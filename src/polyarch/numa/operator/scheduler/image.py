"""Which kube-scheduler runs (NO-084).

By default it is the stock one of the API server's own version. Whoever asks for it may have the image checked against a
list of digests. Pure.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

OVERRIDE: Final = "KUBE_SCHEDULER_IMAGE"
VALIDATION: Final = "SCHEDULER_IMAGE_VALIDATION"
DIGESTS: Final = "SCHEDULER_IMAGE_DIGESTS"
STOCK: Final = "registry.k8s.io/kube-scheduler"
_DIGEST: Final = re.compile(r"@(sha256:[0-9a-f]{64})\Z")
_MINOR: Final = re.compile(r":v?1\.([0-9]+)(?:[.+-][^/@]*)?(?:@.*)?\Z")
_RELEASE: Final = re.compile(r"v?([0-9]+\.[0-9]+\.[0-9]+)")


class ImageRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator's environment says about the image."""

    override: str = ""
    """Instead of the stock image."""
    digests: frozenset[str] | None = None
    """Those that are allowed; None: any image is."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "ImageRules":
        listed = frozenset(each.strip() for each in environment.get(DIGESTS, "").split(",") if each.strip())
        checks = environment.get(VALIDATION, "").lower() == "true"
        return cls(override=environment.get(OVERRIDE, ""), digests=listed if checks else None)


class ChosenImage(msgspec.Struct, frozen=True):
    """``problem``: why it must not run (reason ``InvalidSchedulerImage``); ``warning``: what to know about it."""

    image: str
    problem: str = ""
    warning: str = ""


def chosen(wanted: str, rules: ImageRules, *, version: str) -> ChosenImage:
    """``wanted``: ``imageSpec``, empty if unset; ``version``: the API server's ``gitVersion``."""
    image = wanted or rules.override or f"{STOCK}:v{release_of(version)}"
    if rules.digests is not None:
        found = _DIGEST.search(image)
        if found is None:
            return ChosenImage(image, f"image {image} must be given by its digest (…@sha256:<64 hexadecimal digits>)")
        if found[1] not in rules.digests:
            return ChosenImage(image, f"the digest of image {image} is not among those of {DIGESTS}")
    return ChosenImage(image, warning=_warning(image, version))


def release_of(version: str) -> str:
    """``1.33.2`` of ``v1.33.2-eks-1a2b3c``: what distributions append names no image."""
    found = _RELEASE.match(version)
    return found[1] if found is not None else version.removeprefix("v")


def _warning(image: str, version: str) -> str:
    """What an image names no version of, such as a digest alone, is not judged."""
    found, own = _MINOR.search(image), release_of(version).split(".")
    if found is None or len(own) < 2 or not own[1].isdigit() or abs(int(found[1]) - int(own[1])) <= 1:
        return ""
    return f"image {image} is more than one minor version away from the API server ({version})"
