"""The rules for a document, its file, or an edit.

Pure.
"""

from collections.abc import Iterator
from typing import Any

from polyarch.kube.patches import pointer
from polyarch.manifests.edit.style import is_json
from polyarch.manifests.finding import NO_OBJECT, Finding, ObjectReference, Repair, Rule, Severity, Span, fingerprint
from polyarch.manifests.operations import Add, Remove, Rename, Replace, TreeOperation
from polyarch.manifests.rules.facts import FindingDraft, ObjectFacts, RuleCheck
from polyarch.manifests.scan import kinds
from polyarch.manifests.scan.nodes import find, get
from polyarch.manifests.scan.pod_specs import PATCHED, KubeObject, unknown_images
from polyarch.manifests.scan.scanning import Duplicate, Scan
from polyarch.manifests.scan.text import SourceText

# -- MA117: obsolete objects of our own kinds --------------------------------------------------------------------------


MA117 = Rule(
    id="MA117",
    severity=Severity.ERROR,
    title="A polyarch or multiarch object is obsolete",
    meaning="PodPlacementConfig of multiarch.openshift.io/v1alpha1 was the cluster-wide configuration of a preview. "
    "ClusterPodPlacementConfig v1beta1 replaces it.",
    fix="Rewrites the object and adds a PlacementPolicy that keeps the exclusions of the preview.",
)

_GROUP = "multiarch.openshift.io"
_NAME = "cluster"

POLICY: dict[str, Any] = {
    "apiVersion": "polyarch.dev/v1alpha1",
    "kind": "PlacementPolicy",
    "metadata": {"name": _NAME},
    "spec": {"excludedNamespaces": ["openshift-*", "hypershift-*"]},
}
"""The namespaces that the preview excluded; the current default does not."""


def check_obsolete_object(facts: ObjectFacts) -> Iterator[FindingDraft]:
    subject = facts.object
    if subject.kind != "PodPlacementConfig" or subject.api_version != f"{_GROUP}/v1alpha1":
        return
    node = get(subject.node, "apiVersion")
    if node is None or subject.patched_by is not None:
        return
    policy = "PlacementPolicy" in subject.document.source.text
    number = subject.document.index
    repair = Repair(tuple(_rewritten_configuration(subject)), document=number)
    if not policy and is_json(subject.document):
        repair = Repair((), note="a JSON file holds one document only, and it takes a second one", document=number)
    yield FindingDraft(
        rule=MA117,
        message=f"{subject.reference} of {subject.api_version} was the cluster-wide configuration of a preview; "
        f"ClusterPodPlacementConfig of {_GROUP}/v1beta1, named {_NAME}, replaces it",
        hint="polyarch fix rewrites it and adds a PlacementPolicy that keeps openshift-* and hypershift-* excluded",
        node=node,
        pointer=subject.pointer + pointer("apiVersion"),
        repair=repair,
        documents=() if policy or not repair.operations else (POLICY,),
    )


def _rewritten_configuration(subject: KubeObject) -> Iterator[TreeOperation]:
    where, spec = subject.pointer, get(subject.node, "spec")
    yield Replace(f"{where}/apiVersion", f"{_GROUP}/v1beta1")
    yield Replace(f"{where}/kind", "ClusterPodPlacementConfig")
    if subject.metadata is None:
        yield Add(f"{where}/metadata", {"name": _NAME})
    elif get(subject.metadata, "name") is None:
        yield Add(f"{where}/metadata/name", _NAME)
    elif subject.name != _NAME:
        yield Replace(f"{where}/metadata/name", _NAME)
    if find(subject.node, "metadata", "namespace") is not None:
        yield Remove(f"{where}/metadata/namespace")
    if get(spec, "logVerbosityLevel") is not None:
        if get(spec, "logVerbosity") is None:
            yield Rename(f"{where}/spec/logVerbosityLevel", "logVerbosity")
        else:
            yield Remove(f"{where}/spec/logVerbosityLevel")


# -- MA901: a template that must be rendered to become YAML ------------------------------------------------------------


MA901 = Rule(
    id="MA901",
    severity=Severity.INFO,
    title="A file is a template",
    meaning="The file is a template, not plain YAML, and is not checked. Render it first.",
)


def check_template(scan: Scan) -> Iterator[Finding]:
    if scan.template is not None:
        yield Finding(
            rule=MA901.id,
            severity=MA901.severity,
            message=f"{scan.source.path} is a template, not plain YAML, and was not checked",
            hint="render it first, for example: helm template CHART | polyarch lint -",
            file=scan.source.path,
            span=scan.source.span(scan.template, scan.template + 2),
        )


# -- MA902: a file does not parse, or a key that matters is duplicated -------------------------------------------------


MA902 = Rule(
    id="MA902",
    severity=Severity.ERROR,
    title="A file does not parse",
    meaning="The text is not valid YAML (syntax), or a key that matters is duplicated (duplicate-key).",
    subs=("syntax", "duplicate-key"),
)


def check_unparsed(scan: Scan) -> Iterator[Finding]:
    source, problem = scan.source, scan.syntax
    if problem is not None:
        yield Finding(
            rule=MA902.id,
            sub="syntax",
            severity=MA902.severity,
            message=f"{source.path} does not parse as YAML: {problem}",
            hint="correct the text here; nothing else in the file was checked",
            file=source.path,
            span=source.span(problem.offset, problem.offset),
        )
    yield from dict.fromkeys(map(_duplicate_key, scan.duplicates))


def _duplicate_key(found: Duplicate) -> Finding:
    subject, document = found.object, found.object.document
    span = document.span(found.node)
    return Finding(
        rule=MA902.id,
        sub="duplicate-key",
        severity=MA902.severity,
        message=f"{subject.reference} has the key {found.key} twice, again at line "
        f"{span.line}, column {span.column}; parsers disagree about which one counts",
        hint="remove one of the two",
        file=document.source.path,
        span=span,
        object=subject.reference,
        path=found.pointer,
        document=document.index,
        origin=subject.origin,
    )


# -- MA903: suppressions and baseline entries that match nothing -------------------------------------------------------
# ``suppression`` and ``baseline`` find them; both report them with this rule.


MA903 = Rule(
    id="MA903",
    severity=Severity.INFO,
    title="A suppression matches nothing",
    meaning="A comment, an annotation or a baseline entry suppresses a finding that does not exist.",
)


def unmatched(
    message: str,
    hint: str,
    *,
    file: str,
    span: Span,
    mark: str,
    object: ObjectReference = NO_OBJECT,
    path: str = "",
    document: int = 0,
) -> Finding:
    """The finding; ``mark`` distinguishes its fingerprint from others of the file."""
    return Finding(
        rule=MA903.id,
        severity=MA903.severity,
        message=message,
        hint=hint,
        file=file,
        span=span,
        object=object,
        path=path,
        document=document,
        fingerprint=fingerprint(MA903.id, mark, subject=object, file=file, document=document, named_path=path),
    )


# -- MA904: an edit whose result could not be verified -----------------------------------------------------------------


MA904 = Rule(
    id="MA904",
    severity=Severity.ERROR,
    title="An edit could not be verified",
    meaning="The edited text does not parse to the intended objects. The file was left unchanged; please report it.",
)


def unproven(source: SourceText, problem: str) -> Finding:
    """The finding for a file left unchanged; ``problem`` says why verification failed."""
    return Finding(
        rule=MA904.id,
        severity=MA904.severity,
        message=f"{source.path} was left unchanged, because its edit could not be verified: {problem}",
        hint="edit it by hand, and please report this with the file",
        file=source.path,
        span=source.span(0, 0),
        fingerprint=fingerprint(MA904.id, "", subject=NO_OBJECT, file=source.path, document=0, named_path=""),
    )


# -- MA905: an image in a kind that nobody has told about --------------------------------------------------------------


MA905 = Rule(
    id="MA905",
    severity=Severity.INFO,
    title="Something that may run was not checked",
    meaning="The object is of a kind that polyarch does not know, and something in it looks like an image "
    "(unknown-kind, an error with --require); or a podSpecPatch may change what its pods require (patched). Exclude "
    "the rule where such objects run nothing.",
    subs=("unknown-kind", "patched"),
)


def check_unchecked(facts: ObjectFacts) -> Iterator[FindingDraft]:
    """Each object is named once."""
    subject = facts.object
    patched = next((each for each in facts.pods if each.pod_spec.apart == PATCHED), None)
    if patched is not None:
        yield FindingDraft(
            rule=MA905,
            sub="patched",
            message=f"{patched.subject}: {PATCHED}, so its node constraints were not checked",
            hint="compare the patch with the platforms of its images",
            node=patched.pod_spec.node,
            pointer=patched.pod_spec.pointer,
        )
    if not (subject.kind and subject.api_version) or subject.patched_by is not None:
        return
    if kinds.is_known(subject.kind, subject.group) or kinds.runs_nothing(subject.group):
        return
    if "mage" not in subject.document.chunk:
        return
    taken = {id(image.node) for each in facts.pods for image in each.pod_spec.images}
    found = unknown_images(subject.node, subject.pointer, taken)
    if not found:
        return
    text, node, where = found[0]
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    yield FindingDraft(
        rule=MA905,
        sub="unknown-kind",
        severity=Severity.ERROR if facts.options.require else None,
        message=f"{subject.reference} of {subject.api_version} names {text}{more}, which was not checked: "
        "polyarch does not know the kind",
        hint=f"ask polyarch inspect {text}, or exclude MA905 in .polyarch.yaml",
        node=node,
        pointer=where,
        images=(text,),
    )


# -- the rules of this module ------------------------------------------------------------------------------------------


OBJECT_RULES = (RuleCheck(MA117, check_obsolete_object), RuleCheck(MA905, check_unchecked))
DOCUMENT_RULES = (
    RuleCheck(MA901, check_template),
    RuleCheck(MA902, check_unparsed),
)
RULES = (*(each.rule for each in OBJECT_RULES), *(each.rule for each in DOCUMENT_RULES), MA903, MA904)
