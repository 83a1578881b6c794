"""``python -m tools.corpus [--operators] DIR…``: lint, fix and fix again over real files.

No registry is asked: each image gets a set of platforms by the hash of its name, the same in every run, so that every
rule has something to say. Nothing is written. The edits are replayed here in another way than the editor's, which
counts the characters that changed outside of them: there must be none. With ``--operators`` the files are also those
of the operators whose types the table of kinds is compared with (``tools/peers/kinds``): their examples, tests and
documentation. A table of kinds says of how many objects all
that looks like an image was understood, of how many a finding says that it was not, and of how many nothing is said.
"""

import hashlib
import json
import re
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.peers.catalogue import BY_NAME

from polyarch.cli.errors import CommandError, CouldNotComplete, UsageError
from polyarch.cli.images.resolve import reference_of
from polyarch.cli.input.files import find_files, read_file
from polyarch.cli.input.manifests import read_kustomizations
from polyarch.cli.input.objects import load_platforms_file
from polyarch.cli.output.tables import Row, table
from polyarch.manifests.fix import FixRequest, FixResult, fix
from polyarch.manifests.rules.engine import lint
from polyarch.manifests.rules.options import FixOptions, LintOptions
from polyarch.manifests.scan.kinds import is_known, runs_nothing
from polyarch.manifests.scan.pod_specs import unknown_images
from polyarch.manifests.scan.scanning import Scan, scan, worth_reading
from polyarch.manifests.scan.sets import ImageInspections
from polyarch.manifests.scan.text import SourceText, UnreadableText
from polyarch.oci.inspection import Entry, Inspection, Status
from polyarch.oci.platforms_file import AnswerFile
from polyarch.platforms import Platform

SETS: tuple[tuple[str, ...], ...] = (
    ("linux/amd64",),
    ("linux/amd64", "linux/arm64"),
    ("linux/amd64", "linux/arm64"),
    ("linux/amd64", "linux/arm64", "linux/ppc64le", "linux/s390x"),
    ("linux/amd64", "linux/arm64", "linux/arm/v7", "windows/amd64"),
)
EVERYTHING = FixOptions(widen=True, replace=True, remove_labels=True, prefer=True)
WAYS: Mapping[str, FixRequest] = {
    "without flags": FixRequest(),
    "with every flag": FixRequest(options=LintOptions(fixes=EVERYTHING, prefer={"arm64": 50}), uncomment=True),
}
_NAMED = re.compile(r"\S*[/@]\S*|[A-Z]\w+ [\w.-]+ \(.*?\)")


class Invented(Mapping[str, Inspection]):
    """An answer for every image: that of a platforms file, or one of :data:`SETS`."""

    def __init__(self, file: AnswerFile | None) -> None:
        self._file = file

    def __getitem__(self, text: str) -> Inspection:
        reference = reference_of(text)
        if reference is None:
            raise KeyError(text)
        found = self._file.get(reference) if self._file is not None else None
        if found is not None:
            return found
        digest = hashlib.sha256(reference.name.encode()).digest()
        platforms = SETS[digest[0] % len(SETS)]
        entries = tuple(Entry(Platform.parse(each), f"sha256:{digest.hex()}") for each in platforms)
        shown = reference.digest or f"sha256:{hashlib.sha256(reference.canonical.encode()).hexdigest()}"
        return Inspection(reference, Status.RESOLVED, "index", digest=shown, entries=entries)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass
class Tally:
    """What one way of fixing did to all files."""

    findings: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    files_changed: int = 0
    again: list[str] = field(default_factory=list)
    """Files that a second run would change."""
    unproven: list[str] = field(default_factory=list)
    outside: int = 0
    crashes: list[str] = field(default_factory=list)

    def take(self, result: FixResult, second: FixResult) -> None:
        path = result.source.path
        self.findings.update(_rule(finding.rule, finding.sub) for finding in (*result.applied, *result.remaining))
        self.accepted.update(_rule(finding.rule, finding.sub) for finding in result.applied)
        self.refused.update(_rule(each.finding.rule, each.finding.sub) for each in result.refused)
        self.reasons.update(_reason(each.note) for each in result.refused)
        self.files_changed += result.changed
        self.unproven += [path] if result.unproven is not None else []
        self.again += [path] if second.changed else []
        self.outside += changed_outside(result)


@dataclass
class KindTally:
    """What becomes of the objects of one kind that name something like an image."""

    understood: int = 0
    """All of it is an image of a pod that was found."""
    told: int = 0
    """A finding says that something was not checked."""
    silent: int = 0
    places: list[str] = field(default_factory=list)
    """Where nothing is said: file and pointer."""


@dataclass
class Corpus:
    """A folder, looked at."""

    kinds: dict[str, KindTally] = field(default_factory=dict)
    files: int = 0
    unreadable: int = 0
    pod_specs: int = 0
    tallies: dict[str, Tally] = field(default_factory=lambda: {way: Tally() for way in WAYS})


def changed_outside(result: FixResult) -> int:
    """Characters of the result that neither stood in the file nor are an edit's: 0, or the editor is wrong."""
    text = result.source.text
    for edits in result.rounds:
        for edit in reversed(sorted(edits, key=lambda each: (each.start, each.end))):  # noqa: C413 - equal ones too
            text = text[: edit.start] + edit.replacement + text[edit.end :]
    if text == result.text:
        return 0
    different = sum(one != other for one, other in zip(text, result.text, strict=False))
    return different + abs(len(text) - len(result.text))


def count_kinds(found: Scan, answers: ImageInspections, kinds: dict[str, KindTally]) -> None:
    """Adds the objects of a file."""
    told = {each.finding.object for each in lint(found, answers) if each.finding.rule in ("MA001", "MA905")}
    for subject in found.objects:
        if not subject.kind or not subject.api_version or subject.patched_by is not None:
            continue
        if runs_nothing(subject.group) and not is_known(subject.kind, subject.group):
            continue
        pods = [each for each in found.pod_specs if each.object is subject]
        left = unknown_images(
            subject.node,
            subject.pointer,
            {id(image.node) for each in pods for image in each.images},
        )
        left = [each for each in left if "/relatedImages/" not in each[2] and "/annotations/" not in each[2]]
        if not left and not any(each.images for each in pods):
            continue
        tally = kinds.setdefault(f"{subject.kind} ({subject.group or 'core'})", KindTally())
        if not left:
            tally.understood += 1
        elif subject.reference in told:
            tally.told += 1
        else:
            tally.silent += 1
            tally.places.append(f"{found.source.path}: {left[0][2]}")


def examine(paths: Sequence[str], *, platforms_file: str | None = None) -> Corpus:
    """Lint, fix and fix again every file; nothing is written."""
    file = load_platforms_file(platforms_file) if platforms_file is not None else None
    answers = ImageInspections(Invented(file))
    corpus = Corpus()
    given = find_files(paths)
    kustomizations = read_kustomizations(given)
    for path in given.files:
        corpus.files += 1
        data = read_file(path)
        try:
            source = SourceText.of(path, data)
        except UnreadableText:
            corpus.unreadable += 1
            continue
        for way, tally in corpus.tallies.items():
            try:
                if not worth_reading(data):
                    continue
                if way == next(iter(WAYS)):
                    found = scan(source, kustomizations=kustomizations)
                    corpus.pod_specs += len(found.pod_specs)
                    count_kinds(found, answers, corpus.kinds)
                result = fix(source, answers, WAYS[way], kustomizations=kustomizations)
                again = fix(
                    source.replaced(result.text),
                    answers,
                    WAYS[way],
                    kustomizations=kustomizations,
                )
                tally.take(result, again)
            except Exception:  # noqa: BLE001 - what this run is for is to find every file that crashes one
                tally.crashes.append(f"{path}\n{traceback.format_exc(limit=-3)}")
    return corpus


def operators() -> list[str]:
    """The folders of the modules that ``kind-schemas`` is built of, without those that these need."""
    module = BY_NAME["kind-schemas"].source
    required = json.loads(_go("mod", "edit", "-json", folder=module))["Require"]
    named = [f"{each['Path']}@{each['Version']}" for each in required if not each.get("Indirect")]
    decoder, text, folders = (
        json.JSONDecoder(),
        _go("mod", "download", "-json", *named, folder=module).strip(),
        [],
    )
    while text:
        found, end = decoder.raw_decode(text)
        folders.append(found["Dir"])
        text = text[end:].strip()
    return folders


def _go(*words: str, folder: Path) -> str:
    done = subprocess.run(
        ["go", *words],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=1800,
    )
    if done.returncode:
        raise CouldNotComplete(f"go {' '.join(words[:2])} ended with {done.returncode} in {folder}")
    return done.stdout


def main(arguments: Sequence[str]) -> int:
    """``corpus [--platforms-file F] [--operators] PATH…``; returns 1 if a file is not as it should be."""
    paths = list(arguments)
    if "--operators" in paths:
        paths.remove("--operators")
        paths += operators()
    platforms_file = None
    if "--platforms-file" in paths:
        at = paths.index("--platforms-file")
        platforms_file = paths[at + 1] if at + 1 < len(paths) else None
        del paths[at : at + 2]
    if not paths:
        raise UsageError("no folder is named; run python -m tools.corpus DIR, or with --operators")
    corpus = examine(paths, platforms_file=platforms_file)
    _print(corpus)
    bad = any(tally.outside or tally.again or tally.unproven or tally.crashes for tally in corpus.tallies.values())
    return int(bad)


def _print(corpus: Corpus) -> None:
    tallies = list(corpus.tallies.values())
    rows = [
        _row("files", *[corpus.files] * len(tallies)),
        _row("files that are no UTF-8 text", *[corpus.unreadable] * len(tallies)),
        _row("pod specifications", *[corpus.pod_specs] * len(tallies)),
        _row("findings", *(sum(tally.findings.values()) for tally in tallies)),
        _row("edits accepted", *(sum(tally.accepted.values()) for tally in tallies)),
        _row(
            "edits refused, with a reason",
            *(sum(tally.refused.values()) for tally in tallies),
        ),
        _row("files changed", *(tally.files_changed for tally in tallies)),
        _row("files that a second run changes", *(len(tally.again) for tally in tallies)),
        _row("edits not proven", *(len(tally.unproven) for tally in tallies)),
        _row("characters changed outside edits", *(tally.outside for tally in tallies)),
        _row("crashes", *(len(tally.crashes) for tally in tallies)),
    ]
    sys.stdout.write(table(["", *corpus.tallies], rows))
    print()
    kinds = [_row(name, each.understood, each.told, each.silent) for name, each in sorted(corpus.kinds.items())]
    sys.stdout.write(table(["KIND WITH IMAGES", "understood", "told", "silent"], kinds))
    print()
    rules = sorted({rule for tally in tallies for rule in tally.findings})
    rules_table = table(
        [
            "RULE",
            *(f"{name} {way}" for way in corpus.tallies for name in ("found", "repaired", "refused")),
        ],
        [
            _row(
                rule,
                *(count[rule] for tally in tallies for count in (tally.findings, tally.accepted, tally.refused)),
            )
            for rule in rules
        ],
    )
    sys.stdout.write(rules_table)
    print()
    reasons = sorted({reason for tally in tallies for reason in tally.reasons})
    rows = [_row(reason, *(tally.reasons[reason] for tally in tallies)) for reason in reasons]
    sys.stdout.write(table(["REFUSED BECAUSE", *corpus.tallies], rows))
    for kind in corpus.kinds.values():
        for place in kind.places:
            print(f"silent: {place}", file=sys.stderr)
    for way, tally in corpus.tallies.items():
        for name, places in (
            ("a second run changes", tally.again),
            ("not proven", tally.unproven),
            ("crash", tally.crashes),
        ):
            for place in places:
                print(f"{way}: {name}: {place}", file=sys.stderr)


def _row(name: str, *numbers: int) -> Row:
    return Row([name, *map(str, numbers)])


def _reason(note: str) -> str:
    """The note without the names in it."""
    return _NAMED.sub("…", note)


def _rule(rule: str, sub: str) -> str:
    return f"{rule}/{sub}" if sub else rule


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except CommandError as error:
        print(f"polyarch: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
