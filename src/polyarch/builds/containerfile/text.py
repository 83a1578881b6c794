"""The text of a Containerfile as it is used and hashed (BD-056), and what is wrong with one (BD-057).

Editors and checkouts change line ends and byte-order marks; such changes must not build anything again. Nothing else is
normalised: a comment is part of the text.
"""

import msgspec

MAX_BYTES = 128 * 1024
MAX_FAULTS = 20
"""A text with more is not looked at further: nobody reads more at once."""
_SHOWN = 60

# What users of machine OS builds know from the stock builder (BD-268).
NO_FROM = "must contain at least one FROM instruction"
NO_BASE = "FROM instruction requires a base image"
NO_COMMAND = "RUN instruction requires a command"
NO_PATHS = "COPY instruction requires source and destination paths"
NO_DIRECTORY = "WORKDIR instruction requires a directory path"
UNKNOWN = "unknown Dockerfile instruction"
UNREADABLE = "failed to parse Containerfile"


class Fault(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One thing that is wrong in a text."""

    text_name: str
    """``common``, or the architecture whose text it is."""
    line: int
    """Counted from 1."""
    problem: str
    expected: str
    rule: str = UNREADABLE
    """The rule that it breaks, in the words of the stock builder (BD-268)."""

    @property
    def message(self) -> str:
        return f"Containerfile ({self.text_name}), line {self.line}: {self.problem}; expected {self.expected}"


def normalised(text: str) -> str:
    """Without byte-order mark, with LF line ends, and with exactly one LF at the end of a text that is not empty."""
    body = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    return f"{body}\n" if body else ""


def shown(text: str) -> str:
    """A piece of a text in quotes, short enough for a message."""
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
