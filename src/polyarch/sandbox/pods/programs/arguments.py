"""How a container's command line reads on this machine: variables, paths into volumes, the pod's network (SB-011).

A pod has a network of its own, so its containers reach one another on 127.0.0.1 and may listen on any port of all
addresses. The pods of a sandbox share this machine's loopback interface, and each has an address of its own there. So
what an argument calls 127.0.0.1 or all addresses is that address, and no two pods get in one another's way. Pure.
"""

import re
from collections.abc import Mapping
from typing import Final

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
