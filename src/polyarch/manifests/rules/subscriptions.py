"""The rules for subscriptions that override a bundle (MA209) and for catalogs that offer one (MA210).

Pure.
"""

import binascii
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
from yaml.nodes import Node

from polyarch.kube.patches import pointer
from polyarch.manifests import olm
from polyarch.manifests.bundle import ARCHITECTURE_PREFIX, KIND, SUPPORTED, SYSTEM_PREFIX
from polyarch.manifests.finding import PlatformSets, Repair, Rule, Severity
from polyarch.manifests.operations import (
    Add,
    Remove,
    Replace,
    TreeOperation,
    apply,
    at,
    elements,
    ensure,
    mapping,
    mappings,
    read,
)
from polyarch.manifests.rules.facts import FindingDraft, ObjectFacts, RepairError, RuleCheck
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.nodes import get, item, text_of, value
from polyarch.manifests.scan.pod_specs import REQUIRED, TERMS, KubeObject
from polyarch.manifests.scan.sets import ARCHITECTURE_KEYS, OS_KEYS, PLATFORM_KEYS, Constraints, listed, texts
from polyarch.platforms import NodePlatform, PlatformSet

# -- MA209: subscriptions and extensions that remove an operator's architecture constraint -----------------------------
# With the bundle, the rule computes what OLM makes of each deployment (``polyarch.manifests.olm``) and compares the
# admitted platforms before and after. Without it, the rule reports overrides that would remove any such constraint.


MA209 = Rule(
    id="MA209",
    severity=Severity.ERROR,
    title="The overrides of a subscription remove an architecture constraint",
    meaning="OLM replaces node affinity and node selectors as a whole, and an empty podAntiAffinity removes all "
    "affinity.",
    fix="Adds the lost constraint to the override.",
    subs=("replaces-node-affinity", "anti-affinity-erases", "node-selector-drops"),
)

Terms = list[dict[str, Any]]
_TERMS_PATH = ("affinity", "nodeAffinity", REQUIRED, TERMS)


@dataclass(frozen=True, eq=False)
class Deployment:
    """A deployment of the bundle that the config overrides."""

    name: str
    pod_spec: Mapping[str, Any]

    @cached_property
    def constraints(self) -> Constraints:
        return sets.constraints_of(self.pod_spec)


@dataclass(frozen=True, eq=False)
class SubscriptionOverride:
    """The config of an object, and its pointer."""

    object: KubeObject
    config: Mapping[str, Any]
    pointer: str

    @cached_property
    def document(self) -> Any:
        return self.object.document.value

    def at(self, *path: str | int) -> tuple[Node, str]:
        """The node at a path below the config, or the deepest existing one on the way."""
        for depth in range(len(path), -1, -1):
            where = self.pointer + pointer(*path[:depth])
            node = item(self.object.document.root, where)
            if node is not None:
                return node, where
        return self.object.node, self.object.pointer

    def get(self, *path: str) -> Any:
        """The value at a path below the config, None if there is none."""
        return at(self.config, *path)

    def after(self, operations: Iterable[TreeOperation]) -> Mapping[str, Any]:
        """The config after these operations."""
        found: Mapping[str, Any] = read(apply(self.document, tuple(operations)), self.pointer)
        return found


def check_overrides(facts: ObjectFacts) -> Iterator[FindingDraft]:
    """The check without the bundle."""
    yield from override_drafts(facts.object, None)


def override_drafts(subject: KubeObject, deployments: Sequence[Deployment] | None) -> Iterator[FindingDraft]:
    """MA209 for one object, against the deployments of its bundle if they are known.

    A config that OLM cannot decode is skipped: the API server refuses it.
    """
    override = override_of(subject)
    if override is None:
        return
    if deployments is None:
        yield from _suspicious(override)
    else:
        sound = [each for each in deployments if _is_sound(each, override.config)]
        yield from _erased(override, sound)
        yield from _replaced(override, sound)
        yield from _dropped(override, sound)


def _is_sound(deployment: Deployment, config: Mapping[str, Any]) -> bool:
    """Whether the API server would take the deployment at all, as far as the config concerns it."""
    try:
        olm.apply_config(deployment.pod_spec, config)
    except olm.InvalidConfig:
        return False
    return isinstance(deployment.pod_spec.get("nodeSelector") or {}, Mapping)


def override_of(subject: KubeObject) -> SubscriptionOverride | None:
    """The config of a Subscription or ClusterExtension, if it has a valid one."""
    path = olm.config_path(subject.kind)
    if path is None:
        return None
    try:
        config = olm.config_of(value(subject.node))
        olm.apply_config({}, config)
    except olm.InvalidConfig:
        return None
    return SubscriptionOverride(subject, config, subject.pointer + pointer(*path)) if config else None


def _override_draft(
    override: SubscriptionOverride,
    sub: str,
    place: Sequence[str | int],
    *,
    message: str,
    hint: str,
    repair: Repair,
    severity: Severity | None = None,
    excess: Iterable[NodePlatform] = (),
) -> FindingDraft:
    node, where = override.at(*place)
    return FindingDraft(
        rule=MA209,
        sub=sub,
        severity=severity,
        message=f"{override.object.reference} {message}",
        hint=hint,
        node=node,
        pointer=where,
        platforms=PlatformSets(excess=texts(excess)),
        repair=repair,
    )


def _override_repair(override: SubscriptionOverride, operations: Iterable[TreeOperation], note: str = "") -> Repair:
    return Repair(tuple(operations), note=note, document=override.object.document.index)


# Without the bundle ---------------------------------------------------------------------------------------------------

_NO_BUNDLE = "the lost constraint is in the bundle; name its directory with polyarch fix --bundle DIR"


def _suspicious(override: SubscriptionOverride) -> Iterator[FindingDraft]:
    terms = _terms(override.config)
    without = [index for index, term in enumerate(terms) if not _constrains(term)]
    if without:
        yield _override_draft(
            override,
            "replaces-node-affinity",
            (*_TERMS_PATH, without[0]),
            message="replaces the node affinity that the operator's bundle may have with one that requires "
            "no architecture",
            hint="also require the architectures of the operator's images in each term: OLM replaces node affinity "
            "as a whole",
            repair=_override_repair(override, (), _NO_BUNDLE),
        )
    if _is_empty(override.get("affinity", olm.OVERRIDDEN_AS_A_WHOLE)):
        yield _override_draft(
            override,
            "anti-affinity-erases",
            ("affinity", olm.OVERRIDDEN_AS_A_WHOLE),
            message="has an empty podAntiAffinity, which makes OLM remove all affinity of the operator's pods, "
            "node affinity included",
            hint="remove podAntiAffinity, or give it a term",
            repair=_override_repair(override, (), _NO_BUNDLE),
        )


def _is_empty(attribute: object) -> bool:
    return isinstance(attribute, Mapping) and all(member is None for member in attribute.values())


# replaces-node-affinity -----------------------------------------------------------------------------------------------


def _replaced(override: SubscriptionOverride, deployments: Sequence[Deployment]) -> Iterator[FindingDraft]:
    lost = {each: excess for each in deployments if (excess := _no_longer_kept_out(each, override.config))}
    if not lost:
        return
    admitted = frozenset(platform for excess in lost.values() for platform in excess)
    names = ", ".join(each.name for each in lost)
    yield _override_draft(
        override,
        "replaces-node-affinity",
        ("affinity", "nodeAffinity"),
        message=f"removes the architecture constraint from the node affinity of {names}, "
        f"which then admits {listed(admitted)}",
        hint="add the architectures that the bundle requires to the override: OLM replaces node affinity as a whole",
        repair=_restored(override, list(lost)),
        excess=admitted,
    )


def _no_longer_kept_out(deployment: Deployment, config: Mapping[str, Any]) -> frozenset[NodePlatform]:
    """The platforms that node affinity excluded by architecture and that the override admits."""
    if config.get("affinity") is None or not any(
        sets.is_architecture_constraint(clause) for term in deployment.constraints.terms or () for clause in term
    ):
        return frozenset()
    after = sets.constraints_of(olm.apply_config(deployment.pod_spec, config, behaviour="documented"))
    if after.terms and all(any(map(sets.is_architecture_constraint, term)) for term in after.terms):
        return frozenset()
    return _admitted_more(deployment.constraints, after)


def _admitted_more(before: Constraints, after: Constraints) -> frozenset[NodePlatform]:
    considered = sets.universe(PlatformSet.EVERYTHING, before) | sets.universe(PlatformSet.EVERYTHING, after)
    return sets.admitted(after, considered) - sets.admitted(before, considered)


def _restored(override: SubscriptionOverride, lost: Sequence[Deployment]) -> Repair:
    try:
        operations = _restoring(override, _lost_expressions(lost))
        after = override.after(operations)
        if any(_no_longer_kept_out(each, after) for each in lost):
            raise RepairError("the override cannot express the constraints that are lost")
    except RepairError as refused:
        return _override_repair(override, (), str(refused))
    return _override_repair(override, operations)


def _lost_expressions(lost: Sequence[Deployment]) -> list[Terms]:
    """The expressions on architecture and operating system of each distinct term in the bundle."""
    found: list[list[Terms]] = []
    for deployment in lost:
        alternatives: list[Terms] = []
        for term in _terms(deployment.pod_spec):
            expressions = [each for each in _expressions(term) if each.get("key") in PLATFORM_KEYS]
            if _expressions(term) and expressions not in alternatives:
                alternatives.append(expressions)
        if alternatives not in found:
            found.append(alternatives)
    if len(found) != 1:
        raise RepairError("the deployments of the bundle have different constraints, but one override applies to all")
    return found[0]


def _restoring(override: SubscriptionOverride, alternatives: Sequence[Terms]) -> tuple[TreeOperation, ...]:
    terms = _terms(override.config)
    where = override.pointer + pointer(*_TERMS_PATH)
    if not terms:
        try:
            return (ensure(override.document, where, [{"matchExpressions": each} for each in alternatives]),)
        except KeyError as error:
            raise RepairError(f"{error.args[0].rpartition('/')[0]} is not a mapping") from None
    operations: list[TreeOperation] = []
    for index in range(len(terms) - 1, -1, -1):
        if _constrains(terms[index]):
            continue
        first, *others = alternatives
        operations += _appended(terms[index], f"{where}/{index}", first)
        for offset, expressions in enumerate(others, 1):
            copy = {**terms[index], "matchExpressions": [*_expressions(terms[index]), *expressions]}
            operations.append(Add(f"{where}/{index + offset}", copy))
    return tuple(operations)


def _appended(term: Mapping[str, Any], where: str, expressions: Terms) -> list[TreeOperation]:
    path = f"{where}/matchExpressions"
    if "matchExpressions" not in term:
        return [Add(path, expressions)]
    if not isinstance(term["matchExpressions"], list):
        return [Replace(path, expressions)]
    return [Add(f"{path}/-", each) for each in expressions]


def _terms(holder: Mapping[str, Any]) -> Terms:
    """The terms of required node affinity of a pod specification or config."""
    return [each if isinstance(each, dict) else {} for each in elements(at(holder, *_TERMS_PATH))]


def _expressions(term: Mapping[str, Any]) -> Terms:
    return [each for each in elements(term.get("matchExpressions")) if isinstance(each, dict)]


def _constrains(term: Mapping[str, Any]) -> bool:
    """Requires an architecture, or matches no node at all."""
    if not _expressions(term) and not term.get("matchFields"):
        return True
    return any(each.get("key") in ARCHITECTURE_KEYS and each.get("operator") != "Exists" for each in _expressions(term))


# anti-affinity-erases -------------------------------------------------------------------------------------------------


def _erased(override: SubscriptionOverride, deployments: Sequence[Deployment]) -> Iterator[FindingDraft]:
    erased = [each for each in deployments if olm.exception_applies(each.pod_spec, override.config)]
    if not erased:
        return
    yield _override_draft(
        override,
        "anti-affinity-erases",
        ("affinity", olm.OVERRIDDEN_AS_A_WHOLE),
        message=f"has an empty podAntiAffinity, which makes OLM remove all affinity of {_names(erased)}, "
        "node affinity included",
        hint="remove podAntiAffinity, or give it a term",
        repair=_without_erasure(override, deployments),
    )


def _without_erasure(override: SubscriptionOverride, deployments: Sequence[Deployment]) -> Repair:
    attribute = olm.OVERRIDDEN_AS_A_WHOLE
    if any((each.pod_spec.get("affinity") or {}).get(attribute) for each in deployments):
        return _override_repair(
            override, (), "no override can remove the anti-affinity of the bundle and keep its other affinity"
        )
    affinity = override.get("affinity")
    rest = any(member is not None for key, member in affinity.items() if key != attribute)
    place = ("affinity", attribute) if rest else ("affinity",)
    return _override_repair(override, (Remove(override.pointer + pointer(*place)),))


def _names(deployments: Iterable[Deployment]) -> str:
    return ", ".join(each.name for each in deployments)


# node-selector-drops --------------------------------------------------------------------------------------------------


def _dropped(override: SubscriptionOverride, deployments: Sequence[Deployment]) -> Iterator[FindingDraft]:
    selector = override.get("nodeSelector")
    if selector is None:
        return
    dropped: dict[str, dict[str, list[str]]] = {}
    for each in deployments:
        for key, wanted in (each.pod_spec.get("nodeSelector") or {}).items():
            if key in PLATFORM_KEYS and not any(other in selector for other in _spellings(key)):
                dropped.setdefault(key, {}).setdefault(str(wanted), []).append(each.name)
    for key, values in dropped.items():
        names = ", ".join(dict.fromkeys(name for users in values.values() for name in users))
        operation = Add(override.pointer + pointer("nodeSelector", key), next(iter(values)))
        yield _override_draft(
            override,
            "node-selector-drops",
            ("nodeSelector",),
            severity=Severity.WARNING,
            message=f"drops {key}={'|'.join(values)} from the node selector of {names}",
            hint="add it to the override: OLM replaces node selectors as a whole",
            repair=_override_repair(override, (operation,))
            if len(values) == 1
            else _override_repair(override, (), "the deployments of the bundle require different values"),
        )


def _spellings(key: str) -> tuple[str, ...]:
    return ARCHITECTURE_KEYS if key in ARCHITECTURE_KEYS else OS_KEYS


# -- MA210: a newer bundle of a catalog promises less than an older one ------------------------------------------------
# A file-based catalog lists packages, channels and bundles as documents with a ``schema``, in one or many files. If the
# newest bundle of the default channel has fewer architecture labels than an older one, clusters of that architecture
# stay on the old version without a notice. Unlike other rules this one needs all files of the catalog at once.


MA210 = Rule(
    id="MA210",
    severity=Severity.INFO,
    title="A newer bundle has fewer labels than an older one",
    meaning="The head of the default channel of a catalog lacks labels that an older bundle of the channel has.",
)

_DEFAULTS = {ARCHITECTURE_PREFIX: "amd64", SYSTEM_PREFIX: "linux"}


@dataclass(frozen=True, eq=False)
class _Blob:
    """One document of a catalog."""

    object: KubeObject
    schema: str
    package: str
    name: str

    @property
    def value(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = value(self.object.node)
        return found


def check_catalog(objects: Iterable[KubeObject]) -> Iterator[tuple[KubeObject, FindingDraft]]:
    """A draft for each affected package of the catalogs in these files, with the bundle object."""
    blobs = list(_blobs(objects))
    channels = {(each.package, each.name): each for each in blobs if each.schema == "olm.channel"}
    bundles = {(each.package, each.name): each for each in blobs if each.schema == "olm.bundle"}
    for package in blobs:
        if package.schema == "olm.package":
            channel = channels.get((package.name, str(package.value.get("defaultChannel"))))
            if channel is not None:
                yield from _lost_labels(package.name, channel, bundles)


def _blobs(objects: Iterable[KubeObject]) -> Iterator[_Blob]:
    for subject in objects:
        schema = text_of(get(subject.node, "schema")) or ""
        if schema in ("olm.package", "olm.channel", "olm.bundle"):
            package = text_of(get(subject.node, "package")) or ""
            yield _Blob(subject, schema, package, text_of(get(subject.node, "name")) or "")


def _lost_labels(
    package: str, channel: _Blob, bundles: Mapping[tuple[str, str], _Blob]
) -> Iterator[tuple[KubeObject, FindingDraft]]:
    entries = mappings(channel.value.get("entries"))
    superseded = {str(each.get("replaces")) for each in entries}
    superseded |= {str(skipped) for each in entries for skipped in each.get("skips") or ()}
    names = [str(each.get("name")) for each in entries]
    heads = [name for name in names if name not in superseded]
    head = bundles.get((package, heads[0])) if len(heads) == 1 else None
    if head is None:
        return  # a channel needs exactly one head; opm reports others
    kept = _labels(head)
    older: dict[str, list[str]] = {}
    for name in names:
        bundle = bundles.get((package, name))
        if bundle is not None and bundle is not head:
            for key in sorted(_labels(bundle) | _implied(bundle)):
                if key not in kept and not _is_default(key, kept):
                    older.setdefault(key, []).append(name)
    if older:
        lost = "; ".join(f"{key} ({', '.join(holders)} had it)" for key, holders in sorted(older.items()))
        draft = FindingDraft(
            rule=MA210,
            message=f"{head.name}, the head of the default channel {channel.name} of {package}, lacks labels that "
            f"older bundles have: {lost}",
            hint="add the labels of the older bundles, or announce the end of support in the release notes",
            node=get(head.object.node, "name") or head.object.node,
            pointer=f"{head.object.pointer}/name",
        )
        yield head.object, draft


def _is_default(key: str, kept: frozenset[str]) -> bool:
    """Whether a label is the default, which applies without any label of the prefix."""
    prefix = next(each for each in _DEFAULTS if key.startswith(each))
    return key == prefix + _DEFAULTS[prefix] and not any(each.startswith(prefix) for each in kept)


def _labels(bundle: _Blob) -> frozenset[str]:
    """The keys with the value ``supported``, from the metadata of the ClusterServiceVersion or the embedded object."""
    found: set[str] = set()
    for entry in mappings(bundle.value.get("properties")):
        if entry.get("type") == "olm.csv.metadata":
            found |= _promising(at(entry, "value", "labels"))
        elif entry.get("type") == "olm.bundle.object":
            found |= _promising(_embedded(at(entry, "value", "data")))
    return frozenset(found)


def _implied(bundle: _Blob) -> frozenset[str]:
    """The labels that a bundle without any of a kind has by default, where its metadata is known."""
    known = any(
        each.get("type") in ("olm.csv.metadata", "olm.bundle.object")
        for each in mappings(bundle.value.get("properties"))
    )
    own = _labels(bundle)
    return frozenset(
        prefix + default
        for prefix, default in _DEFAULTS.items()
        if known and not any(each.startswith(prefix) for each in own)
    )


def _embedded(data: object) -> object:
    """The labels of a ClusterServiceVersion in base64; None for anything else."""
    try:
        document = msgspec.json.decode(b64decode(data, validate=True)) if isinstance(data, str) else None
    except (binascii.Error, ValueError, msgspec.DecodeError):
        return None
    return at(document, "metadata", "labels") if at(document, "kind") == KIND else None


def _promising(labels: object) -> set[str]:
    return {
        str(key) for key, each in mapping(labels).items() if each == SUPPORTED and str(key).startswith(tuple(_DEFAULTS))
    }


# -- the rules of this module ------------------------------------------------------------------------------------------


OBJECT_RULES = (RuleCheck(MA209, check_overrides),)
RULES = (*(each.rule for each in OBJECT_RULES), MA210)
