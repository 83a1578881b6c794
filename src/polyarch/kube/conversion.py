"""Conversion between the versions of a custom resource: a ConversionReview v1 converts all its objects or none.

One version is the hub; every other version is a :class:`Spoke`, which converts to the hub and back. Spoke to spoke goes
through the hub. A spoke changes the given object in place, so fields it does not know are kept. What the hub cannot
express, the spoke must keep in an annotation: converting there and back has to be the identity, or the API server loses
data whenever it stores a version other than the one written.

The API server calls this on every read and write of a version that is not stored, and has no failure policy for it: a
failure reaches the client. So every failure names the object and the field."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec
import structlog
from msgspec import UNSET, UnsetType

from polyarch.clock import Clock
from polyarch.kube.admission import LOGGED, NotAReview
from polyarch.kube.errors import SeenErrors
from polyarch.kube.resources import Resource

log = structlog.get_logger(__name__)

Document = dict[str, Any]

API_VERSION: Final = "apiextensions.k8s.io/v1"
KIND: Final = "ConversionReview"
MAX_BODY: Final = 8 * 2**20
"""Bytes. A list is converted in one review, however long it is; ours is of one object."""
_OURS: Final = ("labels", "annotations")
"""The only metadata that a conversion may change; the API server rejects any other change."""


class InvalidField(ValueError):  # noqa: N818 - what is the case
    """A spoke cannot convert an object: the field and the problem."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")


class Spoke(NamedTuple):
    """A version other than the hub. Both functions change the object they are given; nobody else holds it."""

    to_hub: Callable[[Document], None]
    from_hub: Callable[[Document], None]


def moved(*fields: tuple[str, str]) -> Spoke:
    """A spoke that differs only in field paths: pairs of the path in the spoke and in the hub (``spec.size``)."""
    pairs = [(here.split("."), there.split(".")) for here, there in fields]

    def to_hub(document: Document) -> None:
        _move(document, pairs)

    def from_hub(document: Document) -> None:
        _move(document, [(there, here) for here, there in pairs])

    return Spoke(to_hub, from_hub)


class ConversionRoute(msgspec.Struct, frozen=True, kw_only=True):
    """The conversion webhook of ``resource``, whose version is the hub; ``spokes`` are the other versions by name."""

    path: str
    name: str
    resource: Resource
    spokes: Mapping[str, Spoke]

    @property
    def max_body(self) -> int:
        return MAX_BODY

    def answers(self, clock: Clock) -> "Converter":
        return Converter(self, clock)

    def convert(self, document: Document, api_version: str) -> Document:
        """The object in another version; changes the one given. Raises :class:`InvalidField`."""
        metadata = dict(document.get("metadata") or {})
        here, there = self._spoke(document.get("apiVersion")), self._spoke(api_version)
        if document["apiVersion"] == api_version:
            return document
        if here is not None:
            here.to_hub(document)
        if there is not None:
            there.from_hub(document)
        document["apiVersion"] = api_version
        changed = document.get("metadata") or {}
        kept = {name: value for name, value in metadata.items() if name not in _OURS}
        document["metadata"] = kept | {name: changed[name] for name in _OURS if name in changed}
        return document

    def _spoke(self, api_version: Any) -> Spoke | None:
        """None for the hub."""
        group, _, version = str(api_version).rpartition("/")
        if group == self.resource.group:
            if version == self.resource.version:
                return None
            if version in self.spokes:
                return self.spokes[version]
        known = ", ".join((self.resource.version, *self.spokes))
        raise InvalidField("apiVersion", f"{api_version!r} is no version of {self.resource}; there are {known}")


class _Request(msgspec.Struct, frozen=True, rename={"desired_api_version": "desiredAPIVersion"}):
    uid: str
    desired_api_version: str
    objects: list[Document]


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Request | None = None


class _Result(msgspec.Struct, frozen=True):
    status: Literal["Success", "Failure"]
    message: str | UnsetType = UNSET


class _Response(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    result: _Result
    converted_objects: list[Document]


class _AnsweredReview(msgspec.Struct, frozen=True, rename="camel"):
    response: _Response
    api_version: str = API_VERSION
    kind: str = KIND


_decode = msgspec.json.Decoder(_Review).decode
_encode = msgspec.json.Encoder().encode


class Converter:
    """Answers the reviews of one route."""

    def __init__(self, route: ConversionRoute, clock: Clock) -> None:
        self.route = route
        self._clock = clock
        self._causes = SeenErrors()

    async def answer(self, body: bytes, *, timeout: float, arrived_at: float, is_proven: bool = False) -> bytes:
        """The encoded ConversionReview that answers ``body``. Raises only :class:`NotAReview`."""
        try:
            review = _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise NotAReview(f"the body is not a ConversionReview that can be read: {error}") from None
        asked = review.request
        if review.api_version != API_VERSION or review.kind != KIND or asked is None:
            raise NotAReview(
                f"expected apiVersion {API_VERSION} and kind {KIND} with a request, found apiVersion "
                f"{review.api_version!r} and kind {review.kind!r}; set conversionReviewVersions: [v1] in the CRD"
            )
        converted: list[Document] = []
        ends = arrived_at + timeout - min(0.5, timeout / 10)
        for document in asked.objects:
            await self._clock.sleep(0)
            if self._clock.monotonic() >= ends:
                done = f"{len(converted)} of {len(asked.objects)} objects were converted within {timeout:g} s"
                return self._failed(asked, f"{done}; list fewer at a time (limit=)", None)
            who = f"{document.get('kind')} {_name(document)}"
            try:
                converted.append(self.route.convert(document, asked.desired_api_version))
            except InvalidField as problem:
                return self._failed(asked, f"{who}: {problem}", None)
            except Exception as error:  # noqa: BLE001 - a review is answered whatever happens
                return self._failed(asked, f"{who}: an internal error occurred", error)
        return _encode(_AnsweredReview(_Response(asked.uid, _Result("Success"), converted)))

    def _failed(self, asked: _Request, problem: str, error: Exception | None) -> bytes:
        log.error(
            "objects not converted",
            route=self.route.name,
            to=asked.desired_api_version[:LOGGED],
            problem=(problem if error is None else f"{problem}: {type(error).__name__}: {error}")[: 4 * LOGGED],
            uid=asked.uid[:LOGGED],
            exc_info=error if error is not None and self._causes.is_new(error) else None,
        )
        return _encode(_AnsweredReview(_Response(asked.uid, _Result("Failure", problem), [])))


def _name(document: Document) -> str:
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return "without a name"
    name = metadata.get("name") or metadata.get("generateName") or "without a name"
    return f"{metadata['namespace']}/{name}" if metadata.get("namespace") else str(name)


def _move(document: Document, pairs: list[tuple[list[str], list[str]]]) -> None:
    """Moves all fields at once, so that two fields may swap places."""
    taken = [(there, _take(document, here)) for here, there in pairs]
    for path, value in taken:
        if value is not UNSET:
            _put(document, path, value)


def _take(node: Any, path: list[str]) -> Any:
    """Removes and returns the value, and removes parents that this leaves empty: they would not come back otherwise."""
    if not isinstance(node, dict) or path[0] not in node:
        return UNSET
    if len(path) == 1:
        return node.pop(path[0])
    value = _take(node[path[0]], path[1:])
    if value is not UNSET and not node[path[0]]:
        del node[path[0]]
    return value


def _put(document: Document, path: list[str], value: Any) -> None:
    node = document
    for name in path[:-1]:
        node = node.setdefault(name, {})
        if not isinstance(node, dict):
            raise InvalidField(".".join(path), f"{name} is no object")
    if path[-1] in node:
        raise InvalidField(".".join(path), "is set already; it is the place of another field in this version")
    node[path[-1]] = value
