"""What somebody asked of the API server, from its audit log: requests, refusals, and rights that were never used."""

import asyncio
import json
from collections.abc import Iterable
from typing import Any

from polyarch.kube.rbac import Permission, PolicyRule, missing, unused
from polyarch.sandbox.cluster import Sandbox

DECISION = "authorization.k8s.io/decision"
DELAY = 1.5
"""Seconds after which a request stands in the log."""


class Audited:
    """The requests of one user from now on; ``whole``: since the log began."""

    def __init__(self, sandbox: Sandbox, user: str, *, whole: bool = False) -> None:
        self._log = sandbox.audit_log
        self._user = user
        self._start = 0 if whole else self._log.stat().st_size

    async def requests(self) -> list[str]:
        """``verb resource name``; without watches and Leases, which go on whatever happens."""
        return [
            " ".join(part for part in (access.verb, access.resource, access.name) if part)
            for access in map(_access, await self._events())
            if access.verb != "watch" and access.resource != "leases"
        ]

    async def refused(self) -> list[str]:
        """What the right was missing for. A 403 has other reasons as well: a namespace that is being deleted."""
        events = await self._events()
        return [str(_access(event)) for event in events if event.get("annotations", {}).get(DECISION) == "forbid"]

    async def never_used(self, rules: Iterable[PolicyRule]) -> list[str]:
        """A cache that streams its list only watches; older servers make it list, so that counts as used, too."""
        asked = [access for event in await self._events() for access in _accesses(event)]
        asked += [access._replace(verb="list") for access in asked if access.verb == "watch"]
        return [str(access) for access in unused(rules, asked)]

    async def not_allowed(self, rules: Iterable[PolicyRule]) -> list[str]:
        """What these rules would not have allowed, whoever else allowed it."""
        asked = [access for event in await self._events() for access in _accesses(event)]
        return [str(access) for access in missing(rules, asked)]

    async def _events(self) -> list[dict[str, Any]]:
        await asyncio.sleep(DELAY)
        with self._log.open("rb") as log:
            log.seek(self._start)
            lines = [line for line in log if line.endswith(b"\n")]
        events = [json.loads(line) for line in lines]
        # A watch is in the log when it starts and when it ends, all else when it is answered.
        return [
            event
            for event in events
            if event["user"].get("username", "") == self._user
            and "objectRef" in event
            and (event["stage"] == "ResponseComplete" or event["verb"] == "watch")
        ]


def _access(event: dict[str, Any]) -> Permission:
    at = event["objectRef"]
    resource = at["resource"] + (f"/{at['subresource']}" if "subresource" in at else "")
    name = "" if event["verb"] == "create" else at.get("name", "")
    return Permission(event["verb"], at.get("apiGroup", ""), resource, name)


def _accesses(event: dict[str, Any]) -> list[Permission]:
    """An apply that makes an object is a patch in the log, and takes the right to create as well."""
    access = _access(event)
    made = access.verb == "patch" and event.get("responseStatus", {}).get("code") == 201
    return [access, access._replace(verb="create", name="")] if made else [access]
