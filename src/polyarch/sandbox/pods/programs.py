"""The programs of containers that are run, and their command lines on this machine. Pure.

Three images are run: polyarch's own (this very installation), the stock kube-scheduler (the control plane's), and the
builder image (the fake buildah). All others are only simulated.

A pod has a network of its own, so its containers reach one another on 127.0.0.1 and may listen on any port of all
addresses. The pods of a sandbox share this machine's loopback interface, and each has an address of its own there. So
what an argument calls 127.0.0.1 or all addresses is that address, and no two pods get in one another's way.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import msgspec
import yaml

from polyarch.builds.jobs import contract
from polyarch.operator.settings import DEFAULT_BUILDER_IMAGE, DEFAULT_IMAGE
from polyarch.sandbox.pods.spec import Container
from polyarch.yaml_loader import SafeLoader

SOCKET: Final = "unix://"
_OF_THE_POD: Final = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\]|0\.0\.0\.0|\[::\])?(:[0-9]+)")
"""A host and port, or a port alone, on which a process of the pod listens or is reached by its neighbours."""


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


def addressed(text: str, address: str) -> str:
    """``text`` with the host of ``--flag=127.0.0.1:9448``, or of ``--flag=:8448``, replaced by the pod's address."""
    flag, equals, value = text.partition("=")
    found = _OF_THE_POD.fullmatch(value) if equals and flag.startswith("--") else None
    return f"{flag}={address}{found[1]}" if found is not None else text


# -- polyarch's own image: this very installation, under the same Python -----------------------------------------------


POLYARCH_REPOSITORY: Final = DEFAULT_IMAGE.rpartition(":")[0]
PROGRAM: Final = "import sys; from polyarch.cli import main; sys.exit(main())"
ENTRYPOINT: Final = "polyarch"


class NotInTheImage(Exception):  # noqa: N818 - what is wrong
    """The container's program is not in its image; the text is a container runtime's."""

    def __init__(self, name: str) -> None:
        super().__init__(f'exec: "{name}": executable file not found in $PATH (the sandbox runs only polyarch)')


def polyarch_command(
    container: Container, variables: Mapping[str, str], mounts: Mapping[str, str], *, address: str
) -> tuple[str, ...]:
    """The program and arguments to execute; NotInTheImage if the container wants another program. ``address``: on which
    the pod's processes listen."""
    wanted = [*(container.command or [ENTRYPOINT]), *(container.args or ())]
    return executable([addressed(rewritten(expanded(each, variables), mounts), address) for each in wanted])


def executable(command: Sequence[str]) -> tuple[str, ...]:
    """The same for a command of a probe or hook, in which nothing is expanded."""
    if not command or PurePosixPath(command[0]).name != ENTRYPOINT:
        raise NotInTheImage(command[0] if command else "")
    return (sys.executable, "-c", PROGRAM, *command[1:])


# -- the stock kube-scheduler: the one that the sandbox's control plane runs -------------------------------------------
# Any tag of its image: the sandbox has one Kubernetes version. Three things are added to what its container says, which
# a pod on a real node has without words: the way to the API server (there the in-cluster configuration, whose files
# have fixed paths), the address on which it serves, and that its neighbours in the pod are on that address, too. For
# that the file of ``--config`` is read, changed and written beside the pod's volumes, where a running scheduler would
# not notice a change either.


SCHEDULER_REPOSITORY: Final = "registry.k8s.io/kube-scheduler"
NAME: Final = "kube-scheduler"
_CONFIG: Final = "--config="
_BIND: Final = "--bind-address="
_CALLERS: Final = ("--authentication-kubeconfig=", "--authorization-kubeconfig=")
"""By which of the API server's users it is asked: from the in-cluster configuration, if there is one."""
_OWN_HOSTS: Final = ("127.0.0.1", "localhost", "::1")


class SchedulerPodContext(msgspec.Struct, frozen=True, kw_only=True):
    """What its pod gives it: the program on this machine, and the pod's address and kubeconfig."""

    program: str
    address: str
    kubeconfig: str
    configuration: str
    """Where the changed file is to be."""


def scheduler_command(
    container: Container, variables: Mapping[str, str], mounts: Mapping[str, str], context: SchedulerPodContext
) -> tuple[str, ...]:
    """The program and arguments to execute, with the file that :func:`configuration` changes in its place;
    NotInTheImage if the container wants another program: the image has no entry point that starts it."""
    wanted = [rewritten(expanded(each, variables), mounts) for each in (*(container.command or ()), *_given(container))]
    if not wanted or PurePosixPath(wanted[0]).name != NAME:
        raise NotInTheImage(wanted[0] if wanted else "")
    arguments = [f"{_CONFIG}{context.configuration}" if each.startswith(_CONFIG) else each for each in wanted[1:]]
    arguments = [each for each in arguments if not each.startswith(_BIND)]
    missing = [flag for flag in _CALLERS if not any(each.startswith(flag) for each in arguments)]
    return (
        context.program,
        *arguments,
        f"{_BIND}{context.address}",
        *(f"{flag}{context.kubeconfig}" for flag in missing),
    )


def configured_by(container: Container, variables: Mapping[str, str], mounts: Mapping[str, str]) -> str:
    """The file of ``--config`` on this machine; empty if there is none."""
    given = [rewritten(expanded(each, variables), mounts) for each in _given(container)]
    return next((each.removeprefix(_CONFIG) for each in given if each.startswith(_CONFIG)), "")


def pod_scheduler_configuration(text: str, context: SchedulerPodContext) -> str:
    """The text as this pod's scheduler needs it. What is no configuration stays as it is: the program says so."""
    try:
        found = yaml.load(text, SafeLoader)  # noqa: S506 - safe
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    if not isinstance(found, dict):
        return text
    connection = found.get("clientConnection") or {}
    extenders = found.get("extenders") or []
    if not isinstance(connection, dict) or not isinstance(extenders, list):
        return text
    changed = {
        **found,
        "clientConnection": {**connection, "kubeconfig": connection.get("kubeconfig") or context.kubeconfig},
        "extenders": [_reached(each, context.address) for each in extenders],
    }
    return msgspec.json.format(msgspec.json.encode(changed), indent=2).decode() + "\n"


def _given(container: Container) -> Sequence[str]:
    return container.args or ()


def _reached(extender: Any, address: str) -> Any:
    """One that listens inside of the pod."""
    url = extender.get("urlPrefix") if isinstance(extender, dict) else None
    try:
        parts = urlsplit(url) if isinstance(url, str) else SplitResult("", "", "", "", "")
        port = parts.port
    except ValueError:
        return extender
    if parts.hostname not in _OWN_HOSTS:
        return extender
    host = address if port is None else f"{address}:{port}"
    return {**extender, "urlPrefix": parts._replace(netloc=host).geturl()}


# -- the builder image: any tag of it, and only in build pods ----------------------------------------------------------


BUILDAH_REPOSITORY: Final = DEFAULT_BUILDER_IMAGE.rpartition(":")[0]
FAKE_BUILDAH: Final = "polyarch.sandbox.fake_buildah"


class FakeBuildahFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Files of this machine that the program needs besides the pod's volumes."""

    fault: str
    attempts: str


def fake_buildah_command(container: Container, mounts: Mapping[str, str], files: FakeBuildahFiles) -> tuple[str, ...]:
    """The program and arguments to execute; NotInTheImage if the container is no build pod's."""
    wanted = (*(container.command or ()), *(container.args or ()))
    if wanted != contract.BUILD_COMMAND:
        raise NotInTheImage(wanted[0] if wanted else "")
    return (
        *(sys.executable, "-m", FAKE_BUILDAH),
        f"--inputs={rewritten(contract.IN, mounts)}",
        f"--context={rewritten(contract.CONTEXT, mounts)}",
        f"--layout={rewritten(contract.LAYOUT, mounts)}",
        f"--termination-log={rewritten(contract.TERMINATION_LOG, mounts)}",
        f"--fault={files.fault}",
        f"--attempts={files.attempts}",
    )


# -- which images are run ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def repository_of(image: str) -> str:
    """Of an image with any tag or digest."""
    name = image.partition("@")[0]
    host, slash, rest = name.rpartition("/")
    return host + slash + rest.partition(":")[0]


def is_ours(image: str) -> bool:
    """Whether the image is polyarch's own."""
    return repository_of(image) == POLYARCH_REPOSITORY


def is_scheduler(image: str) -> bool:
    """Whether the image is the stock kube-scheduler's."""
    return repository_of(image) == SCHEDULER_REPOSITORY


def is_builder(image: str) -> bool:
    """Whether the image is buildah's, which build pods use."""
    return repository_of(image) == BUILDAH_REPOSITORY


def is_run(image: str) -> bool:
    """Whether containers of the image are run."""
    return is_ours(image) or is_scheduler(image) or is_builder(image)
