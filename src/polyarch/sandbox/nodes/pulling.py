"""What happens to an image on a node: it runs, fails with the wrong binary format, or cannot be pulled (SB-004).

Messages are those of containerd and the kernel, so that a search for the error finds the usual explanations.

Pure: from an answer of the registry client to a verdict.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from polyarch.oci.answer import Inspection, Status
from polyarch.platforms import Platform

EXEC_FORMAT_ERROR_CODE = 1
ENTRY_POINT = "/bin/app"


class Runs(msgspec.Struct, frozen=True):
    """The container starts and keeps running."""


class WrongFormat(msgspec.Struct, frozen=True):
    """The image is pulled, but the kernel refuses to execute its program."""

    message: str = f"exec {ENTRY_POINT}: exec format error"


class CannotPull(msgspec.Struct, frozen=True):
    """The image cannot be pulled; ``reason`` is the container's waiting reason."""

    message: str
    reason: Literal["ErrImagePull", "ErrImageNeverPull", "InvalidImageName"] = "ErrImagePull"


Verdict = Runs | WrongFormat | CannotPull


def verdict(image: str, answer: Inspection, architecture: str) -> Verdict:
    """What happens to a container with this image on a linux node of this architecture."""
    if answer.error is not None:
        return CannotPull(_failure(image, answer))
    if answer.kind == "artifact":
        return CannotPull(
            f'failed to pull and unpack image "{image}": unsupported config type: it is an artifact, not an image'
        )
    if answer.status is not Status.RESOLVED:
        # A bundle, or an image without a platform: a real node would try to run it.
        return Runs()
    if any(runs_on(platform, architecture) for platform in answer.platforms):
        return Runs()
    if answer.kind == "index":
        return CannotPull(
            f'failed to pull and unpack image "{image}": failed to resolve reference: '
            "no match for platform in manifest: not found"
        )
    return WrongFormat()


def runs_on(platform: Platform, architecture: str) -> bool:
    return platform.os == "linux" and platform.architecture == architecture


_FAILURES: Mapping[str, str] = {
    "not-found": "not found",
    "unauthorized": (
        "pull access denied, repository does not exist or may require authorization: "
        "server message: insufficient_scope: authorization failed"
    ),
    "denied": "unexpected status from HEAD request: 403 Forbidden",
    "rate-limited": "unexpected status: 429 Too Many Requests",
}


def _failure(image: str, answer: Inspection) -> str:
    error = answer.error
    assert error is not None  # noqa: S101  checked by the caller
    text = _FAILURES.get(error.code, error.message)
    return f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {image}: {text}'
