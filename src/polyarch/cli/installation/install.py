"""The work of ``polyarch install``: checks, then one object after another, then a summary."""

import asyncio
import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from polyarch import __version__
from polyarch.cli.cluster import on_cluster
from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.input.objects import load_yaml
from polyarch.cli.options.common import ClusterFlags, Output, emit
from polyarch.cli.output.documents import document_text, manifest_text
from polyarch.cli.output.messages import Messages
from polyarch.installation import apply, preflight, wait
from polyarch.installation.apply import AppliedObject, ApplyRefused
from polyarch.installation.objects import (
    COMPONENTS,
    UnknownComponent,
    component,
    documents,
    images,
    needs_version,
    remembering,
)
from polyarch.installation.preflight import PreflightCheck, git_version
from polyarch.installation.settings import CredentialProviders, Image, InstallationSettings, Registries, of_record
from polyarch.kube.client import Client
from polyarch.kube.errors import KubernetesError
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import PODS, ObjectRef
from polyarch.objects import Pod
from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.operator import registry_settings
from polyarch.operator.settings import MAX_REPLICAS

if TYPE_CHECKING:
    from polyarch.oci.inspection import Inspection

Document = dict[str, Any]
SCHEMA_VERSION = "polyarch.dev/install/v1"
MARKS = {"ok": "✓", "note": "!", "refused": "✗"}
OPENSHIFT = "config.openshift.io"


class InstallRunOptions(NamedTuple):
    """How it is done."""

    dry_run: Literal["", "client", "server"] = ""
    wait: float | None = None
    """Seconds to wait until it is available; None: not at all."""


class InstallResult(msgspec.Struct, kw_only=True):
    """What came of it; filled while it is done, so that it can be printed wherever it ends."""

    settings: InstallationSettings
    namespace: str
    dry_run: str
    checks: tuple[PreflightCheck, ...] = ()
    applied: list[AppliedObject] = []
    refused: ApplyRefused | None = None
    available: bool | None = None
    problem: str = ""


def print_images(settings: InstallationSettings, cluster: ClusterFlags, chosen: Sequence[Output]) -> int:
    """One image a line. The cluster is asked for its version if an image has the same one."""
    found = [each.reference for each in images(settings, version=_version_for_images(settings, cluster))]

    def render(form: str, colour: bool) -> str:
        if form == "text":
            return "".join(f"{each}\n" for each in found)
        return document_text({"schemaVersion": SCHEMA_VERSION, "version": __version__, "images": found}, form)

    emit(chosen, render)
    return 0


def _version_for_images(settings: InstallationSettings, cluster: ClusterFlags) -> str:
    """``gitVersion`` of the API server; empty if no image depends on it."""
    if not needs_version(settings):
        return ""
    try:
        return asyncio.run(on_cluster("install", cluster, git_version))
    except (CouldNotComplete, UsageError) as error:
        raise CouldNotComplete(
            f"{error}; the kube-scheduler has the version of the cluster: name a cluster that answers (--kubeconfig, "
            "--context), or its image with numa.scheduler.imageSpec in the values"
        ) from None


def print_manifests(settings: InstallationSettings, namespace: str, chosen: Sequence[Output]) -> int:
    """YAML documents in the order of applying; with ``-o json`` a List."""
    made = documents(settings, namespace=namespace)

    def render(form: str, colour: bool) -> str:
        return (
            document_text({"apiVersion": "v1", "kind": "List", "items": made}, form)
            if form == "json"
            else manifest_text(made)
        )

    emit(chosen, render)
    return 0


def install(
    settings: InstallationSettings,
    namespace: str,
    manner: InstallRunOptions,
    cluster: ClusterFlags,
    chosen: Sequence[Output],
    *,
    messages: Messages,
) -> int:
    """Returns the exit code. A failure is printed with what was done until then."""
    outcome = InstallResult(settings=settings, namespace=namespace, dry_run=manner.dry_run)
    if manner.dry_run == "client":
        outcome.applied = [
            AppliedObject(preflight.ref_of(each), "untried") for each in documents(settings, namespace=namespace)
        ]
    else:
        asyncio.run(on_cluster("install", cluster, lambda client: _install(client, outcome, manner, messages)))
    emit(chosen, lambda form, colour: _text(outcome) if form == "text" else document_text(_document(outcome), form))
    if outcome.problem:
        raise CouldNotComplete(outcome.problem)
    return 0


async def documents_for(client: Client, settings: InstallationSettings, namespace: str) -> tuple[Document, ...]:
    """The documents for this cluster; they remember the values as they were given."""
    found = settings
    if settings.openshift is None:
        found = msgspec.structs.replace(settings, openshift=bool(await client.discover(OPENSHIFT)))
    return remembering(documents(found, namespace=namespace), settings)


async def _install(client: Client, outcome: InstallResult, manner: InstallRunOptions, messages: Messages) -> None:
    wanted = await documents_for(client, outcome.settings, outcome.namespace)
    facts = await preflight.gather(client, wanted)
    outcome.checks = preflight.checks(facts, namespace=outcome.namespace)
    if "placement" in outcome.settings.components or "taints" in outcome.settings.components:
        outcome.checks += await images_check(client, outcome.settings)
    tell_checks(outcome.checks, messages)
    if any(check.outcome == "refused" for check in outcome.checks):
        outcome.problem = "install: nothing was written, because a check failed; see above"
        return
    with messages.progress("Installing", len(wanted)) as progress:

        def tell(applied: AppliedObject) -> None:
            outcome.applied.append(applied)
            if applied.verb != "unchanged":
                taken = f" ({'; '.join(applied.taken)}: taken over)" if applied.taken else ""
                progress.remark(f"{_shown(applied.ref)} {_word(applied, outcome.dry_run)}{taken}")
            progress.advance()

        try:
            await apply.apply_all(client, wanted, facts, dry_run=bool(manner.dry_run), tell=tell)
        except ApplyRefused as error:
            outcome.refused = error
            outcome.problem = f"install: {_shown(error.ref)}: {error.problem}; {error.action}"
            return
    if manner.wait is not None:
        switched_on = {each.ref.resource for each in outcome.applied}
        try:
            await wait.available(
                client, outcome.namespace, switched_on=switched_on, seconds=manner.wait, tell=messages.remark
            )
            outcome.available = True
        except wait.WaitTimeout as error:
            outcome.available = False
            outcome.problem = f"install: {error}; kubectl get pods -n {outcome.namespace} shows more"


# -- images that polyarch will not be able to read ---------------------------------------------------------------------


CHECKED_PODS: Final = 500
"""Pods whose images are looked at: the first page of the cluster's."""
CHECK_SECONDS: Final = 10.0
"""The longest that registries have for it."""


async def images_check(client: Client, settings: InstallationSettings) -> tuple[PreflightCheck, ...]:
    """How many images of pods without a pull secret polyarch could not read, as it is going to be installed.

    Registries are asked from here, without credentials, by the mirrors and CAs of the values. Images that a credential
    plugin of the values matches are left out, and all are with a global pull secret or a ConfigMap of the user's: what
    these open is seen in the cluster alone. Nothing is said where there are no such pods, or if they may not be listed.
    """
    from polyarch.images.pod_images import cures, image_facts, images_of, unread_images

    if settings.registries.global_pull_secret is not None or settings.registries.config_map:
        return ()
    try:
        page = await client.list_page(PODS, ListOptions(), type=Pod, limit=CHECKED_PODS)
    except KubernetesError:
        return ()
    open_to_all = [each for each in page.objects if not each.spec.image_pull_secrets and not _is_of_system(each)]
    uses = {use.text: use for pod in open_to_all for use in images_of(pod) if use.reference is not None}
    plugins = _matched_by_plugins(settings.registries)
    uses = {text: use for text, use in uses.items() if not (use.never or plugins(use.reference))}
    if not uses:
        return ()
    answers = await _inspected(settings.registries, [use.reference for use in uses.values() if use.reference])
    asked = [use for use in uses.values() if use.reference in answers]
    inspections = {use.text: answers[use.reference] for use in asked if use.reference is not None}
    unread = unread_images(image_facts(tuple(asked), inspections, final=True, stale_for=0.0))
    what = (
        f"{len(asked)} images of pods without a pull secret" if len(asked) != 1 else "the image without a pull secret"
    )
    if not unread:
        return (PreflightCheck("Images", "ok", f"{what} can be read"),)
    counts = ", ".join(f"{len(images)} {how}" for how, images in unread.items())
    message = f"of {what} polyarch could not read {sum(map(len, unread.values()))}: {counts}"
    return (PreflightCheck("Images", "note", message, cures(unread)),)


def _is_of_system(pod: Pod) -> bool:
    return pod.metadata.namespace.startswith(("kube-", "openshift-"))


def _matched_by_plugins(registries: Registries) -> Callable[[Reference | None], bool]:
    """Whether a plugin of the values gives credentials for an image."""
    text = registries.credential_providers.configuration
    if not text:
        return lambda _: False
    from polyarch.oci.auth.credential_plugins import ImagePattern

    configuration = registry_settings.providers_of(text.encode(), directory="/", origin="")
    usable = [provider for provider in configuration.providers if not provider.needs_token]
    texts = [text for provider in usable for text in provider.match_images]
    patterns = [pattern for pattern in map(ImagePattern.of, texts) if pattern is not None]

    def matched(reference: Reference | None) -> bool:
        return reference is not None and any(
            each.matches(reference.registry, reference.repository) for each in patterns
        )

    return matched


async def _inspected(registries: Registries, references: Sequence[Reference]) -> "dict[Reference, Inspection]":
    """What registries answer in time, to anybody."""
    from polyarch.oci.concurrency import map_concurrently
    from polyarch.oci.inspector import InspectorOptions, open_inspector
    from polyarch.oci.mirror_files import parse_registries_conf, table_of
    from polyarch.oci.pull_sources import Configuration
    from polyarch.oci.settings import CLUSTER
    from polyarch.oci.transport.addresses import AddressPolicy
    from polyarch.oci.transport.tls import TrustSettings

    conf = parse_registries_conf(table_of(registries.configuration.encode(), "registries.configuration"))
    options = InspectorOptions(
        settings=CLUSTER,
        configuration=Configuration(registries=conf.registries, search=conf.search or (), aliases=conf.aliases),
        policy=AddressPolicy.of("cluster", allow=registries.allow_addresses, deny=registries.deny_addresses),
        trust=TrustSettings(ca_data=registries.authorities),
    )
    found: dict[Reference, Inspection] = {}
    async with open_inspector(options) as inspector:

        async def one(reference: Reference) -> None:
            found[reference] = await inspector.inspect(reference)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CHECK_SECONDS):
                await map_concurrently(one, references, at_once=inspector.settings.requests)
    return found


def tell_checks(checks: Sequence[PreflightCheck], messages: Messages) -> None:
    """One line each."""
    for check in checks:
        action = f"; {check.action}" if check.action else ""
        messages.remark(f"{MARKS[check.outcome]} {check.name}: {check.message}{action}")


def _shown(ref: ObjectRef) -> str:
    return f"{ref.resource.kind} {ref.key}"


def _word(applied: AppliedObject, dry_run: str) -> str:
    if applied.verb == "untried":
        return "would be applied" if dry_run == "client" else "would be created (cannot be tried before others exist)"
    return f"would be {applied.verb}" if dry_run else applied.verb


def _text(outcome: InstallResult) -> str:
    if outcome.problem:
        return ""
    if outcome.dry_run == "client":
        return "".join(f"{_shown(each.ref)} {_word(each, outcome.dry_run)}\n" for each in outcome.applied)
    count = {verb: sum(each.verb == verb for each in outcome.applied) for verb in ("created", "configured", "untried")}
    changed = [f"{number} {'not tried' if verb == 'untried' else verb}" for verb, number in count.items() if number]
    what = f"polyarch {__version__} in namespace {outcome.namespace}"
    if outcome.dry_run:
        return f"{what}: a dry run; {', '.join(changed) or 'nothing would change'}\n"
    if not changed:
        return f"{what}: nothing to change\n"
    state = "; it is available" if outcome.available else ""
    return f"{what}: {', '.join(changed)}{state}\n"


def _document(outcome: InstallResult) -> dict[str, Any]:
    return {
        "schemaVersion": SCHEMA_VERSION,
        "version": __version__,
        "namespace": outcome.namespace,
        "image": outcome.settings.image.reference,
        "components": list(outcome.settings.components),
        "dryRun": outcome.dry_run,
        "checks": [msgspec.to_builtins(each) for each in outcome.checks],
        "objects": [each.ref.document() | {"result": each.verb, "taken": list(each.taken)} for each in outcome.applied],
        "changed": sum(each.verb in ("created", "configured") for each in outcome.applied),
        "available": outcome.available,
        "problem": outcome.problem,
    }


# -- settings from ``--values`` and the flags; a flag wins over the file


Values = dict[str, Any]
CHART_ONLY: Final = ("global", "enabled", "crds", "dashboards")
"""Values of the chart that say something to Helm alone: one file may serve both."""
RECORDED: Final = "the values of the installation, as it remembers them"


def settings(
    file: str | None,
    *,
    components: Sequence[str] = (),
    image: str = "",
    replicas: int | None = None,
    earlier: InstallationSettings | None = None,
) -> InstallationSettings:
    """``UsageError`` names the value that is wrong, and where it came from. ``earlier``: used without a file."""
    for name in components:
        _component(name, "--component")
    if file is None:
        found = earlier or InstallationSettings()
        _check(found, RECORDED)
    else:
        values: Values = load_yaml("--values", file, expected="a mapping of values") or {}
        if not isinstance(values, dict):
            raise UsageError(f"--values {file}: expected a mapping of values, not a {type(values).__name__}")
        _check_components(values.get("components"), f"--values {file}")
        values = {name: value for name, value in values.items() if name not in CHART_ONLY}
        found = _converted(values, f"--values {file}")
        _check(found, f"--values {file}")
    if components:
        found = msgspec.structs.replace(found, components=tuple(dict.fromkeys(components)))
    if image:
        found = msgspec.structs.replace(found, image=_image(found, image))
    if replicas is not None:
        if not 1 <= replicas <= MAX_REPLICAS:
            raise UsageError(f"--replicas {replicas}: expected a number from 1 to {MAX_REPLICAS}")
        several = dict.fromkeys(("webhook_replicas", "controller_replicas", "handler_replicas"), replicas)
        found = msgspec.structs.replace(
            found,
            operator=msgspec.structs.replace(found.operator, replicas=replicas),
            placement=msgspec.structs.replace(found.placement, **several),
            taints=msgspec.structs.replace(found.taints, replicas=replicas),
            builds=msgspec.structs.replace(found.builds, replicas=replicas),
        )
    return found


def earlier_settings(record: str) -> InstallationSettings:
    """The values that an installation remembers. ``UsageError`` if this version does not take one of them."""
    try:
        return of_record(record)
    except msgspec.ValidationError as error:
        problem = _plain(str(error), msgspec.json.decode(record))
    raise UsageError(f"{RECORDED}: {problem}; give corrected ones with --values")


def _converted(values: Values, origin: str) -> InstallationSettings:
    try:
        return msgspec.convert(values, InstallationSettings)
    except msgspec.ValidationError as error:
        raise UsageError(f"{origin}: {_plain(str(error), values)}") from None


def _check(given: InstallationSettings, origin: str) -> None:
    """What nodes or roles would refuse later is refused before anything is written."""
    whole = msgspec.structs.replace(given, components=tuple(COMPONENTS))  # flags may turn on what the values describe
    for image in images(whole):
        try:
            parse(image.reference)
        except InvalidReference as error:
            raise UsageError(f"{origin}: {image.value}: {error}") from None
    if wrong := _wrong_registries(given.registries):
        raise UsageError(f"{origin}: {wrong}")


def _wrong_registries(given: Registries) -> str:
    """The first value that a role would refuse as it starts, and why; empty: none."""
    wrong = [
        f"registries.{name}[{index}]: {problem}"
        for name, ranges in (("allowAddresses", given.allow_addresses), ("denyAddresses", given.deny_addresses))
        for index, text in enumerate(ranges)
        if (problem := registry_settings.wrong_range(text))
    ]
    if given.configuration:
        wrong.append(registry_settings.wrong_configuration(given.configuration.encode(), "registries.configuration"))
    if given.authorities:
        wrong.append(registry_settings.wrong_authorities(given.authorities.encode(), "registries.authorities"))
    wrong.append(_wrong_providers(given.credential_providers))
    return next(filter(None, wrong), "")


def _wrong_providers(given: CredentialProviders) -> str:
    """What is wrong with the credential plugins; empty: nothing."""
    place = "registries.credentialProviders"
    if problem := registry_settings.wrong_providers_place(given.image, given.directory, given.mount):
        return f"{place}.{problem}"
    if given.configuration and not (given.image or given.directory):
        return f"{place}: say where the plugins are: an image, or the directory on nodes or in polyarch's own image"
    if not given.configuration:
        return ""
    return registry_settings.wrong_providers(given.configuration.encode(), f"{place}.configuration")


def _plain(problem: str, values: Values) -> str:
    """msgspec's words in ours: the place first, the value and what is possible, for a misspelt value what was meant."""
    said, _, place = problem.partition(" - at `$")
    place = place.rstrip("`").lstrip(".")
    where = f"{place}: " if place else ""
    for pattern, title in _patterns(msgspec.json.schema(InstallationSettings)):
        if said.endswith(f"regex {pattern!r}"):
            return f"{where}{_at(values, place)!r} is not {title}"
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", said)
    if unknown is None:
        return f"{where}{said[:1].lower()}{said[1:]}"
    from difflib import get_close_matches

    close = get_close_matches(unknown[1], _names(), n=1)
    instead = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(_names())}"
    return f"{where}unknown value {unknown[1]!r}; {instead}"


def _patterns(schema: object) -> Iterator[tuple[str, str]]:
    """Each pattern that a value has to match, with what such a value is."""
    if isinstance(schema, dict):
        if "pattern" in schema:
            yield schema["pattern"], schema["title"]
        for each in schema.values():
            yield from _patterns(each)


def _at(values: object, place: str) -> object:
    """The value there: ``registries.allowAddresses[0]``."""
    for name in re.findall(r"[^.\[\]]+", place):
        if isinstance(values, dict):
            values = values[name]
        elif isinstance(values, list):
            values = values[int(name)]
    return values


def _names() -> list[str]:
    """The names of all values, at every level."""
    definitions = msgspec.json.schema(InstallationSettings)["$defs"].values()
    return sorted({name for each in definitions for name in each.get("properties", ())})


def _check_components(given: object, origin: str) -> None:
    for name in given if isinstance(given, list) else ():
        _component(str(name), f"{origin}: components")


def _component(name: str, origin: str) -> None:
    try:
        component(name)
    except UnknownComponent as error:
        raise UsageError(f"{origin}: {error}") from None


def _image(found: InstallationSettings, text: str) -> Image:
    try:
        reference = parse(text)
    except InvalidReference as error:
        raise UsageError(f"--image: {error}") from None
    name = text.partition("@")[0]
    tag = reference.tag or ""
    repository = name.removesuffix(f":{tag}")
    tag = tag if repository != name else ""  # none was given: that of this version
    return msgspec.structs.replace(found.image, repository=repository, tag=tag, digest=reference.digest or "")
