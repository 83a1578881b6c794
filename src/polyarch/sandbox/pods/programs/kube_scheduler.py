"""The program of the stock kube-scheduler's image: the one that the sandbox's control plane runs (NS-164).

Of any tag: the sandbox has one Kubernetes version. Three things are added to what its container says, which a pod on a
real node has without words: the way to the API server (there the in-cluster configuration, whose files have fixed
paths), the address on which it serves, and that its neighbours in the pod are on that address, too (``arguments``).
For that the file of ``--config`` is read, changed and written beside the pod's volumes, where a running scheduler would
not notice a change either. Pure.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import msgspec
import yaml

from polyarch.sandbox.pods.programs.arguments import expanded, rewritten
from polyarch.sandbox.pods.programs.installed import NotInTheImage
from polyarch.sandbox.pods.spec import Container

REPOSITORY: Final = "registry.k8s.io/kube-scheduler"
NAME: Final = "kube-scheduler"
_CONFIG: Final = "--config="
_BIND: Final = "--bind-address="
_CALLERS: Final = ("--authentication-kubeconfig=", "--authorization-kubeconfig=")
"""By which of the API server's users it is asked: from the in-cluster configuration, if there is one."""
_OWN_HOSTS: Final = ("127.0.0.1", "localhost", "::1")


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What its pod gives it: the program on this machine, and the pod's address and kubeconfig."""

    program: str
    address: str
    kubeconfig: str
    configuration: str
    """Where the changed file is to be."""


def command_line(
    container: Container, variables: Mapping[str, str], mounts: Mapping[str, str], surroundings: Surroundings
) -> tuple[str, ...]:
    """The program and arguments to execute, with the file that :func:`configuration` changes in its place;
    NotInTheImage if the container wants another program: the image has no entry point that starts it."""
    wanted = [rewritten(expanded(each, variables), mounts) for each in (*(container.command or ()), *_given(container))]
    if not wanted or PurePosixPath(wanted[0]).name != NAME:
        raise NotInTheImage(wanted[0] if wanted else "")
    arguments = [f"{_CONFIG}{surroundings.configuration}" if each.startswith(_CONFIG) else each for each in wanted[1:]]
    arguments = [each for each in arguments if not each.startswith(_BIND)]
    missing = [flag for flag in _CALLERS if not any(each.startswith(flag) for each in arguments)]
    return (
        surroundings.program,
        *arguments,
        f"{_BIND}{surroundings.address}",
        *(f"{flag}{surroundings.kubeconfig}" for flag in missing),
    )


def configured_by(container: Container, variables: Mapping[str, str], mounts: Mapping[str, str]) -> str:
    """The file of ``--config`` on this machine; empty if there is none."""
    given = [rewritten(expanded(each, variables), mounts) for each in _given(container)]
    return next((each.removeprefix(_CONFIG) for each in given if each.startswith(_CONFIG)), "")


def configuration(text: str, surroundings: Surroundings) -> str:
    """The text as this pod's scheduler needs it. What is no configuration stays as it is: the program says so."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    if not isinstance(found, dict):
        return text
    connection = found.get("clientConnection") or {}
    extenders = found.get("extenders") or []
    if not isinstance(connection, dict) or not isinstance(extenders, list):
        return text
    changed = {
        **found,
        "clientConnection": {**connection, "kubeconfig": connection.get("kubeconfig") or surroundings.kubeconfig},
        "extenders": [_reached(each, surroundings.address) for each in extenders],
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
