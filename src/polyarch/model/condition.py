"""Status conditions (meta/v1) as a controller finds them, before they have a time and a generation."""

from typing import Literal

import msgspec

Status = Literal["True", "False", "Unknown"]


class Condition(msgspec.Struct, frozen=True, gc=False):
    """A condition that a controller found (meta/v1). ``reason`` is a CamelCase word, ``message`` is for people."""

    type: str
    status: Status
    reason: str
    message: str = ""
