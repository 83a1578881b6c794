"""How a program in a build pod ends: its exit code and its termination message (BD-147, BD-149).

The message is the last thing it does: whoever reads a message of success knows that everything before it is done.
"""

from pathlib import Path

import msgspec

from polyarch.builds import names
from polyarch.builds.jobs import contract
from polyarch.oci.answer import InspectionError

Message = contract.Pushed | contract.IndexPushed | contract.Pruned | contract.Failed
_TEXT_BYTES = 1024


class Ending(msgspec.Struct, frozen=True):
    """The end of a program."""

    code: int
    message: Message

    @classmethod
    def failure(cls, code: int, message: str) -> "Ending":
        """With the reason that belongs to the code, and as much of the text as a status holds."""
        reason = contract.EXIT_REASONS.get(code, ("BuildFailed",))[0]
        text = message.encode(errors="replace")[:_TEXT_BYTES].decode(errors="ignore")
        return cls(code, contract.Failed(reason=reason, message=text))


def of_registry(error: InspectionError) -> Ending:
    """What a registry's refusal means: without rights another attempt is of no use, everything else may pass."""
    refused = error.error_class == "auth" or error.code == "blocked"
    return Ending.failure(names.PUSH_DENIED if refused else contract.TRANSIENT, error.message)


def write_message(path: Path, message: Message) -> None:
    """One line of JSON."""
    path.write_bytes(msgspec.json.encode(message) + b"\n")
