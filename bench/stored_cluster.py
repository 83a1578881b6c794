"""An API server that holds what a benchmark puts there: lists, watches and a Lease; nothing is decided.

Every request that is not a list, a watch or a Lease is counted, answered as if it had been done, and changes nothing: a
role at rest makes none. Objects are kept as the bytes that a watch sends.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

PAGE: Final = 500
LEASES: Final = "leases"
FIRST_VERSION: Final = 1_000_000
Document = dict[str, Any]


class StoredCluster:
    """Objects by plural name. ``requests`` counts, by verb and plural name, what was no list, watch or Lease; ``pages``
    counts the pages of lists by plural name."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.pages: Counter[str] = Counter()
        self._objects: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
        self._watches: defaultdict[str, list[asyncio.Queue[bytes]]] = defaultdict(list)
        self._version = FIRST_VERSION
        self._lease: Document | None = None

    def put(self, plural: str, documents: Iterable[Document]) -> None:
        """Stores objects as they are, with a version each, before anybody watches."""
        for document in documents:
            self._version += 1
            document["metadata"]["resourceVersion"] = str(self._version)
            self._objects[plural][_key(document)] = msgspec.json.encode(document)

    def count(self, plural: str) -> int:
        """How many objects of a kind there are."""
        return len(self._objects[plural])

    def touch(self, plural: str, annotation: str) -> None:
        """Somebody annotates every object of a kind: each watch gets an event for each. In the server's loop only."""
        for key, stored in self._objects[plural].items():
            document = msgspec.json.decode(stored)
            self._version += 1
            metadata = document["metadata"]
            metadata["resourceVersion"] = str(self._version)
            metadata.setdefault("annotations", {})[annotation] = str(self._version)
            self._objects[plural][key] = msgspec.json.encode(document)
            for changes in self._watches[plural]:
                changes.put_nowait(self._objects[plural][key])

    def application(self) -> web.Application:
        application = web.Application(client_max_size=64 << 20)
        application.router.add_route("*", "/{path:.*}", self._answer)
        return application

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        if parts[0] == "apis" and len(parts) == 2:
            return _status(404, "NotFound")  # no group is discovered
        place = parts[2:] if parts[0] == "api" else parts[3:]
        namespaced = len(place) > 2 and place[0] == "namespaces"
        plural, *name = place[2:] if namespaced else place or [""]
        if plural == LEASES:
            return await self._of_lease(request)
        if request.method == "GET" and not name:
            if "watch" in request.query:
                return await self._watch(request, plural)
            self.pages[plural] += 1
            return self._list(request, {} if namespaced else self._objects[plural])
        self.requests[f"{request.method} {plural}"] += 1
        await request.read()
        return _status(404, "NotFound") if request.method == "GET" else _json({"metadata": {"name": "answered"}})

    async def _of_lease(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return _json(self._lease) if self._lease is not None else _status(404, "NotFound")
        self._lease = msgspec.json.decode(await request.read())
        self._version += 1
        self._lease["metadata"]["resourceVersion"] = str(self._version)
        return _json(self._lease, status=201 if request.method == "POST" else 200)

    def _list(self, request: web.Request, stored: Mapping[str, bytes]) -> web.Response:
        page = int(request.query.get("continue") or 0)
        items = list(stored.values())[page * PAGE : (page + 1) * PAGE]
        token = str(page + 1) if (page + 1) * PAGE < len(stored) else ""
        head = msgspec.json.encode({"resourceVersion": str(self._version), "continue": token})
        body = b'{"kind":"List","apiVersion":"v1","metadata":' + head + b',"items":[' + b",".join(items) + b"]}"
        return web.Response(body=body, content_type="application/json")

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        if request.query.get("sendInitialEvents"):
            return _status(422, "Invalid")
        response = web.StreamResponse()
        await response.prepare(request)
        changes: asyncio.Queue[bytes] = asyncio.Queue()
        if not request.query.get("fieldSelector"):
            self._watches[plural].append(changes)
        while True:
            await response.write(b'{"type":"MODIFIED","object":' + await changes.get() + b"}\n")


def _key(document: Mapping[str, Any]) -> str:
    metadata = document["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata['name']}"


def _json(document: Mapping[str, Any], *, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(document), status=status, content_type="application/json")


def _status(code: int, reason: str) -> web.Response:
    return _json({"kind": "Status", "code": code, "reason": reason}, status=code)
