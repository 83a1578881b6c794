"""Signature policies: containers-policy.json(5), as far as it can be evaluated without image content.

A policy rejects an image, accepts it, or requires signatures. The first two are decided before any request. Signatures
would have to be fetched and verified with the content, which is the pulling runtime's job; :data:`Signed` says how an
image that requires signatures is treated.

Pure: imports neither asyncio nor aiohttp.
"""

import os
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import msgspec

from polyarch.oci.inspection import InspectionError, InspectionWarning
from polyarch.oci.reference import Reference

Signed = Literal["skip", "warn", "deny"]
REJECT = "reject"
ACCEPT = "insecureAcceptAnything"
SIGNATURES = frozenset({"signedBy", "signedBaseLayer", "sigstoreSigned"})


class InvalidPolicy(ValueError):  # noqa: N818 - the name says what is the matter
    """An unusable policy file: a usage error with file and position."""

    def __init__(self, origin: str, problem: str) -> None:
        super().__init__(f"{origin}: {problem}")


class _Requirement(msgspec.Struct, frozen=True):
    type: str


_Requirements = Annotated[list[_Requirement], msgspec.Meta(min_length=1)]


class _Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    default: _Requirements
    transports: dict[str, dict[str, _Requirements]] = {}


class SignaturePolicy:
    """One policy file. ``signed`` says how images that require signatures are treated."""

    def __init__(self, policy: _Policy, *, origin: str, signed: Signed) -> None:
        self._policy = policy
        self._origin = origin
        self._signed: Signed = signed

    @classmethod
    def from_json(cls, body: bytes, *, origin: str, signed: Signed = "warn") -> "SignaturePolicy":
        """Parse the policy; :class:`InvalidPolicy` for anything unknown."""
        try:
            policy = msgspec.json.decode(body, type=_Policy)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidPolicy(origin, f"not a signature policy: {error}") from None
        for where, requirements in _all(policy):
            for each in requirements:
                if each.type not in {REJECT, ACCEPT, *SIGNATURES}:
                    known = ", ".join((REJECT, ACCEPT, *sorted(SIGNATURES)))
                    raise InvalidPolicy(origin, f"{where}: unknown requirement {each.type!r}; expected one of {known}")
        return cls(policy, origin=origin, signed=signed)

    def judge(self, reference: Reference) -> InspectionError | InspectionWarning | None:
        """None if the image may be used; the error ``policy-rejected`` if not, and then nothing may be sent; a warning
        if it may be used but its signatures were not checked.
        """
        scope, requirements = self._find(reference)
        types = {each.type for each in requirements}
        where = f"{self._origin}, {scope}"
        if REJECT in types:
            message = f"{reference}: the policy rejects it ({where}); use another image or change the policy"
            return InspectionError.of("policy-rejected", message)
        if types.isdisjoint(SIGNATURES) or self._signed == "skip":
            return None
        wanted = ", ".join(sorted(types & SIGNATURES))
        if self._signed == "deny":
            message = (
                f"{reference}: the policy wants {wanted} ({where}), which is not checked here; "
                "allow it with --policy-signed warn"
            )
            return InspectionError.of("policy-rejected", message)
        return InspectionWarning(
            "signature-unchecked", f"the policy wants {wanted} ({where}), which is not checked here"
        )

    def _find(self, reference: Reference) -> tuple[str, list[_Requirement]]:
        scopes = self._policy.transports.get(reference.transport, {})
        for scope in (*_scopes(reference), ""):
            if scope in scopes:
                shown = f"scope {scope}" if scope else f"all of the transport {reference.transport}"
                return shown, scopes[scope]
        return "default", self._policy.default


def _scopes(reference: Reference) -> Iterator[str]:
    """Scopes from the most specific to the widest. With a digest the tag is ignored."""
    if reference.transport == "oci":
        path = os.path.realpath(reference.repository)
        yield f"{path}:{reference.tag or ''}"
        while path != "/":
            yield path
            path = os.path.dirname(path)  # noqa: PTH120 - texts, as in the policy
        return
    name = reference.name
    yield f"{name}@{reference.digest}" if reference.digest is not None else f"{name}:{reference.tag}"
    while True:
        yield name
        shorter, slash, _ = name.rpartition("/")
        if not slash:
            break
        name = shorter
    host = name if name.startswith("[") else name.partition(":")[0]
    while "." in host:
        host = host.partition(".")[2]
        yield f"*.{host}"


def _all(policy: _Policy) -> Iterator[tuple[str, list[_Requirement]]]:
    yield "default", policy.default
    transports: Mapping[str, Mapping[str, list[_Requirement]]] = policy.transports
    for transport, scopes in transports.items():
        for scope, requirements in scopes.items():
            yield f"transports.{transport}[{scope!r}]", requirements
