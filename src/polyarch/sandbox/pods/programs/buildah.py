"""The program of the builder image: what plays buildah in the sandbox (BD-391).

Of any tag of buildah's own image, and only in build pods: a container with another command finds nothing to execute.
Pure.
"""

import sys
from collections.abc import Mapping
from typing import Final

import msgspec

from polyarch.builds.jobs import contract
from polyarch.operator.settings import DEFAULT_BUILDER_IMAGE
from polyarch.sandbox.pods.programs.arguments import rewritten
from polyarch.sandbox.pods.programs.installed import NotInTheImage
from polyarch.sandbox.pods.spec import Container

REPOSITORY: Final = DEFAULT_BUILDER_IMAGE.rpartition(":")[0]
MODULE: Final = "polyarch.sandbox.building"


class Workplace(msgspec.Struct, frozen=True, kw_only=True):
    """Files of this machine that the program needs besides the pod's volumes."""

    fate: str
    attempts: str


def command_line(container: Container, mounts: Mapping[str, str], workplace: Workplace) -> tuple[str, ...]:
    """The program and arguments to execute; NotInTheImage if the container is no build pod's."""
    wanted = (*(container.command or ()), *(container.args or ()))
    if wanted != contract.BUILD_COMMAND:
        raise NotInTheImage(wanted[0] if wanted else "")
    return (
        *(sys.executable, "-m", MODULE),
        f"--inputs={rewritten(contract.IN, mounts)}",
        f"--context={rewritten(contract.CONTEXT, mounts)}",
        f"--layout={rewritten(contract.LAYOUT, mounts)}",
        f"--termination-log={rewritten(contract.TERMINATION_LOG, mounts)}",
        f"--fate={workplace.fate}",
        f"--attempts={workplace.attempts}",
    )
