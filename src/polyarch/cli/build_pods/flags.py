"""What the commands of build pods have in common on the command line."""

from typing import Annotated

from polyarch.cli.options.values import File, option, subject

SUBJECT = subject("Work")
TerminationLog = Annotated[
    File, option("Where the result is written, in one line of JSON, as the last act", group=SUBJECT)
]
DEFAULT_LOG = "/dev/termination-log"
EXITS = (
    (0, "done; the result is in the termination log"),
    (1, "a registry failed; another attempt may succeed"),
    (2, "the command line or a file that it names is wrong"),
    (44, "the registry refuses it, or the credentials cannot be used"),
)
