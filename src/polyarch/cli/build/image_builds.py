"""ImageBuilds as a command line describes them: from a file, from flags, or from both.

A flag wins over the file, and over what an earlier command line of the same kind wrote to the cluster. Problems are
collected, so that one run reports all of them.
"""

import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import msgspec
from msgspec.structs import fields

from polyarch.builds.api.resources import ImageBuildSpec
from polyarch.builds.api.validation import object_problems
from polyarch.builds.names import IGNORE_FILE_ANNOTATION, IMAGE_BUILDS
from polyarch.cli.build.context_archive import (
    IGNORE_FILES,
    OWN_IGNORE_FILES,
    IgnoreRules,
    PackedContext,
    ignore_rules,
    own_ignore_files,
    pack,
)
from polyarch.cli.build.options import BuildFlags
from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.input.objects import STDIN, FileDocument, read_documents
from polyarch.cli.options.images import RegistryOptions
from polyarch.kube.schema import SchemaViolation
from polyarch.oci.documents import OCI_MANIFEST, digest_of
from polyarch.oci.image.contents import RegistryConnection
from polyarch.oci.inspector import InspectorOptions, open_inspector
from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.traffic.exchange import Stream
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.write.push import open_destination
from polyarch.oci.write.writer import Writer
from polyarch.platforms import KNOWN_ARCHITECTURES, normal_architecture

Manifest = dict[str, Any]
USUAL_FILES: Final = ("Containerfile", "Dockerfile")


def read_builds(path: str) -> list[FileDocument]:
    """The ImageBuilds of a file. UsageError for anything else in it, and for a file without one."""
    documents = read_documents(path)
    wrong = [each for each in documents if each.kind != IMAGE_BUILDS.kind]
    if wrong:
        others = "; ".join(f"{each.where}: {each.kind or 'an object without kind'}" for each in wrong)
        raise UsageError(
            f"{others}: expected {IMAGE_BUILDS.kind} of {IMAGE_BUILDS.api_version}; remove it from the file"
        )
    if not documents:
        raise UsageError(f"{path}: empty; expected {IMAGE_BUILDS.kind} of {IMAGE_BUILDS.api_version}")
    return documents


def check(documents: Iterable[FileDocument]) -> None:
    """UsageError with every field that the API server would refuse, and its line."""
    problems = [
        f"{each.file}:{each.line_of(f'.{problem.field}')}: {problem}"
        for each in documents
        for problem in object_problems(each.content)
    ]
    if problems:
        raise UsageError("\n".join(problems))


def check_composed(manifest: Mapping[str, Any]) -> None:
    """The same of an object that flags made: it has no lines, but options."""
    problems = [_in_options(each) for each in object_problems(manifest)]
    if problems:
        raise UsageError("; ".join(problems))


_OPTIONS: Final = {
    "metadata.name": "NAME",
    "spec.source.containerfile": "--containerfile",
    "spec.source.overrides": "--override",
    "spec.source.buildArgs": "--arg",
    "spec.source.context": "--context",
    "spec.output.repository": "--repository",
    "spec.output.tags": "--tag",
    "spec.output.pushSecret": "--push-secret",
    "spec.architectures": "--arch",
    "spec.strategy": "--strategy",
    "spec.output": "--repository",
    "spec.source": "--containerfile",
}


def _in_options(problem: SchemaViolation) -> str:
    found = next((option for field, option in _OPTIONS.items() if problem.field.startswith(field)), "")
    return f"{found} ({problem.field}): {problem.reason}" if found else str(problem)


def composed(flags: BuildFlags, base: Mapping[str, Any], context: Mapping[str, Any] | None = None) -> Manifest:
    """``base`` with what the flags say. ``context`` is the ``source.context`` of ``--context``."""
    spec = _copied(base.get("spec") or {})
    source, output = spec.setdefault("source", {}), spec.setdefault("output", {})
    if flags.containerfile is not None:
        source["containerfile"] = read_text("--containerfile", flags.containerfile)
        source.pop("containerfileFrom", None)
    for text in flags.override or ():
        _override(source, text)
    if context is not None:
        source["context"] = dict(context)
    for text in flags.arg or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--arg {name}: expected NAME=VALUE")
        source.setdefault("buildArgs", {})[name] = value
    if flags.repository is not None:
        output["repository"] = flags.repository
    if flags.tag is not None:
        output["tags"] = list(dict.fromkeys(flags.tag))
    if flags.push_secret is not None:
        output["pushSecret"] = {"name": flags.push_secret}
    if flags.arch is not None:
        spec["architectures"] = {"mode": "Explicit", "list": list(architectures("--arch", flags.arch))}
    if flags.strategy is not None:
        spec["strategy"] = flags.strategy
    if flags.fail_fast:
        spec["failFast"] = True
    if not output:
        del spec["output"]
    if not source:
        del spec["source"]
    return {**_identity(base), "spec": spec}


def with_context(manifest: Mapping[str, Any], context: Mapping[str, Any], own_ignore_file: str) -> Manifest:
    """The object with a context that was packed, and the ignore file of its Containerfile alone, if that counted."""
    spec, metadata = manifest["spec"], manifest["metadata"]
    annotations = dict(metadata.get("annotations") or {})
    annotations.pop(IGNORE_FILE_ANNOTATION, None)
    if own_ignore_file:
        annotations[IGNORE_FILE_ANNOTATION] = own_ignore_file
    metadata = {name: value for name, value in metadata.items() if name != "annotations"}
    metadata |= {"annotations": annotations} if annotations else {}
    return {
        **manifest,
        "metadata": metadata,
        "spec": {**spec, "source": {**spec.get("source", {}), "context": dict(context)}},
    }


def containerfiles(flags: BuildFlags, manifest: Mapping[str, Any]) -> tuple[list[str], list[str | None]]:
    """The paths of Containerfiles that are on the command line, and the texts of those in the object that are not; None
    for one that is in a ConfigMap."""
    source = manifest["spec"].get("source") or {}
    paths = {each.partition("=")[0]: each.partition("=")[2] for each in flags.override or ()}
    given = {normal_architecture(name.strip()): path for name, path in paths.items()}
    named = [path for path in (flags.containerfile, *given.values()) if path is not None and path != STDIN]
    unnamed = [source.get("containerfile")] if flags.containerfile in (None, STDIN) else []
    unnamed += [
        each.get("containerfile")
        for each in source.get("overrides") or ()
        if given.get(each.get("architecture"), STDIN) == STDIN
        and ("containerfile" in each or "containerfileFrom" in each)
    ]
    return named, unnamed


def as_stored(manifest: Manifest, live: Mapping[str, Any]) -> Manifest:
    """What will be stored once the manifest is applied to an object whose spec is ``live``, as far as a context has to
    know it: where it is pushed and what is built may be for somebody else to say (kubectl, GitOps)."""
    spec = manifest.get("spec") or {}
    source, before = spec.get("source") or {}, dict(live.get("source") or {})
    if "containerfile" in source or "containerfileFrom" in source:
        before = {name: value for name, value in before.items() if not name.startswith("containerfile")}
    overrides = {each.get("architecture"): dict(each) for each in before.get("overrides") or ()}
    for each in source.get("overrides") or ():
        own = dict(each)
        known = overrides.get(own.get("architecture"), {})
        if "containerfile" in own or "containerfileFrom" in own:
            known = {name: value for name, value in known.items() if not name.startswith("containerfile")}
        overrides[own.get("architecture")] = known | own
    merged = before | source | ({"overrides": list(overrides.values())} if overrides else {})
    output = dict(live.get("output") or {}) | (spec.get("output") or {})
    return {**manifest, "spec": {**spec, "source": merged, "output": output}}


def is_default(spec: Mapping[str, Any], field: str) -> bool:
    """Whether a field such as ``.spec.strategy`` has the value that the schema gives it. Whoever creates or updates an
    object owns such values as well, so nobody need have asked for this one."""
    value: Any = {"spec": spec}
    usual: Any = None
    for name in field.removeprefix(".").split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
        if name == "spec" and usual is None:
            usual = ImageBuildSpec()
            continue
        if not isinstance(usual, msgspec.Struct):
            return False
        usual = next((getattr(usual, each.name) for each in fields(usual) if each.encode_name == name), None)
    return value is not None and value == usual


def with_rebuild(manifest: Mapping[str, Any], token: str, chosen: Sequence[str]) -> Manifest:
    """The object that asks for a rebuild, of these architectures if any."""
    rebuild = {"token": token, **({"architectures": list(chosen)} if chosen else {})}
    return {**manifest, "spec": {**(manifest.get("spec") or {}), "rebuild": rebuild}}


def named(name: str, namespace: str) -> Manifest:
    """An object that says nothing yet."""
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": IMAGE_BUILDS.api_version, "kind": IMAGE_BUILDS.kind, "metadata": metadata}


def placed(document: FileDocument, namespace: str | None, usual: str) -> Manifest:
    """The object of a file in its namespace: its own, or that of the command line. UsageError if they differ."""
    own = document.namespace
    if own and namespace and own != namespace:
        raise UsageError(f"{document.where}: namespace {own}, but --namespace says {namespace}; remove one of them")
    metadata = {**document.content.get("metadata", {}), "namespace": own or namespace or usual}
    return {**document.content, "metadata": metadata}


def usual_containerfile(folder: Path) -> str | None:
    """The Containerfile that somebody means who names none: in the context's folder, or in the current one."""
    return next((str(folder / name) for name in USUAL_FILES if (folder / name).is_file()), None)


def with_usual_containerfile(
    flags: BuildFlags, base: Mapping[str, Any], folder: Path | None, tell: Callable[[str], None], *, is_new: bool
) -> BuildFlags:
    """The flags with the Containerfile that is meant if none is named: of a new object the one that lies in ``folder``,
    the context, or else in the current folder. Of one that is there, the context's; another text in the current folder
    is told and not taken, as the command may be typed anywhere."""
    path = usual_containerfile(folder or Path())
    if flags.file is not None or flags.containerfile is not None or path is None:
        return flags
    if is_new:
        return replace(flags, containerfile=path)
    said = ((base.get("spec") or {}).get("source") or {}).get("containerfile")
    if said is None or said == read_text("--containerfile", path):
        return flags
    if folder is None:
        name = base["metadata"]["name"]
        tell(f"{path} is not what {name} is built from; to build it, add --containerfile {path}")
        return flags
    tell(f"{path} takes the place of the Containerfile of before")
    return replace(flags, containerfile=path)


def architectures(option: str, text: str) -> tuple[str, ...]:
    """Names as Kubernetes has them: ``x86_64`` is ``amd64``; sorted, each once. UsageError for none."""
    found = sorted({normal_architecture(each) for each in filter(None, (part.strip() for part in text.split(",")))})
    if not found:
        raise UsageError(f"{option}: expected architectures separated by commas, such as amd64,arm64")
    for each in found:
        if each not in KNOWN_ARCHITECTURES and (close := get_close_matches(each, KNOWN_ARCHITECTURES, n=1)):
            raise UsageError(f"{option} {each}: no architecture has this name; did you mean {close[0]}?")
    return tuple(found)


def read_text(option: str, path: str) -> str:
    """The text of a file; UsageError says what is wrong with it."""
    try:
        if path == STDIN:
            return sys.stdin.buffer.read().decode()
        return Path(path).read_bytes().decode()
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror or error}; give a Containerfile") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{option} {path}: not UTF-8 (byte {error.start})") from None


def _override(source: Manifest, text: str) -> None:
    """``ARCH=PATH``; its build arguments stay."""
    given, equals, path = text.partition("=")
    if not equals or not given or not path:
        raise UsageError(f"--override {text}: expected ARCHITECTURE=PATH, such as arm64=Containerfile.arm64")
    (architecture,) = architectures("--override", given) if "," not in given else ("",)
    if not architecture:
        raise UsageError(f"--override {text}: one architecture each; repeat the option")
    others = [dict(each) for each in source.get("overrides", ()) if each.get("architecture") != architecture]
    before: Mapping[str, Any] = next(
        (each for each in source.get("overrides", ()) if each.get("architecture") == architecture), {}
    )
    override = {**before, "architecture": architecture, "containerfile": read_text("--override", path)}
    override.pop("containerfileFrom", None)
    source["overrides"] = sorted([*others, override], key=lambda each: str(each["architecture"]))


def _identity(base: Mapping[str, Any]) -> Manifest:
    return {name: base[name] for name in ("apiVersion", "kind", "metadata") if name in base}


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


# -- --context: where the files of a build come from, and the push of a local directory


CONFIG: Final = "application/vnd.oci.image.config.v1+json"
LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
IN_MEMORY: Final = 8 * 1024**2
CHUNK: Final = 256 * 1024
TAG_DIGITS: Final = 12
_COMMIT: Final = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")


class Context(NamedTuple):
    """``source.context`` as the command line says it; ``folder`` is still to be pushed."""

    document: dict[str, Any] | None
    folder: Path | None = None


def read(text: str) -> Context:
    """What ``--context`` means. UsageError says what it can be."""
    kind, colon, rest = text.partition(":")
    if colon and kind == "git":
        url, at, commit = rest.rpartition("@")
        commit, _, directory = commit.partition("#")
        if not at or not _COMMIT.fullmatch(commit):
            raise UsageError(
                f"--context {text}: expected git:URL@COMMIT with a full commit id, or git:URL@COMMIT#DIRECTORY; "
                "`git rev-parse HEAD` prints it"
            )
        git = {"url": url, "commit": commit, **({"directory": directory} if directory else {})}
        return Context({"type": "Git", "git": git})
    if colon and kind == "image":
        return Context({"type": "Image", "image": {"reference": rest}})
    folder = Path(text)
    if not folder.is_dir():
        raise UsageError(f"--context {text}: no such folder; expected a folder, git:URL@COMMIT or image:REF@DIGEST")
    return Context(None, folder)


def rules_for(folder: Path, named: Iterable[str], unnamed: Sequence[str | None], *, had_own: str = "") -> IgnoreRules:
    """What is left out of the folder for these Containerfiles: ``named`` are paths, ``unnamed`` the texts of those
    whose path is not known, ``had_own`` is the ignore file that one of these had when it was named. UsageError if one
    of these may have an ignore file that cannot be found, and if two differ: there is one context for all."""
    files: list[str | None] = list(named)
    owners = own_ignore_files(folder) if unnamed else []
    known = dict.fromkeys((*(str(folder / name) for name in USUAL_FILES), *owners))
    for text in unnamed:
        same = [path for path in known if text is not None and _has(path, text)]
        if not same and (owners or had_own):
            whose = f"{owners[0]} has" if owners else f"the Containerfile that was named before has, {had_own}:"
            raise UsageError(
                f"--context {folder}: {whose} an ignore file of its own, which may be the one that counts; name what "
                "is built with --containerfile PATH, or --override ARCHITECTURE=PATH"
            )
        files += same or [None]
    found = [ignore_rules(folder, each) for each in files]
    for other in found:
        if other.patterns != found[0].patterns:
            raise UsageError(
                f"--context {folder}: {found[0]}, but {other}: all architectures are built from the same files; give "
                "both the same patterns, or remove one of them"
            )
    return found[0]


def own_ignore_file(rules: IgnoreRules) -> str:
    """The name of the ignore file if it belongs to a Containerfile alone."""
    return rules.file.name if rules.file is not None and rules.file.name not in IGNORE_FILES else ""


def has_own_ignore_file(containerfile: str) -> bool:
    """Whether an ignore file lies beside it that is for it alone."""
    return any(os.path.lexists(containerfile + suffix) for suffix in OWN_IGNORE_FILES)


def _has(path: str, text: str) -> bool:
    try:
        return Path(path).read_bytes() == text.encode()
    except OSError:
        return False


async def pushed(
    folder: Path, rules: IgnoreRules, repository: str, options: RegistryOptions, tell: Callable[[str], None]
) -> dict[str, Any]:
    """``source.context`` of the folder, which is in the repository when this returns. Raises CommandError."""
    try:
        target = parse(repository)
    except InvalidReference as error:
        raise UsageError(f"--repository {repository}: {error.problem}") from None
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as layer:
        packed = pack(folder, layer, rules)
        try:
            digest, sent = await _on_registry(options, lambda connection: _push(connection, target, packed, layer))
        except Failure as failure:
            raise CouldNotComplete(f"--context {folder}: pushing it to {repository}: {failure.error.message}") from None
    size = f"{packed.files} files, {packed.size / 1024:.0f} KiB, {rules}"
    tell(f"context {folder}: {size}, {'pushed' if sent else 'there already'}")
    return {"type": "Image", "image": {"reference": f"{target.name}@{digest}"}}


async def _on_registry(
    options: RegistryOptions, work: Callable[[RegistryConnection], Awaitable[tuple[str, bool]]]
) -> tuple[str, bool]:
    settings = InspectorSettings(timeout=options.timeout, max_wait=options.max_wait)
    wiring = InspectorOptions(settings=settings, configuration=options.configuration(), trust=options.trust())
    async with open_inspector(wiring, credentials=options.credentials()) as inspector:
        return await work(inspector.connection)


async def _push(
    connection: RegistryConnection, target: Reference, packed: PackedContext, layer: IO[bytes]
) -> tuple[str, bool]:
    """The manifest's digest, and whether anything was sent."""
    config = msgspec.json.encode(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {},
            "rootfs": {"type": "layers", "diff_ids": [packed.diff_id]},
        }
    )
    manifest = msgspec.json.encode(
        {
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": {"mediaType": CONFIG, "digest": digest_of(config), "size": len(config)},
            "layers": [{"mediaType": LAYER, "digest": packed.digest, "size": packed.size}],
        }
    )
    digest = digest_of(manifest)
    writer = await open_destination(connection, target)
    if await writer.digest_of(digest) == digest:
        return digest, False
    await _send(writer, packed.digest, Stream(_chunks(layer), packed.size))
    await _send(writer, digest_of(config), Stream(_once(config), len(config)))
    tag = f"context-{digest.removeprefix('sha256:')[:TAG_DIGITS]}"
    await writer.put_manifest(digest, manifest, OCI_MANIFEST, digest)
    await writer.put_manifest(tag, manifest, OCI_MANIFEST, digest)
    return digest, True


async def _send(writer: Writer, digest: str, content: Stream) -> None:
    if not await writer.has_blob(digest):
        await writer.send(await writer.begin(), digest, content)


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    file.seek(0)
    while chunk := file.read(CHUNK):
        yield chunk


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
