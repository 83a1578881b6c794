"""``polyarch explain``: why a pod is where it is, or what would become of one (PL-730 to PL-732).

``explain POD`` looks at a pod in the cluster and decides it anew, without writing anything. ``explain -f FILE`` does
the same for manifests, with a configuration that need not be applied anywhere. Both print what the roles would write,
because the same functions make it.
"""

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml
from cyclopts import App, Parameter
from rich.console import Console

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.explain.from_cluster import read_pod
from polyarch.cli.explain.from_files import Configuration, GivenPod, configuration_from, pods_from
from polyarch.cli.explain.text import print_text
from polyarch.cli.input.objects import read_documents
from polyarch.cli.output.logs import errors_only
from polyarch.kube.client.jsonpatch import apply_patch
from polyarch.kube.errors import ConfigurationError, KubernetesError
from polyarch.model.pod import Pod
from polyarch.oci.answer import Inspection
from polyarch.oci.auth.auth_files import FileCredentials, InvalidCredentialFile
from polyarch.oci.auth.credentials import CredentialStore
from polyarch.oci.mirrors.sources import Configuration as Mirrors
from polyarch.oci.mirrors.toml_files import InvalidConfiguration
from polyarch.oci.opening import Wiring, open_inspector
from polyarch.oci.platforms_file import AnswerFile, InvalidAnswers
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.oci.transport.tls import TrustSettings
from polyarch.placement.decide.decision import Decision, Finding, Progress
from polyarch.placement.decide.rules import Case, decide, examine
from polyarch.placement.result import explain as documents
from polyarch.placement.result.admission import admit
from polyarch.placement.result.outcome import Path as Way
from polyarch.placement.result.patch import admission_patch

Output = Literal["text", "json", "yaml", "patch"]
Stage = Literal["admission", "controller"]
Json = dict[str, Any]

EPILOGUE = """Examples:

- `polyarch explain web-7d4b -n shop` a pod in the cluster: what was decided, and what would be now
- `polyarch explain -f deploy.yaml --objects policy.yaml` manifests, before anything is applied
- `polyarch explain -f pod.yaml --platforms-file answers.yaml --offline -o patch` in CI

Nothing is written anywhere.

Exit codes:

- 0: all is well
- 1: what was decided is not what would be decided now, or a pod can run nowhere
- 2: the command line or a file it names is wrong
- 3: the cluster could not be asked, or an image whose platforms decide
"""

NOT_ASKED = ("transient", "limit")
"""Classes of failures that leave the command's question open."""
OFFLINE_MISS = "offline-miss"


class Explained(msgspec.Struct, frozen=True):
    """One pod's entry of the document, and what the exit code depends on."""

    entry: Json
    decision: Decision
    agrees: bool = True


def explain_pods(
    pod: Annotated[str | None, Parameter(help="A pod in the cluster: its name, or pod/NAME.")] = None,
    *,
    file: Annotated[
        list[str] | None,
        Parameter(name=["--file", "-f"], negative="", allow_leading_hyphen=True, help="Pods or workloads; - is stdin."),
    ] = None,
    objects: Annotated[
        list[str] | None, Parameter(negative="", help="Configuration, policy, namespaces, nodes to go by.")
    ] = None,
    platforms_file: Annotated[str | None, Parameter(help="Answers for images, instead of asking registries.")] = None,
    offline: Annotated[bool, Parameter(negative="", help="Ask no registry.")] = False,
    stage: Annotated[Stage, Parameter(help="Answer as the webhook, or as the controller.")] = "admission",
    cold: Annotated[bool, Parameter(negative="", help="As if no image were known yet.")] = False,
    namespace: Annotated[str | None, Parameter(name=["--namespace", "-n"])] = None,
    kubeconfig: Annotated[str | None, Parameter(help="Default: as kubectl.")] = None,
    context: Annotated[str | None, Parameter(help="A context of the kubeconfig.")] = None,
    registries_conf: Annotated[str | None, Parameter(help="Mirrors, blocked and insecure registries.")] = None,
    authfile: Annotated[str | None, Parameter(help="Credentials for registries.")] = None,
    ca: Annotated[list[str] | None, Parameter(negative="", help="Certificates (PEM) to trust.")] = None,
    output: Annotated[Output, Parameter(name=["--output", "-o"])] = "text",
) -> int:
    """Say why a pod is where it is, or what would become of it; returns the exit code."""
    if (pod is None) == (file is None):
        raise UsageError("explain takes either the name of a pod in the cluster, or -f with files; give one of them")
    errors_only()
    try:
        wiring = _wiring(platforms_file, offline=offline, registries_conf=registries_conf, ca=ca or ())
        credentials: CredentialStore = FileCredentials.load(authfile)
        if pod is not None:
            notes, found = asyncio.run(
                _in_cluster(pod, namespace, kubeconfig, context, wiring=wiring, credentials=credentials)
            )
        else:
            configuration = configuration_from(each for path in objects or () for each in read_documents(path))
            given = pods_from(
                (each for path in file or () for each in read_documents(path)), namespace=namespace or "default"
            )
            notes = configuration.notes
            found = asyncio.run(
                _in_files(given, configuration, stage, cold=cold, wiring=wiring, credentials=credentials)
            )
    except (InvalidSetting, InvalidConfiguration, InvalidCredentialFile, InvalidAnswers, ConfigurationError) as error:
        raise UsageError(f"explain: {error}") from None
    except KubernetesError as error:
        raise CouldNotComplete(f"explain: {error}") from None
    _print([each.entry for each in found], (*notes, *_missed(found)), output)
    return _exit_code(found, cold=cold)


async def _in_files(
    given: Sequence[GivenPod],
    configuration: Configuration,
    stage: Stage,
    *,
    cold: bool,
    wiring: Wiring,
    credentials: CredentialStore,
) -> list[Explained]:
    cases = [examine(configuration.facts(each.pod, each.namespace, stored=False)) for each in given]
    answers = {} if cold else await _answers(cases, wiring, credentials, bundles=stage == "controller")
    found = []
    for each, case in zip(given, cases, strict=True):
        explained = _at_admission(each.document, case, answers)
        if stage == "controller" and case.rule is None:
            explained = _at_controller(each, case, configuration, answers)
        found.append(msgspec.structs.replace(explained, entry={"source": each.source, **explained.entry}))
    return found


def _at_admission(document: Json, case: Case, answers: Mapping[str, Inspection]) -> Explained:
    decision = decide(case, answers)
    admission = admit(case, decision, controller_available=True)
    return Explained(documents.explain_admission(document, case, admission), decision)


def _at_controller(
    given: GivenPod, case: Case, configuration: Configuration, answers: Mapping[str, Inspection]
) -> Explained:
    """The pod is gated as the webhook would, and what the controller then makes of it when waiting is over."""
    gated = apply_patch(given.document, admission_patch(case, decide(case, {}), Way.GATED))
    stored = examine(configuration.facts(msgspec.convert(gated, Pod), given.namespace, stored=True))
    decision = decide(stored, answers, Progress.ENDED if answers else Progress.WAITING)
    return Explained(documents.explain_controller(gated, stored, decision), decision)


async def _in_cluster(
    name: str,
    namespace: str | None,
    kubeconfig: str | None,
    context: str | None,
    *,
    wiring: Wiring,
    credentials: CredentialStore,
) -> tuple[tuple[str, ...], list[Explained]]:
    seen = await read_pod(name, namespace=namespace, kubeconfig=kubeconfig, context=context, credentials=credentials)
    case = examine(seen.configuration.facts(seen.given.pod, seen.given.namespace, stored=seen.is_gated))
    answers = await _answers([case], wiring, seen.credentials, bundles=True)
    if seen.is_gated:
        decision = seen.now(case, answers)
        entry = documents.explain_controller(seen.given.document, case, decision)
        return seen.configuration.notes, [Explained(entry, decision)]
    decision = decide(case, answers, Progress.ENDED)
    entry = documents.explain_finished(seen.given.document, case, decision)
    return seen.configuration.notes, [Explained(entry, decision, entry["agrees"])]


async def _answers(
    cases: Iterable[Case], wiring: Wiring, credentials: CredentialStore, *, bundles: bool
) -> dict[str, Inspection]:
    """What all images say, each asked once. ``bundles``: indexes of a pod that would be impossible are looked at again,
    as the controller does, for they may be operator bundles (RG-046)."""
    cases = list(cases)
    uses = {use.text: use.reference for case in cases for use in case.images if use.reference is not None}
    async with open_inspector(wiring, credentials=credentials) as inspector:
        answers = dict(zip(uses, await inspector.inspect_many(uses.values()), strict=True))
        impossible = [case for case in cases if bundles and not documents.can_run(decide(case, answers))]
        indexes = {use.text for case in impossible for use in case.images if _is_index(answers.get(use.text))}
        again = [uses[text] for text in indexes]
        looked_at = await inspector.inspect_many(again, bundle="always")
        return answers | dict(zip(indexes, looked_at, strict=True))


def _is_index(answer: Inspection | None) -> bool:
    return answer is not None and answer.constrains and answer.kind == "index"


def _wiring(platforms_file: str | None, *, offline: bool, registries_conf: str | None, ca: Sequence[str]) -> Wiring:
    answers: AnswerFile | None = None
    if platforms_file is not None:
        try:
            content = yaml.safe_load(Path(platforms_file).read_bytes())
        except (OSError, yaml.YAMLError) as error:
            raise UsageError(f"--platforms-file {platforms_file}: {error}") from None
        answers = AnswerFile.from_mapping(content, origin=platforms_file)
    return Wiring(
        configuration=Mirrors.load(registries_conf),
        trust=TrustSettings.of(ca=ca),
        answers=answers,
        offline=offline,
    )


def _print(entries: list[Json], notes: Sequence[str], output: Output) -> None:
    document = documents.document(entries)
    match output:
        case "json":
            print(json.dumps(document, indent=2, ensure_ascii=False))
        case "yaml":
            print(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), end="")
        case "patch":
            patches = {f"{entry['namespace']}/{entry['name']}": entry["patch"] for entry in entries}
            print(json.dumps(next(iter(patches.values())) if len(entries) == 1 else patches, indent=2))
        case "text":
            print_text(entries, notes)
            return
    for note in notes:
        Console(stderr=True).print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)


def _exit_code(found: Iterable[Explained], *, cold: bool) -> int:
    """1: what was decided is not what would be decided now, or a pod can run nowhere. 3: an image could not be had."""
    open_ = False
    for each in found:
        is_open = any(_is_open(image) for image in each.decision.unresolved)
        if not documents.can_run(each.decision) or not (each.agrees or is_open):
            return 1
        open_ = open_ or is_open
    return 3 if open_ and not cold else 0


def _is_open(image: Finding) -> bool:
    """Nobody answered: another day the decision may be another one."""
    return image.is_pending or image.error_class in NOT_ASKED or image.note == OFFLINE_MISS


def _missed(found: Iterable[Explained]) -> list[str]:
    """What to do about images that nobody could be asked about."""
    missed = {image.text: None for each in found for image in each.decision.unresolved if image.note == OFFLINE_MISS}
    return [
        f"{text} has no answer in the platforms file, and --offline asks no registry: add it to the file, "
        f"as `polyarch inspect -o json {text}` prints it, or leave --offline out"
        for text in missed
    ]


explain = App(name="explain", help_epilogue=EPILOGUE)
explain.default(explain_pods)
