"""Reading a bundle's directory and a subscription's file, and asking for the images in them.

``polyarch bundle validate`` and ``polyarch-olm-validator`` share this: both read first, then resolve each image once,
and only then judge.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.platforms_file import load_platforms_file
from polyarch.cli.registry_options import DEFAULT_OPTIONS, RegistryOptions
from polyarch.manifests import olm
from polyarch.manifests.bundle.loader import (
    ANNOTATIONS,
    Bundle,
    BundleNotValid,
    BundleTree,
    candidates,
    load,
    manifests_directory,
)
from polyarch.manifests.lint.wanted import wanted_indexes
from polyarch.manifests.nodes import value
from polyarch.manifests.scan import Scan, scan
from polyarch.manifests.sets import Answers
from polyarch.manifests.text import SourceText, UnreadableText
from polyarch.oci.answers import AnswerFile
from polyarch.oci.inspection import Inspection, InspectionError, Status
from polyarch.oci.reference import InvalidReference, Reference, parse


def read_bundle(directory: str) -> Bundle:
    """The bundle in a directory. ``UsageError`` if there is no directory, ``BundleNotValid`` if there is no bundle."""
    root = Path(directory)
    if not root.is_dir():
        raise UsageError(f"{directory}: there is no such directory; name the one of a bundle")
    annotations = root / ANNOTATIONS
    files = {ANNOTATIONS: _read(root, annotations)} if annotations.is_file() else {}
    named = candidates(BundleTree(directory, files))
    folders = frozenset(each for each in named if (root / each).is_dir())
    chosen = manifests_directory(BundleTree(directory, files, folders))
    below: set[str] = set()
    for entry in sorted((root / chosen).iterdir()):
        path = f"{chosen}/{entry.name}" if chosen else entry.name
        if entry.is_dir():
            below.add(path)
        elif not entry.name.startswith("."):
            files[path] = _read(root, entry)
        else:
            files[path] = b""
    return load(BundleTree(directory, files, folders | below))


def _read(root: Path, path: Path) -> bytes:
    if not path.resolve().is_relative_to(root.resolve()):
        raise BundleNotValid(f"{path} is a link out of the bundle; put the file itself there")
    try:
        return path.read_bytes()
    except OSError as error:
        raise CouldNotComplete(f"{path}: {error.strerror}") from None


def read_subscription(path: str) -> Scan:
    """The file of ``--subscription``; ``UsageError`` if nothing in it configures an operator."""
    try:
        found = scan(SourceText.of(path, Path(path).read_bytes()))
    except OSError as error:
        raise UsageError(f"--subscription {path}: {error.strerror}") from None
    except UnreadableText as problem:
        raise UsageError(f"--subscription {problem}") from None
    for problem in found.problems:
        if problem.rule in ("MA901", "MA902"):
            raise UsageError(f"--subscription {path}:{problem.span.line}:{problem.span.column}: {problem.message}")
    configured = [subject for subject in found.objects if olm.config_path(subject.kind) is not None]
    if not configured:
        raise UsageError(f"--subscription {path}: it has neither a Subscription nor a ClusterExtension")
    for subject in configured:
        try:
            olm.apply_config({}, olm.config_of(value(subject.node)))
        except olm.InvalidConfig as problem:
            raise UsageError(f"--subscription {path}: {subject.reference}: {problem}") from None
    return found


def resolve(
    texts: Iterable[str],
    *,
    platforms_file: str | None = None,
    offline: bool = False,
    access: RegistryOptions = DEFAULT_OPTIONS,
) -> Answers:
    """An answer for each text that names an image, and for the indexes that digests may belong to."""
    access.check()
    answers = load_platforms_file(platforms_file) if platforms_file is not None else None
    named = {text: reference for text in texts if (reference := _reference(text)) is not None}
    parents = {text: parse(index) for text, index in wanted_indexes(named).items()}
    asked = list(dict.fromkeys((*named.values(), *parents.values())))
    if offline:
        found = {reference: _offline(reference, answers) for reference in asked}
    else:
        found = asyncio.run(_ask(asked, answers, access))
    return Answers(
        {text: found[reference] for text, reference in named.items()},
        {text: found[reference] for text, reference in parents.items() if found[reference].status is Status.RESOLVED},
    )


def _reference(text: str) -> Reference | None:
    try:
        return parse(text)
    except InvalidReference:
        return None  # the rules say so, with the place (MA001)


def _offline(reference: Reference, answers: AnswerFile | None) -> Inspection:
    answer = answers.get(reference) if answers is not None else None
    if answer is not None:
        return answer
    message = f"{reference.canonical} is not in a platforms file, and --offline asks nobody"
    return Inspection(reference, Status.ERROR, error=InspectionError.of("offline-miss", message))


async def _ask(
    references: list[Reference], answers: AnswerFile | None, access: RegistryOptions
) -> dict[Reference, Inspection]:
    # Whoever has all answers in a file needs no network stack: it loads slowly.
    from polyarch.cli.render import progress
    from polyarch.oci.addresses import InvalidSetting
    from polyarch.oci.opening import Wiring, open_inspector
    from polyarch.oci.settings import InspectorSettings

    wiring = Wiring(
        settings=InspectorSettings(timeout=access.timeout, max_wait=access.max_wait),
        configuration=access.configuration(),
        trust=access.trust(),
        answers=answers,
    )
    shown = progress("inspecting images", len(references))
    try:
        async with open_inspector(wiring, credentials=access.credentials(), notice=shown.remark) as inspector:
            with shown:
                found = await inspector.inspect_many(references, on_answer=lambda _: shown.advance())
    except InvalidSetting as error:
        raise UsageError(str(error)) from None
    return dict(zip(references, found, strict=True))
