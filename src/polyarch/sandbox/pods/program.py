"""Which containers are polyarch's own, and the command line with which one is run on this machine (SB-011). Pure.

The image's program is ``polyarch``; here it is this very installation, under the same Python. Nothing else is in the
image, so nothing else is run. A path of the container that leads into a volume is rewritten to the volume's folder.
"""

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Final

from polyarch.operating.settings import DEFAULT_IMAGE
from polyarch.sandbox.pods.spec import Container

REPOSITORY: Final = DEFAULT_IMAGE.rpartition(":")[0]
PROGRAM: Final = "import sys; from polyarch.cli import main; sys.exit(main())"
ENTRYPOINT: Final = "polyarch"
SOCKET: Final = "unix://"


class NotInTheImage(Exception):  # noqa: N818 - what is wrong
    """The container's program is not in polyarch's image; the text is a container runtime's."""


@lru_cache(maxsize=1024)
def is_ours(image: str) -> bool:
    """Whether the image, with any tag or digest, is polyarch's own."""
    name = image.partition("@")[0]
    host, slash, rest = name.rpartition("/")
    return host + slash + rest.partition(":")[0] == REPOSITORY


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """``$(NAME)`` replaced as Kubernetes does it: unknown names stay as they are, and ``$$`` is one ``$``."""
    parts: list[str] = []
    at = 0
    while (dollar := text.find("$", at)) >= 0 and dollar + 1 < len(text):
        parts.append(text[at:dollar])
        following = text[dollar + 1]
        end = text.find(")", dollar) if following == "(" else -1
        if end >= 0:
            name = text[dollar + 2 : end]
            parts.append(variables.get(name, text[dollar : end + 1]))
            at = end + 1
        else:
            parts.append("$" if following == "$" else text[dollar : dollar + 2])
            at = dollar + 2
    return "".join(parts) + text[at:]


def rewritten(text: str, mounts: Mapping[str, str]) -> str:
    """``text`` with a leading path of the container replaced by the path on this machine: ``/etc/x/tls.crt`` as well as
    ``--flag=/etc/x/tls.crt`` and ``unix:///run/x.sock``. ``mounts`` is mountPath → folder; of nested ones the inner
    counts."""
    flag, equals, value = text.partition("=")
    if equals and flag.startswith("-"):
        return f"{flag}={_moved(value, mounts)}"
    return _moved(text, mounts)


def _moved(text: str, mounts: Mapping[str, str]) -> str:
    if text.startswith(f"{SOCKET}/"):
        return SOCKET + _moved(text.removeprefix(SOCKET), mounts)
    if not text.startswith("/"):
        return text
    for mount in sorted(mounts, key=len, reverse=True):
        inside = mount.rstrip("/")
        if text in (inside, mount) or text.startswith(f"{inside}/"):
            return mounts[mount] + text[len(inside) :].rstrip("/")
    return text


def command_line(container: Container, variables: Mapping[str, str], mounts: Mapping[str, str]) -> tuple[str, ...]:
    """The program and arguments to execute; NotInTheImage if the container wants another program."""
    wanted = [*(container.command or [ENTRYPOINT]), *(container.args or ())]
    return executable([rewritten(expanded(each, variables), mounts) for each in wanted])


def executable(command: Sequence[str]) -> tuple[str, ...]:
    """The same for a command of a probe or hook, in which nothing is expanded."""
    if not command or PurePosixPath(command[0]).name != ENTRYPOINT:
        name = command[0] if command else ""
        raise NotInTheImage(f'exec: "{name}": executable file not found in $PATH (the sandbox runs only polyarch)')
    return (sys.executable, "-c", PROGRAM, *command[1:])
