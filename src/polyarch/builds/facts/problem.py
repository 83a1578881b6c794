"""What is wrong with a build, said once, at the object it is wrong in (BD-060, BD-064, BD-320)."""

from typing import Literal

import msgspec


class Problem(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A reason of §11, and a sentence that names the thing, what is allowed, and the next action."""

    reason: str
    message: str
    architecture: str = ""
    """Empty: it concerns every architecture."""
    severity: Literal["Error", "Warning"] = "Error"
    """A Warning becomes an event and blocks nothing."""
