"""The decision about one pod, the sentence that explains it, and the signed record of it on the pod.

A decision is a reason, one sentence, and the values to write. Events, warnings, the annotation, the audit log and
``polyarch explain`` all print this value, so they cannot differ.

The decision record is the annotation ``polyarch.dev/placement-decision``. It tells later calls which expressions on the
pod are ours, so that a manifest copied from a placed pod, or a second round of admission, is decided as if new. A pod's
creator can write any annotation: a forged or copied record could claim that an expression of another webhook is ours,
and polyarch would remove it. So each record is signed together with its namespace and images, with a key that only
polyarch's processes have, and readers compare it with the pod. Pure: no I/O, no clock.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.durations import format_duration
from polyarch.images.pod_images import (
    ImageEffect,
    ImageFacts,
    conflict,
    deciders,
    failed,
    listed,
    named,
    provisos,
    remedy,
)
from polyarch.placement.names import DECISION_ANNOTATION
from polyarch.placement.settings import PreferenceEntry, Settings


class Reason(StrEnum):
    """The reason of the outcome, as the specification names it."""

    # Not eligible, in the order of the rules.
    INVALID_POD = "InvalidPod"
    OPERATOR_NAMESPACE = "OperatorNamespace"
    KUBE_NAMESPACE = "KubeNamespace"
    EXCLUDED_NAMESPACE = "ExcludedNamespace"
    OPTED_OUT = "OptedOut"
    ALREADY_BOUND = "AlreadyBound"
    CONTROL_PLANE_POD = "ControlPlanePod"
    DAEMON_SET_POD = "DaemonSetPod"
    ARCHITECTURE_ALREADY_REQUIRED = "ArchitectureAlreadyRequired"
    # Placed.
    ARCHITECTURES_SET = "ArchitecturesSet"
    ALL_IMAGES_NEUTRAL = "AllImagesNeutral"
    PREFERENCES_ONLY = "PreferencesOnly"
    NO_SUPPORTED_ARCHITECTURE = "NoSupportedArchitecture"
    FALLBACK_SET = "FallbackSet"
    PARTIALLY_CONSTRAINED = "PartiallyConstrained"
    RELEASED_UNCONSTRAINED = "ReleasedUnconstrained"
    # Not placed, or not by us.
    IMAGES_NOT_RESOLVED_YET = "ImagesNotResolvedYet"
    HELD_BY_POLICY = "HeldByPolicy"
    NO_LONGER_ELIGIBLE = "NoLongerEligible"
    CONTROLLER_UNAVAILABLE = "ControllerUnavailable"


class PlacementOutcome(StrEnum):
    """The state of the pod after the decision."""

    IGNORED = "ignored"
    """Left alone: not eligible, or no controller is there to remove a gate."""
    WAITING = "waiting"
    """Gated until its images are known."""
    FAILING = "failing"
    """Gated, and failing long enough to be labelled so."""
    HELD = "held"
    """Gated because the policy says ``hold``."""
    PLACED = "placed"
    """The outcome is written and our gate is removed."""


class LookupProgress(StrEnum):
    """Progress of the attempts to resolve a pod's images."""

    FIRST = "first"
    """No waiting yet: an admission, or the first reconcile."""
    WAITING = "waiting"
    FAILING = "failing"
    """Failing for two seconds or more; the retry window has not ended."""
    ENDED = "ended"
    """The retry window has ended."""
    HOLD_ENDED = "hold-ended"
    """``holdLimit`` has ended: release."""

    @property
    def is_final(self) -> bool:
        return self in (LookupProgress.ENDED, LookupProgress.HOLD_ENDED)


class PlacementDecision(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The decision for one pod; ``message`` is one sentence that names the deciding images and the next step."""

    reason: Reason
    outcome: PlacementOutcome
    message: str
    rule: Reason | None = None
    """The eligibility rule that applied, if the pod is not eligible."""
    architectures: tuple[str, ...] = ()
    """The architectures to write, sorted; from the images or the fallback."""
    supported: tuple[str, ...] = ()
    """Architectures that all resolved images support (A; K while some are unresolved), even if others are written."""
    os: str = ""
    """The value of the OS expression, if one is written."""
    system: str = ""
    """The operating system that the architectures are for; empty: nothing decides it."""
    terms: tuple[int, ...] = ()
    """Indexes of the required terms that get our expressions."""
    os_terms: tuple[int, ...] = ()
    """Those of them that get the OS expression too."""
    created: bool = False
    """The required term is ours."""
    preferred: tuple[tuple[str, int], ...] = ()
    """Preferred terms to add: architecture and weight."""
    sources: tuple[PreferenceEntry, ...] = ()
    scoring_applies: bool = False
    images: tuple[ImageFacts, ...] = ()
    stale: bool = False
    no_matching_node: bool = False
    """``nodeAware``: no node has any of the architectures."""
    failure: str = ""
    """Class, host and status of what could not be resolved, ≤ 256 characters."""

    @property
    def unresolved(self) -> tuple[ImageFacts, ...]:
        return tuple(finding for finding in self.images if finding.effect is ImageEffect.UNRESOLVED)

    @property
    def writes_expression(self) -> bool:
        """At least one required expression of ours is written."""
        return bool(self.terms)


# -- messages ----------------------------------------------------------------------------------------------------------
# One sentence names the deciding images and the next action; all outputs print it unchanged. For a failure it has
# class, host, HTTP status and code, never text that a registry sent.

_EXCLUSIONS: Final = {
    Reason.OPERATOR_NAMESPACE: "it is in the operator's namespace",
    Reason.KUBE_NAMESPACE: "pods in kube-* namespaces are never placed",
    Reason.EXCLUDED_NAMESPACE: "its namespace is in the PlacementPolicy's excludedNamespaces",
    Reason.INVALID_POD: "the API server rejects it as it is: see its containers, nodeSelectorTerms, gates and labels",
    Reason.OPTED_OUT: "its annotation polyarch.dev/skip-placement is true",
    Reason.ALREADY_BOUND: "spec.nodeName is already set",
    Reason.CONTROL_PLANE_POD: "its nodeSelector selects control-plane nodes",
    Reason.DAEMON_SET_POD: "it belongs to a DaemonSet, which sets its node",
    Reason.ARCHITECTURE_ALREADY_REQUIRED: "its nodeSelector or node affinity already constrains kubernetes.io/arch",
}


def ineligible_message(rule: Reason, namespace: str, *, was_gated: bool) -> str:
    """For a pod that is not placed; ``was_gated``: it became ineligible after it was gated."""
    place = f" (namespace {namespace})" if rule in _NAMESPACE_EXCLUSIONS else ""
    if was_gated:
        return f"Pod is released without a constraint: {_EXCLUSIONS[rule]}{place} ({rule.value})."
    return f"Pod is skipped: {_EXCLUSIONS[rule]}{place}."


_NAMESPACE_EXCLUSIONS: Final = (Reason.OPERATOR_NAMESPACE, Reason.KUBE_NAMESPACE, Reason.EXCLUDED_NAMESPACE)


def decision_message(decision: PlacementDecision, settings: Settings) -> str:
    """For every outcome that depends on images or preferences."""
    match decision.reason:
        case Reason.ARCHITECTURES_SET:
            text = f"Pod is constrained to {listed(decision.architectures)}, supported by {deciders(decision.images)}"
            text += provisos(decision.images, decision.architectures) + _no_node(decision)
        case Reason.ALL_IMAGES_NEUTRAL:
            verb = "runs" if len(decision.images) == 1 else "run"
            text = f"Pod needs no constraint: {named(decision.images)} {verb} on any architecture"
            text += provisos(decision.images, ())
        case Reason.PREFERENCES_ONLY:
            text = "Pod already constrains kubernetes.io/arch itself; only preferences are added"
        case Reason.NO_SUPPORTED_ARCHITECTURE:
            text = f"No node can run the pod: {conflict(decision.images)}; {remedy(decision.images)}"
        case Reason.FALLBACK_SET:
            text = f"{failed(decision.unresolved)}; pod is constrained to the fallback {listed(decision.architectures)}"
            text += _no_node(decision) or "; check that the images support it"
        case Reason.PARTIALLY_CONSTRAINED:
            text = (
                f"{failed(decision.unresolved)}; pod is constrained to {listed(decision.architectures)}, "
                "supported by the other images"
            )
            text += provisos(decision.images, decision.architectures)
            text += _no_node(decision)
        case Reason.RELEASED_UNCONSTRAINED:
            text = f"{failed(decision.unresolved)}; pod is released without a constraint; "
            text += "correct the image or its pull secret"
        case Reason.HELD_BY_POLICY:
            until = _until(settings, "the image is resolved")
            text = (
                f"{failed(decision.unresolved)}; the policy holds the pod{until}; correct the image or its pull secret"
            )
        case Reason.IMAGES_NOT_RESOLVED_YET if decision.failure:
            text = f"{failed(decision.unresolved)}; pod stays gated while polyarch retries"
        case _:
            text = f"Waiting for the platforms of {named(decision.unresolved)}"
    return text + "."


def rejected_message(decision: PlacementDecision, refusal: str) -> str:
    """For a pod whose PATCH the API server keeps rejecting."""
    wanted = listed(decision.architectures) or "the term that no node matches"
    return (
        f"API server rejected the node affinity ({refusal}); pod is released without {wanted}; "
        "find the webhook or policy that rejects it."
    )


def held_rejected_message(settings: Settings, refusal: str) -> str:
    """The same, if the policy never releases a pod without a constraint."""
    until = _until(settings, "the write is accepted")
    return (
        f"API server rejected the write that removes the scheduling gate ({refusal}); "
        f"the policy holds the pod{until}; find the webhook or policy that rejects it."
    )


def held_undecided_message(settings: Settings) -> str:
    """For an internal error, if the policy never releases a pod without a constraint."""
    until = _until(settings, "it can be placed")
    return (
        f"Internal error of polyarch while placing the pod; the policy holds the pod{until}; see the controller's log."
    )


def _until(settings: Settings, end: str) -> str:
    limit = settings.hold_limit
    return f" for at most {format_duration(limit)}" if limit is not None else f" until {end}"


def unavailable_message(decision: PlacementDecision, *, deprovisioning: bool) -> str:
    """While no controller can remove a gate. ``deprovisioning``: the ClusterPodPlacementConfig is being deleted."""
    unknown = f" and the platforms of {named(decision.unresolved)} are unknown" if decision.unresolved else ""
    if deprovisioning:
        return (
            f"Pod is not constrained: the ClusterPodPlacementConfig is being deleted{unknown}; "
            "once it is gone, create another to place pods."
        )
    return (
        f"Pod is not constrained: the placement controller is down{unknown}; "
        "check Deployment pod-placement-controller, then recreate the pod."
    )


def _no_node(decision: PlacementDecision) -> str:
    if not decision.no_matching_node:
        return ""
    system = f" of {decision.system}" if decision.system else ""
    return f"; no node{system} has any of these architectures: add one, or the pod stays Pending"


# -- keys and signatures -----------------------------------------------------------------------------------------------
# Keys come from a file of up to two lines (:func:`parse_keys`), the newest first. Both verify, so records stay valid
# through a rotation. A process without a key accepts every record.

MAX_KEYS: Final = 2
"""Keys that are used; others in the file are ignored."""
MIN_KEY_BYTES: Final = 16
"""Minimum bytes of a key."""
_SIGNATURE_BYTES: Final = 16
"""Bytes of a signature."""


class RecordSigner:
    """Signs with one key and verifies with all of them."""

    __slots__ = ("_keys", "_signing")

    def __init__(self, keys: Sequence[bytes] = (), *, signing: int | None = 0) -> None:
        """``signing``: index of the key to sign with; not the newest while some processes may not have it yet. None:
        it verifies only."""
        self._keys = tuple(keys[:MAX_KEYS])
        self._signing = signing

    def __repr__(self) -> str:
        return f"<RecordSigner of {len(self._keys)} keys>"

    @property
    def keys(self) -> tuple[bytes, ...]:
        """All keys, the newest first."""
        return self._keys

    @property
    def has_key(self) -> bool:
        return bool(self._keys)

    def sign(self, content: bytes) -> str:
        """The signature in base64url, 22 characters; empty without a key."""
        return _signature(self._keys[self._signing], content) if self._keys and self._signing is not None else ""

    def fits(self, signature: str, content: bytes) -> bool:
        """Whether the signature was made with one of the keys."""
        given = signature.encode(errors="replace")
        return any(hmac.compare_digest(_signature(key, content).encode(), given) for key in self._keys)


NO_SIGNER: Final = RecordSigner()


def _signature(key: bytes, content: bytes) -> str:
    made = hmac.digest(key, content, hashlib.sha256)[:_SIGNATURE_BYTES]
    return base64.urlsafe_b64encode(made).rstrip(b"=").decode()


def parse_keys(content: bytes) -> tuple[bytes, ...]:
    """The keys of a key file: one per line, base64, the newest first; lines after the second are ignored.

    Raises ``ValueError`` with a message that contains nothing of the file.
    """
    lines = [line.strip() for line in content.splitlines() if line.strip()][:MAX_KEYS]
    if not lines:
        raise ValueError("it is empty; expected one or two lines as `openssl rand -base64 32` prints them")
    keys = []
    for number, line in enumerate(lines, start=1):
        try:
            key = base64.b64decode(line, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"line {number} is not base64; expected what `openssl rand -base64 32` prints") from None
        if len(key) < MIN_KEY_BYTES:
            raise ValueError(f"the key in line {number} has {len(key)} bytes; expected {MIN_KEY_BYTES} or more")
        keys.append(key)
    return tuple(keys)


# -- the record: at most 1 KiB of JSON ---------------------------------------------------------------------------------

RECORD_VERSION: Final = 1
MAX_RECORD_BYTES: Final = 1024
MAX_RECORD_IMAGES: Final = 8
_SIGNATURE_MEMBERS_BYTES: Final = len('"of":"0123456789abcdef","sig":"0123456789012345678901",')
"""Bytes that the signature adds."""
_DIGEST_BYTES: Final = 12
"""Bytes of a digest of image references."""


class DecisionRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=False):
    """The annotation's content. Without ``terms``: any term. ``more_arch`` counts values left out for length."""

    v: int
    by: str
    mode: str
    reason: str
    arch: tuple[str, ...] = ()
    more_arch: int | msgspec.UnsetType = msgspec.UNSET
    os: str | msgspec.UnsetType = msgspec.UNSET
    terms: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET
    created: bool = False
    preferred: tuple[tuple[str, int], ...] = ()
    images: dict[str, str | int] = msgspec.field(default_factory=dict)
    of: str | msgspec.UnsetType = msgspec.UNSET
    """Digest of the pod's image references, if ``images`` does not name all of them."""
    sig: str | msgspec.UnsetType = msgspec.UNSET
    stale: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def named_images(self) -> tuple[str, ...] | None:
        """The images it was made for; None if they are not all named."""
        if isinstance(self.images.get("more"), int):
            return None
        return tuple(self.images)

    def is_of(self, images: Iterable[str]) -> bool:
        """Whether it was made for these references, whoever wrote it."""
        own = set(images)
        if self.of is not msgspec.UNSET:
            return self.of == _digest(own)
        named = {text for text, note in self.images.items() if isinstance(note, str)}
        more = sum(note for note in self.images.values() if isinstance(note, int))
        return not self.images or (named <= own and len(named) + more == len(own))

    def names_term(self, index: int) -> bool:
        return self.terms is msgspec.UNSET or index in self.terms

    def names_values(self, values: list[str] | None) -> bool:
        """Whether an expression with these values can be the recorded one."""
        if not values or not self.arch:
            return False
        if self.more_arch is msgspec.UNSET:
            return tuple(values) == self.arch
        return len(values) == len(self.arch) + self.more_arch and tuple(values[: len(self.arch)]) == self.arch


_decode_record = msgspec.json.Decoder(DecisionRecord).decode
_encode = msgspec.json.Encoder(order="sorted").encode


def read_record(annotations: Mapping[str, str] | None) -> DecisionRecord | None:
    """The record in a pod's annotations; None if there is none or it cannot be ours."""
    text = annotations.get(DECISION_ANNOTATION) if annotations else None
    if text is None or len(text) > MAX_RECORD_BYTES:
        return None
    try:
        record = _decode_record(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return record if record.v == RECORD_VERSION else None


class SignedContext(NamedTuple):
    """What a record is bound to: the namespace and the pod's image references; and the key that signs it."""

    namespace: str
    images: tuple[str, ...]
    signer: RecordSigner = NO_SIGNER
    was_sent: bool = True
    """The pod's creator sent the record. If not, an earlier call of this admission wrote it, and another webhook may
    have changed the images since."""


def is_authentic(record: DecisionRecord, scope: SignedContext) -> bool:
    """Whether polyarch wrote the record for a pod in this namespace with these images."""
    if not scope.signer.has_key:
        return True
    if record.sig is msgspec.UNSET:
        return False
    bare = msgspec.structs.replace(record, sig=msgspec.UNSET)
    images: Iterable[str] | None = scope.images if scope.was_sent else record.named_images
    if record.of is not msgspec.UNSET:
        if scope.was_sent and record.of != _digest(scope.images):
            return False
        images = ()
    return images is not None and scope.signer.fits(record.sig, _signed_bytes(bare, scope.namespace, images))


def signed_record(decision: PlacementDecision, *, by: str, mode: str, scope: SignedContext) -> str:
    """The annotation's value. It has no timestamp, so equal facts give equal text."""
    record = record_of(decision, by=by, mode=mode)
    if scope.signer.has_key:
        images = scope.images
        if set(record.named_images or ()) != set(images):
            record, images = msgspec.structs.replace(record, of=_digest(images)), ()
        signature = scope.signer.sign(_signed_bytes(record, scope.namespace, images))
        record = msgspec.structs.replace(record, sig=signature)
    return _encode(record).decode()


def _digest(images: Iterable[str]) -> str:
    digest = hashlib.sha256(_encode(sorted(set(images)))).digest()[:_DIGEST_BYTES]
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _signed_bytes(record: DecisionRecord, namespace: str, images: Iterable[str]) -> bytes:
    return _encode((namespace, sorted(set(images)), record))


def record_of(decision: PlacementDecision, *, by: str, mode: str) -> DecisionRecord:
    """The record of a decision, shortened to fit the limit with a signature."""
    texts = [(finding.text, finding.note) for finding in decision.images]
    for count in range(min(len(texts), MAX_RECORD_IMAGES), -1, -1):
        images: dict[str, str | int] = dict(texts[:count])
        if len(texts) > count:
            images["more"] = len(texts) - count
        record = DecisionRecord(
            RECORD_VERSION,
            by,
            mode,
            decision.reason.value,
            arch=decision.architectures,
            os=decision.os or msgspec.UNSET,
            terms=decision.terms,
            created=decision.created,
            preferred=decision.preferred,
            images=images,
            stale=decision.stale or msgspec.UNSET,
        )
        if _fits(record):
            return record
    return _shortened(record)


def _fits(record: DecisionRecord) -> bool:
    return len(_encode(record)) <= MAX_RECORD_BYTES - _SIGNATURE_MEMBERS_BYTES


def _shortened(record: DecisionRecord) -> DecisionRecord:
    """Shorten the record of a pod with hundreds of terms or architectures to the limit."""
    record = msgspec.structs.replace(record, terms=msgspec.UNSET)
    kept = len(record.arch)
    while not _fits(record) and kept:
        kept -= 1
        record = msgspec.structs.replace(record, arch=record.arch[:kept], more_arch=(record.more_arch or 0) + 1)
    return record


# -- whether the pod's creator sent the record -------------------------------------------------------------------------
# The API server records in ``metadata.managedFields`` which fields the creator's request sets, before it calls any
# webhook, and a client cannot hide a field from it. So when our webhook is reinvoked, our own annotation is on the pod
# but in no entry of ``managedFields``; a copied or forged one is in its creator's entry.
#
# Source: https://kubernetes.io/docs/reference/using-api/server-side-apply/ (FieldsV1).


class _ManagedFieldsEntry(msgspec.Struct, frozen=True):
    fields: dict[str, Any] | None = msgspec.field(default=None, name="fieldsV1")


class _PodMetadata(msgspec.Struct, frozen=True):
    managed: list[_ManagedFieldsEntry] | None = msgspec.field(default=None, name="managedFields")


class _PodObject(msgspec.Struct, frozen=True):
    metadata: _PodMetadata = _PodMetadata()


_decode_managed_fields: Final = msgspec.json.Decoder(_PodObject).decode


def creator_sent_record(pod: msgspec.Raw | bytes) -> bool:
    """Whether the pod's creator set the decision annotation; true if ``managedFields`` cannot be read."""
    try:
        managed = _decode_managed_fields(pod).metadata.managed
    except (msgspec.MsgspecError, RecursionError):
        return True
    return not managed or any(entry.fields is None or _sets_annotation(entry.fields) for entry in managed)


def _sets_annotation(fields: dict[str, Any]) -> bool:
    for member in ("f:metadata", "f:annotations"):
        within = fields.get(member)
        if not isinstance(within, dict):
            return False
        fields = within
    return f"f:{DECISION_ANNOTATION}" in fields
