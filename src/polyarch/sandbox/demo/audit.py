"""Count of polyarch's API requests per pod, from the API server's audit log (PL-800).

Only requests by the ServiceAccounts of polyarch's roles count; those of the administrator, the nodes and Kubernetes do
not. Watches and Leases do not count either, as they belong to no pod. Pure.
"""

from collections.abc import Iterable, Mapping

import msgspec

from polyarch.placement.names import POD_WEBHOOK

DECISION = f"{POD_WEBHOOK}/decision"


class User(msgspec.Struct, frozen=True, gc=False):
    username: str = ""


class ObjectReference(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class AuditEvent(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One line of the audit log (audit.k8s.io/v1 Event), reduced to what counting needs."""

    stage: str = ""
    verb: str = ""
    user: User = User()
    object_ref: ObjectReference | None = None
    annotations: dict[str, str] | None = None


_decode = msgspec.json.Decoder(AuditEvent).decode


def read(lines: Iterable[bytes]) -> list[AuditEvent]:
    """The events of all complete lines; a line that is still being written is left out."""
    return [_decode(line) for line in lines if line.endswith(b"\n")]


def count(
    events: Iterable[AuditEvent],
    *,
    accounts: str,
    namespace: str,
    pods: Iterable[str],
    secrets: Mapping[str, str],
) -> dict[str, int]:
    """Requests by pod of the users whose names begin with ``accounts``.

    ``secrets`` maps each pull secret of the namespace to the pod that it is fetched for.

    Event objects count for the pod in their name, ``<pod>.<unique suffix>``.
    """
    counts = dict.fromkeys(pods, 0)
    for event in events:
        at = event.object_ref
        if event.stage != "ResponseComplete" or not event.user.username.startswith(accounts) or at is None:
            continue
        if at.namespace != namespace or event.verb == "watch":
            continue
        match at.resource:
            case "pods":
                pod = at.name
            case "events":
                pod = at.name.rpartition(".")[0] or at.name
            case "secrets":
                pod = secrets.get(at.name, "")
            case _:
                pod = ""
        if pod in counts:
            counts[pod] += 1
    return counts


def decisions(events: Iterable[AuditEvent], *, namespace: str) -> dict[str, str]:
    """The webhook's audit annotation for each created pod (PL-119): reason, values if any, path."""
    noted: dict[str, str] = {}
    for event in events:
        at = event.object_ref
        if at is None or (event.verb, at.resource, at.namespace) != ("create", "pods", namespace):
            continue
        if (text := (event.annotations or {}).get(DECISION)) is not None:
            noted[at.name] = text
    return noted
