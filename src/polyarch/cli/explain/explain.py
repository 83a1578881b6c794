"""The work of ``polyarch explain``: reads pods, and prints what was decided about them, or would be."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.explain import nodes
from polyarch.cli.explain.pods import Configuration, GivenPod, configuration_from, pods_from, read_pod
from polyarch.cli.explain.tolerations import TolerationExplainer, tolerated
from polyarch.cli.images.pod_images import wiring_of
from polyarch.cli.images.resolve import how
from polyarch.cli.input.objects import documents_in
from polyarch.cli.options.common import USUAL_CLUSTER, ClusterFlags, Output, emit
from polyarch.cli.options.images import ImageOptions
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages, errors_only
from polyarch.cli.output.terminal import printable, styled
from polyarch.images.pod_images import ImageFacts, images_of
from polyarch.kube.errors import ConfigurationError, KubernetesError
from polyarch.kube.patches import apply_patch
from polyarch.objects import Pod
from polyarch.oci.auth.credential_stores import CredentialStore
from polyarch.oci.concurrency import map_concurrently
from polyarch.oci.image.deep_inspection import look_deeper
from polyarch.oci.inspection import Inspection
from polyarch.oci.inspector import InspectorOptions, open_inspector
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.placement import explain as documents
from polyarch.placement.admission import admit
from polyarch.placement.decision import LookupProgress, PlacementDecision
from polyarch.placement.patch import AdmissionPath as Way
from polyarch.placement.patch import admission_patch
from polyarch.placement.rules import ExaminedPod, decide, examine, images_of_requirement, own_requirement

Stage = Literal["admission", "controller"]
Json = dict[str, Any]
NOT_ASKED = ("transient", "limit")
"""Classes of failures that leave the command's question open."""
OFFLINE_MISS = "offline-miss"
SETTLED_AT_ONCE = 8


class ExplanationEntry(msgspec.Struct, frozen=True):
    """One pod's entry of the document, and what the exit code depends on."""

    entry: Json
    decision: PlacementDecision
    agrees: bool = True
    fits: bool = True
    """Some node takes it, or none is known."""
    can_run: bool = True
    """Some platform that the pod itself asks for has all of its images."""


class LookupOptions(NamedTuple):
    """How images are asked for."""

    wiring: InspectorOptions
    credentials: CredentialStore
    options: ImageOptions
    messages: Messages


@dataclass(frozen=True, kw_only=True)
class ExplainOptions:
    """The command line of ``polyarch explain`` without the options that it shares."""

    pod: str | None
    files: Sequence[str] = ()
    objects: Sequence[str] = ()
    stage: Stage = "admission"
    cold: bool = False
    namespace: str | None = None
    cluster: ClusterFlags = USUAL_CLUSTER


def run_explain(asked: ExplainOptions, images: ImageOptions, outputs: Sequence[Output], *, messages: Messages) -> int:
    """Decide anew and print; returns the exit code."""
    errors_only(verbose=messages.verbose)
    images.check()
    problems: list[UsageError] = []
    try:
        # The question is what would be decided now, so every tag is checked again.
        registries = LookupOptions(
            wiring_of(images, revalidate_interval=0.0), images.access.credentials(), images, messages
        )
        if asked.pod is not None:
            notes, found = asyncio.run(_in_cluster(asked, registries))
        else:
            configuration = configuration_from(documents_in(asked.objects, messages.remark))
            given, problems = pods_from(
                documents_in(asked.files, messages.remark), namespace=asked.namespace or "default"
            )
            notes = configuration.notes
            found = asyncio.run(_in_files(given, configuration, asked, registries))
    except (InvalidSetting, ConfigurationError) as error:
        raise UsageError(str(error)) from None
    except KubernetesError as error:
        raise CouldNotComplete(str(error)) from None
    emit(outputs, lambda form, colour: _rendered([each.entry for each in found], form, colour))
    for note in (*notes, *_missed(found), *_elsewhere(found)):
        messages.note(note)
    if problems:
        raise UsageError("\n".join(map(str, problems)))
    return _exit_code(found, cold=asked.cold)


async def _in_files(
    given: Sequence[GivenPod],
    configuration: Configuration,
    asked: ExplainOptions,
    registries: LookupOptions,
) -> list[ExplanationEntry]:
    at_controller = asked.stage == "controller"
    admissions = [nodes.admitted(each, configuration) for each in given]
    given = [each for each, _ in admissions]
    cases = [examine(configuration.facts(each.pod, each.namespace, stored=False)) for each in given]
    several = [tolerated(each, configuration) for each in given]
    pods = [each.pod for each in given] if configuration.machines else ()
    answers = (
        {} if asked.cold else await _answers(cases, registries, bundles=at_controller, tolerations=several, pods=pods)
    )
    found = []
    for (each, refused), case, tolerations in zip(admissions, cases, several, strict=True):
        explained = _at_admission(each.document, case, answers)
        if at_controller and case.rule is None:
            explained = _at_controller(each, case, configuration, answers)
        entry = _with(tolerations, explained.entry, answers)
        entry, fits = _on_nodes(entry, each, configuration, answers, refused=refused)
        explained = msgspec.structs.replace(explained, entry={"source": each.source, **entry}, fits=fits)
        found.append(_judged(explained, case, answers))
    return found


def _on_nodes(
    entry: Json,
    given: GivenPod,
    configuration: Configuration,
    answers: Mapping[str, Inspection],
    *,
    refused: str = "",
) -> tuple[Json, bool]:
    """The entry with what the nodes say, and whether one of them takes the pod."""
    found = nodes.nodes_of(entry, given, configuration, answers, refused=refused)
    entry = {**entry, "nodes": nodes.document(found), "refused": refused}
    if refused:
        entry = {**entry, "decision": {**entry["decision"], "message": f"Nothing comes of the pod: {refused}."}}
    return entry, not refused and (not found or any(each.fitting for each in found))


def _with(tolerations: TolerationExplainer | None, entry: Json, answers: Mapping[str, Inspection]) -> Json:
    """The entry with what is said of taints, if there is anything to say."""
    return entry if tolerations is None else {**entry, "tolerations": tolerations.explained(answers)}


def _at_admission(document: Json, case: ExaminedPod, answers: Mapping[str, Inspection]) -> ExplanationEntry:
    decision = decide(case, answers)
    admission = admit(case, decision, controller_available=True)
    return ExplanationEntry(documents.explain_admission(document, case, admission), decision)


def _at_controller(
    given: GivenPod, case: ExaminedPod, configuration: Configuration, answers: Mapping[str, Inspection]
) -> ExplanationEntry:
    """The pod is gated as the webhook would, and what the controller then makes of it when waiting is over."""
    gated = apply_patch(given.document, admission_patch(case, decide(case, {}), Way.GATED))
    stored = examine(configuration.facts(msgspec.convert(gated, Pod), given.namespace, stored=True))
    decision = decide(stored, answers, LookupProgress.ENDED if answers else LookupProgress.WAITING)
    return ExplanationEntry(documents.explain_controller(gated, stored, decision), decision)


async def _in_cluster(
    asked: ExplainOptions, registries: LookupOptions
) -> tuple[tuple[str, ...], list[ExplanationEntry]]:
    seen = await read_pod(
        asked.pod or "",
        namespace=asked.namespace,
        cluster=asked.cluster,
        credentials=registries.credentials,
    )
    registries = registries._replace(credentials=seen.credentials)
    case = examine(seen.configuration.facts(seen.given.pod, seen.given.namespace, stored=seen.is_gated))
    tolerations = tolerated(seen.given, seen.configuration, age=seen.age)
    pods = (seen.given.pod,) if seen.configuration.machines else ()
    answers = await _answers([case], registries, bundles=True, tolerations=[tolerations], pods=pods)
    if seen.is_gated:
        decision = seen.now(case, answers)
        entry = _with(tolerations, documents.explain_controller(seen.given.document, case, decision), answers)
        entry, fits = _on_nodes(entry, seen.given, seen.configuration, answers)
        return seen.configuration.notes, [_judged(ExplanationEntry(entry, decision, fits=fits), case, answers)]
    decision = decide(case, answers, LookupProgress.ENDED)
    entry = _with(tolerations, documents.explain_finished(seen.given.document, case, decision), answers)
    entry, fits = _on_nodes(entry, seen.given, seen.configuration, answers)
    if not seen.configuration.is_installed and entry["recorded"] is None:
        entry = _of_nobody(entry)
    explained = ExplanationEntry(entry, decision, entry["agrees"], fits or seen.is_bound)
    return seen.configuration.notes, [_judged(explained, case, answers)]


def _of_nobody(entry: Json) -> Json:
    """The entry for a cluster in which nothing places pods: what is said is what would be done."""
    told = entry["decision"]["message"]
    message = f"Nothing was done to the pod, since this cluster has no ClusterPodPlacementConfig; with one: {told}"
    return {**entry, "decision": {**entry["decision"], "message": message}, "agrees": True}


def _judged(explained: ExplanationEntry, case: ExaminedPod, answers: Mapping[str, Inspection]) -> ExplanationEntry:
    """With what is wrong with the architectures that the pod itself asks for, which placement leaves as they are."""
    requirement = own_requirement(case, answers)
    if not requirement.problem:
        return explained
    entry = {**explained.entry, "warnings": [*explained.entry["warnings"], requirement.problem]}
    return msgspec.structs.replace(explained, entry=entry, can_run=requirement.can_run)


async def _answers(
    cases: Iterable[ExaminedPod],
    registries: LookupOptions,
    *,
    bundles: bool,
    tolerations: Iterable[TolerationExplainer | None] = (),
    pods: Iterable[Pod] = (),
) -> dict[str, Inspection]:
    """What all images say, each asked once; tolerations, and whether a node takes a pod, may depend on images that
    placement does not need.

    ``bundles``: indexes of a pod that would be impossible are looked at again, as the controller does, for they may be
    operator bundles.
    """
    cases = list(cases)
    images = [use for case in cases for use in (case.images or images_of_requirement(case))]
    images += [use for each in tolerations if each is not None for use in each.case.images]
    images += [use for pod in pods for use in images_of(pod)]
    uses = {use.text: use.reference for use in images if use.reference is not None}
    async with open_inspector(registries.wiring, credentials=registries.credentials) as inspector:
        found = await inspector.inspect_many(uses.values(), fresh=True)
        depth = registries.options.deep
        if depth is not None:
            found = await map_concurrently(
                lambda answer: look_deeper(inspector.connection, answer, depth), found, at_once=SETTLED_AT_ONCE
            )
        for answer in found:
            registries.messages.detail(how(answer))
        answers = dict(zip(uses, found, strict=True))
        impossible = [case for case in cases if bundles and not documents.can_run(decide(case, answers))]
        indexes = {use.text for case in impossible for use in case.images if _is_index(answers.get(use.text))}
        again = [uses[text] for text in indexes]
        looked_at = await inspector.inspect_many(again, bundle="always")
        return answers | dict(zip(indexes, looked_at, strict=True))


def _is_index(answer: Inspection | None) -> bool:
    return answer is not None and answer.constrains and answer.kind == "index"


def _rendered(entries: list[Json], form: str, colour: bool) -> str:
    match form:
        case "text":
            return text_of(entries, colour=colour)
        case "patch":
            patches = {f"{entry['namespace']}/{entry['name']}": entry["patch"] for entry in entries}
            document = next(iter(patches.values())) if len(entries) == 1 else patches
            return json.dumps(document, indent=2) + "\n"
        case _:
            return document_text(documents.document(entries), form)


def _exit_code(found: Iterable[ExplanationEntry], *, cold: bool) -> int:
    """1: what was decided is not what would be decided now, or a pod can run nowhere. 3: an image could not be had."""
    open_ = False
    for each in found:
        is_open = any(_is_open(image) for image in each.decision.unresolved)
        runs = each.fits and each.can_run and documents.can_run(each.decision)
        if not runs or not (each.agrees or is_open):
            return 1
        open_ = open_ or is_open
    return 3 if open_ and not cold else 0


def _is_open(image: ImageFacts) -> bool:
    """Nobody answered: another day the decision may be another one."""
    return image.is_pending or image.error_class in NOT_ASKED or image.note == OFFLINE_MISS


def _elsewhere(found: Iterable[ExplanationEntry]) -> list[str]:
    """What to check if images without an answer make the decision differ: this machine may not be set up as the roles.

    An open question needs no such hint: the exit code 3 and the image's row say that nobody answered.
    """
    differ = [each.decision.unresolved for each in found if not each.agrees]
    if not any(unresolved and not any(map(_is_open, unresolved)) for unresolved in differ):
        return []
    hint = (
        "the images were looked up from this machine; if the cluster reaches its registries in another way, "
        "give --registries-conf and --ca as the operator has them"
    )
    return [hint]


def _missed(found: Iterable[ExplanationEntry]) -> list[str]:
    """What to do about images that nobody could be asked about."""
    missed = {image.text: None for each in found for image in each.decision.unresolved if image.note == OFFLINE_MISS}
    return [
        f"--offline asks no registry, and no platforms file names {text}; give one with --platforms-file "
        f"(`polyarch inspect -o json {text}` prints it), or leave out --offline"
        for text in missed
    ]


# -- text for people: one block per pod, what decided first, what is written after it


JsonObject = Mapping[str, Any]
_STYLES = {"inline": "green", "gated": "yellow", "audit": "cyan", "ignored": "dim", "unavailable": "red"}


class _Row(NamedTuple):
    """What is said, in parts with a style each. No line is wrapped: in a pipe it is as long as it is."""

    name: str
    parts: tuple[tuple[str, str], ...]


def text_of(entries: Iterable[JsonObject], *, colour: bool = False) -> str:
    """A block for each pod."""
    return "\n".join(_pod(entry, colour) for entry in entries)


def _pod(entry: JsonObject, colour: bool) -> str:
    title = styled(printable(f"{entry['namespace']}/{entry['name']}"), "bold", colour=colour)
    if source := entry.get("source"):
        title += styled(printable(f"  ({source})"), "dim", colour=colour)
    rows = list(_rows(entry))
    width = max(len(row.name) for row in rows)
    lines = [
        f"{styled(row.name.ljust(width), 'dim', colour=colour)}  "
        + "".join(styled(printable(text), style, colour=colour) for text, style in row.parts)
        for row in rows
    ]
    return "".join(f"{line.rstrip()}\n" for line in (title, *lines))


def _rows(entry: JsonObject) -> Iterator[_Row]:
    decision = entry["decision"]
    yield _row("path", entry["path"], _STYLES.get(entry["path"], ""))
    rule = decision["rule"] if decision["rule"] != decision["reason"] else None
    yield _row("decision", decision["reason"] + (f" ({rule})" if rule else ""))
    yield _row("", decision["message"])
    if (agrees := entry.get("agrees")) is not None:
        recorded = entry["recorded"] or {"reason": "nothing"}
        was = " ".join((recorded["reason"], ", ".join(recorded.get("arch") or ()))).strip()
        verdict, style = ("the same as now", "") if agrees else ("differs from now", "red")
        yield _row("recorded", f"{was}: {verdict}", style)
    for number, image in enumerate(decision["images"]):
        yield _Row("  images" if not number else "", tuple(_image(image)))
    for what in ("required", "preferred"):
        yield from _several(what, _changed(entry[what]["before"], entry[what]["after"]))
    labels = [f"{key}={value}" for key, value in entry["labels"].items() if key.startswith("multiarch.openshift.io/")]
    yield from _several("labels", labels)
    yield from _several("gates", entry["gates"])
    if (tolerations := entry.get("tolerations")) is not None:
        yield _row("taints", tolerations["reason"])
        yield _row("", tolerations["message"])
        yield from (_row("", _taint(each)) for each in tolerations["nodes"])
    if refused := entry.get("refused"):
        yield _row("refused", refused, "red")
    elif rows := entry.get("nodes"):
        yield from _several("nodes", map(nodes.row_of, rows))
    yield from _several("warnings", entry["warnings"])
    yield from _several("events", [f"{event['type']} {event['reason']}: {event['note']}" for event in entry["events"]])
    if (waiting := entry["next"]) is not None:
        yield _row("next", _next(waiting))


def _row(name: str, text: str, style: str = "") -> _Row:
    return _Row(f"  {name}" if name else "", ((text, style),))


def _several(name: str, lines: Iterable[str]) -> Iterator[_Row]:
    for number, line in enumerate(lines):
        yield _row(name if not number else "", line)


def _image(image: JsonObject) -> Iterator[tuple[str, str]]:
    known = ", ".join(image["platforms"]) or f"{image['verdict']} ({image['note']})"
    yield f"{image['image']}  {known}", ""
    if image["stale"]:
        yield "  an earlier answer, the registry does not respond", "yellow"
    if image["problem"]:
        yield f"  {image['problem']}", "red"


def _changed(before: Any, after: Any) -> list[str]:
    if before == after:
        return [*_terms(before), "(unchanged)"] if before else []
    return [*(f"- {term}" for term in _terms(before)), *(f"+ {term}" for term in _terms(after))]


def _terms(affinity: Any) -> list[str]:
    """One line per term."""
    if not affinity:
        return []
    terms = (affinity.get("nodeSelectorTerms") or []) if isinstance(affinity, dict) else affinity
    lines = []
    for term in terms:
        preference = term.get("preference", term) or {}
        expressions = [*(preference.get("matchExpressions") or ()), *(preference.get("matchFields") or ())]
        texts = [
            " ".join((each.get("key", ""), each.get("operator", ""), ",".join(each.get("values") or ()))).strip()
            for each in expressions
        ]
        weight = f"{term['weight']}: " if "weight" in term else ""
        lines.append(weight + (" and ".join(texts) or "an empty term, which matches no node"))
    return lines


def _taint(row: JsonObject) -> str:
    """One architecture of nodes: its taint, and what covers it."""
    of = f"{row['architecture']} ({row['nodes']} {'node' if row['nodes'] == 1 else 'nodes'})"
    if row["taint"] is None:
        return f"{of}: no taint"
    taint = f"{of}: {row['taint']}" + (f" on {row['tainted']}" if row["tainted"] != row["nodes"] else "")
    if row["toleratedBy"] is not None:
        return f"{taint}: tolerated by {_toleration(row['toleratedBy'])}"
    return f"{taint}: {'gets a toleration' if row['added'] else 'not tolerated'}"


def _toleration(toleration: JsonObject) -> str:
    parts = (toleration.get(name, "") for name in ("key", "operator", "value", "effect"))
    return " ".join(part for part in parts if part)


def _next(waiting: JsonObject) -> str:
    images = f" ({', '.join(waiting['images'])})" if waiting["images"] else ""
    until = f", for at most {waiting['until']}" if waiting["until"] else ""
    then = f", then {waiting['then']}" if waiting["then"] else ""
    return f"waits for {waiting['waitsFor']}{images}{until}{then}"
