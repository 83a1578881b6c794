"""What one image contributes to a decision about its pod (PL-211).

Every feature that decides by a pod's images uses these values, so that all judge the same answers alike. Pure.
"""

from enum import StrEnum

import msgspec

from polyarch.platforms import NodePlatform


class Verdict(StrEnum):
    """What one image contributes to the decision (PL-211)."""

    CONSTRAINS = "constrains"
    NEUTRAL = "neutral"
    UNRESOLVED = "unresolved"


class Finding(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One image of the pod, as the decision uses it.

    ``text`` is the reference as written in the pod. ``note`` is its value in the annotation (PL-246): twelve hex
    digits of the digest, ``neutral``, ``local``, ``pending`` or the code of the error.
    """

    text: str
    verdict: Verdict
    note: str
    platforms: tuple[NodePlatform, ...] = ()
    stale: bool = False
    always: bool = False
    error_class: str = ""
    """Failure class of an unresolved image, which determines its retries (RG-060); empty while it is pending."""
    host: str = ""
    status: int | None = None
    problem: str = ""
    """Why the reference is invalid (RG-015)."""
    dropped: tuple[str, ...] = ()
    """Architecture names of the image that are not valid on nodes (PL-233)."""

    @property
    def is_pending(self) -> bool:
        return self.verdict is Verdict.UNRESOLVED and not self.error_class

    @property
    def failure(self) -> str:
        """Class, host, HTTP status and code: the only details of a failure that pod owners see (PL-751)."""
        if self.is_pending:
            return "not answered yet"
        parts = [
            self.error_class,
            self.host,
            f"HTTP {self.status}" if self.status is not None else "",
            f"({self.note})",
        ]
        return " ".join(part for part in parts if part)
