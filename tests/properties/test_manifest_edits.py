"""Edits of random texts: what they say changes as asked, and nothing else does.

A random object is written in a random way (block and flow, quotes, comments, indentation, line ends, anchors), random
operations are rendered, and the proof reads the result. The proof itself is tested in the unit tests. Whole objects
that share text through anchors are fixed, and PyYAML says what that changed.
"""

import json
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from polyarch.cli.lint.fix import FixReport
from polyarch.manifests.edit.editor import render
from polyarch.manifests.edit.layout import CannotEdit
from polyarch.manifests.edit.style import scalar
from polyarch.manifests.fix import FixRequest, fix
from polyarch.manifests.operations import (
    Add,
    Remove,
    Rename,
    Replace,
    TreeOperation,
    apply,
    is_below,
    pointer,
    read,
    segments,
)
from polyarch.manifests.proof import prove
from polyarch.manifests.report import Report
from polyarch.manifests.rules.catalogue import DOCUMENT_RULES
from polyarch.manifests.rules.options import FixOptions, LintOptions
from polyarch.manifests.scan.nodes import compose
from polyarch.manifests.scan.scanning import scan
from polyarch.manifests.scan.sets import ImageInspections
from polyarch.manifests.scan.text import SourceText, splice
from polyarch.oci.platforms_file import AnswerFile
from polyarch.oci.reference import parse

pytestmark = pytest.mark.req("MF-060")

KEYS = ["spec", "containers", "affinity", "image", "name", "kubernetes.io/arch", "a", "b", "386", "on"]
TEXTS = ["web:1", "386", "no", "x y", "a: b", "ü𝒳", "", "it's", 'say "x"', "two\nlines", "# x", "{{ x }}", "*"]
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-9, 99), st.sampled_from(TEXTS))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)),
    max_leaves=6,
)
OBJECTS = st.dictionaries(
    st.sampled_from(KEYS),
    st.recursive(
        SCALARS,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)),
        max_leaves=12,
    ),
    min_size=1,
    max_size=4,
)


class Writer:
    """Writes an object as YAML, in any way that comes to mind."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.comments = random.random() < 0.6

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def text(self, value: Any) -> str:
        """A document: lines with LF, without marks."""
        if isinstance(value, dict | list) and value and self.maybe(0.15):
            return json.dumps(value, indent=self.random.choice([None, 2, 4]), ensure_ascii=False) + "\n"
        if not isinstance(value, dict | list) or not value:
            return self.inline(value) + "\n"
        return "".join(f"{line}\n" for line in self.block(value))

    def block(self, value: Any) -> list[str]:
        """Lines from column 0; the first is content."""
        lines: list[str] = []
        step, indent = self.random.choice([1, 2, 2, 4]), self.random.choice([0, 0, 2])
        entries = value.items() if isinstance(value, dict) else [(None, member) for member in value]
        for key, member in entries:
            if lines:
                lines += self.noise()
            head = "-" if key is None else f"{self.key(key)}:"
            lines += self.entry(head, key, member, step if isinstance(member, dict) else indent)
        return lines

    def entry(self, head: str, key: str | None, member: Any, columns: int) -> list[str]:
        if isinstance(member, str) and "\n" in member and self.maybe(0.5):
            sign = "|-" if not member.endswith("\n") else "|"
            return [
                f"{head} {sign}",
                *[f"   {line}" for line in member.split("\n")],
                *([""] * self.random.choice([0, 1])),
            ]
        comment = self.comment() if key is not None else self.comment().replace("\t", " ")
        if not isinstance(member, dict | list) or not member or self.maybe(0.2):
            inline = self.inline(member)
            gap = " " if key is None else self.random.choice([" ", " ", "  ", " \t"])
            return [f"{head}{gap if inline else ''}{inline}{comment}"]
        inner = self.block(member)
        if key is None and self.maybe(0.8):
            return [f"{head} {inner[0]}", *[f"  {line}" if line else line for line in inner[1:]]]
        columns = columns if key is not None else 2
        return [f"{head}{comment}", *self.noise(), *[" " * columns + line if line else line for line in inner]]

    def comment(self) -> str:
        return (
            self.random.choice([" # note", "  # - a: b", "\t# 𝒳", " # '"]) if self.comments and self.maybe(0.3) else ""
        )

    def noise(self) -> list[str]:
        if not self.comments or self.maybe(0.6):
            return []
        return [self.random.choice(["", "# note", "      # affinity:", "# affinity:", "  #- x"])]

    def key(self, key: str) -> str:
        return self.random.choice([scalar(key), scalar(key), json.dumps(key), f"'{key}'"])

    def inline(self, value: Any) -> str:
        if isinstance(value, dict):
            parts = [f"{self.key(key)}: {self.inline(member)}" for key, member in value.items()]
            return self.flow(parts, "{}")
        if isinstance(value, list):
            return self.flow([self.inline(member) or "~" for member in value], "[]")
        if value is None:
            return self.random.choice(["", "~", "null"])
        if isinstance(value, str):
            ways = [scalar(value), json.dumps(value, ensure_ascii=False)]
            if value.isprintable():
                ways.append("'" + value.replace("'", "''") + "'")
            return self.random.choice(ways)
        return json.dumps(value)

    def flow(self, parts: list[str], brackets: str) -> str:
        blank = self.random.choice(["", " "])
        tail = "," if parts and self.maybe(0.2) else ""
        return brackets[0] + blank + self.random.choice([", ", " , ", ",  "]).join(parts) + tail + blank + brackets[1]


def plain(text: str) -> Any:
    """What PyYAML reads, with every scalar as its text; the error for what it does not read."""
    try:
        return list(yaml.load_all(text, Loader=yaml.CBaseLoader))
    except (yaml.YAMLError, TypeError, ValueError) as error:
        return type(error)


def pointers(value: Any, path: str = "") -> list[tuple[str, Any]]:
    found = [(path, value)]
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        found += pointers(member, path + pointer(key))
    return found


def operation(value: Any, random: Random, fresh: Any) -> TreeOperation | None:
    """Some operation that fits."""
    path, member = random.choice(pointers(value))
    kind = random.choice(["add", "add", "remove", "replace", "rename"])
    if kind == "add" and isinstance(member, dict):
        key = random.choice(["affinity", "new", "example.org/x", "off", "387"])
        return None if key in member else Add(path + pointer(key), fresh)
    if kind == "add" and isinstance(member, list):
        return Add(f"{path}/{random.choice(['-', *map(str, range(len(member) + 1))])}", fresh)
    if not path or kind == "add":
        return None
    if kind == "remove":
        return Remove(path)
    if kind == "replace":
        return Replace(path, fresh)
    parent = read(value, pointer(*segments(path)[:-1]))
    return Rename(path, "renamed") if isinstance(parent, dict) and "renamed" not in parent else None


def shuffled(text: str, random: Random) -> bytes:
    """The same text with other line ends, marks and neighbours."""
    if random.random() < 0.2:
        text = text.rstrip("\n")
    if random.random() < 0.3:
        text = random.choice(["# 𝒳\n", "a: 𝒳\n", "--- |\n x\n"]) + "---" + random.choice([" # b\n", "\n"]) + text
    if random.random() < 0.2:
        text = text.rstrip("\n") + "\n---\n" + random.choice(["", "b: 1\n", "# c"])
    if random.random() < 0.3:
        text = text.replace("\n", "\r\n")
    return (b"\xef\xbb\xbf" if random.random() < 0.2 else b"") + text.encode()


@pytest.mark.req("MF-054", "MF-061", "MF-091")
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(value=OBJECTS, fresh=st.lists(VALUES, min_size=1, max_size=4), random=st.randoms(use_true_random=False))
def test_edits_do_what_was_asked_and_nothing_else(value: Any, fresh: list[Any], random: Random) -> None:
    """MF-091, MF-054: every edit that is accepted is proven; MF-061: line ends and marks stay."""
    data = shuffled(Writer(random).text(value), random)
    source = SourceText.of("web.yaml", data)
    documents = [document for document in compose(source) if isinstance(document.value, dict)]
    document = random.choice(documents)
    operations: list[TreeOperation] = []
    changed = document.value
    for member in fresh:
        step = operation(changed, random, member)
        if step is not None:
            operations.append(step)
            changed = apply(changed, [step])
    try:
        edits = render(source, document, operations)
    except CannotEdit:
        return
    after = splice(source.text, edits)
    assert prove(source, after, {document.index: operations}) is None, (source.text, operations, after)
    for _ in range(4):
        at = random.randrange(len(after))
        noise = random.choice(["", " ", "\n", "x", " # ", ": ", "1", "'", "- ", "&a ", "\t"])
        other = after[:at] + noise + after[at + random.randint(0, 2) :]
        if plain(other) != plain(after):
            assert prove(source, other, {document.index: operations}) is not None, (source.text, operations, other)
    assert all(document.chunk_start <= edit.start <= edit.end <= document.chunk_end for edit in edits)
    if "\n" not in source.text.replace("\r\n", ""):
        assert "\n" not in after.replace("\r\n", "") or "\r\n" not in source.text
    if all(isinstance(step, Add) for step in operations):
        gone = [source.text[edit.start : edit.end] for edit in edits]
        assert all(text.strip("[]{} \t~") in ("", "null") for text in gone), (source.text, operations, gone)


@pytest.mark.req("MF-091")
@settings(max_examples=150, deadline=None)
@given(text=st.text(alphabet="ab:-#?&*!|>'\"%@`{}[],<= \t\n\r\x85\u2028\ufeff𝒳~.0", max_size=60))
def test_no_text_makes_a_scan_fail(text: str) -> None:
    """Whatever a file says, there are objects or there is a finding with a place inside the file."""
    source = SourceText.of("web.yaml", ("image: x\n" + text).encode())
    found = scan(source)
    for problem in (each for rule in DOCUMENT_RULES for each in rule.check(found)):
        assert 0 <= problem.span.start <= problem.span.end <= len(source.text)
    for document in found.documents:
        assert prove(source, source.text, {document.index: []}) is None
        document.span(document.root)


# Shared text ----------------------------------------------------------------------------------------------------------

NODE_AFFINITY, TERMS = "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"
IMAGES = {"a:1": ["linux/amd64"], "b:1": ["linux/amd64", "linux/arm64"], "c:1": ["linux/arm64"]}


class Shared(str):
    """A string that is written with an anchor where it is used twice."""

    __slots__ = ()


class Merged(dict[str, Any]):
    """A mapping that is written with a merge key for its ``base``."""

    def __init__(self, base: dict[str, Any], own: dict[str, Any]) -> None:
        super().__init__({**base, **own})
        self.base, self.own = base, own


class Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return not isinstance(data, Shared | dict | list)


def merging(dumper: Dumper, value: Merged) -> yaml.Node:
    node = dumper.represent_mapping("tag:yaml.org,2002:map", value.own)
    node.value.insert(0, (yaml.ScalarNode("tag:yaml.org,2002:merge", "<<"), dumper.represent_data(value.base)))
    return node


Dumper.add_representer(Merged, merging)
Dumper.add_representer(Shared, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:str", str(value)))


def objects(random: Random) -> dict[str, Any]:
    """A list of objects some of which are pods; random parts of them are one and the same."""
    pool: dict[str, list[Any]] = {}

    def some(kind: str, make: Any, chance: float = 0.45) -> Any:
        """A new part, or one that is used elsewhere."""
        known = pool.setdefault(kind, [])
        if known and random.random() < chance:
            return random.choice(known)
        known.append(make())
        return known[-1]

    def text(*choices: str) -> Any:
        return some("text", lambda: Shared(random.choice(choices)), 0.2)

    def words(*choices: str) -> Any:
        return some("list", lambda: [text(each) for each in random.sample(choices, random.randint(1, len(choices)))])

    def expression() -> Any:
        key = random.choice(["kubernetes.io/arch"] * 3 + ["beta.kubernetes.io/arch", "kubernetes.io/os", "team"])
        values = words("linux", "windows") if key.endswith("os") else words("amd64", "arm64", "s390x", "x86_64", "web")
        return some(
            "map", lambda: {"key": text(key), "operator": random.choice(["In"] * 4 + ["NotIn"]), "values": values}
        )

    def terms() -> Any:
        return some("list of maps", lambda: [{"matchExpressions": expressions()} for _ in range(random.randint(1, 2))])

    def expressions() -> Any:
        return some("list of maps", lambda: [expression() for _ in range(random.randint(1, 2))])

    def affinity() -> Any:
        preferred = [{"weight": 1, "preference": {"matchExpressions": expressions()}}]
        node = {NODE_AFFINITY: some("map", lambda: {TERMS: terms()}, 0.2)}
        if random.random() < 0.3:
            node["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
        return some("map", lambda: {"nodeAffinity": node, "podAffinity": {"x": words("amd64", "arm64")}}, 0.3)

    def selector() -> Any:
        key = random.choice(["kubernetes.io/arch", "beta.kubernetes.io/arch", "kubernetes.io/os"])
        return some("map", lambda: {key: text("amd64", "arm64", "x86_64", "linux")}, 0.3)

    def container() -> Any:
        made = {"name": "c", "image": text(*IMAGES)}
        return {**made, "args": words("amd64", "s390x")} if random.random() < 0.6 else made

    def pod_spec() -> Any:
        made: dict[str, Any] = {"containers": some("containers", lambda: [container()], 0.2)}
        if random.random() < 0.7:
            made["affinity"] = affinity()
        if random.random() < 0.4:
            made["nodeSelector"] = selector()
        if "pod" in pool and random.random() < 0.2:
            return Merged(random.choice(pool["pod"]), {key: made[key] for key in ("nodeSelector",) if key in made})
        return some("pod", lambda: made, 0.2)

    def item(number: int) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": f"n{number}"}
        if random.random() < 0.3:
            metadata["labels"] = selector()
        if random.random() < 0.1:
            metadata["annotations"] = {"ignore-check.polyarch.dev/MA102": "for a reason"}
        match random.choice(["Pod", "Pod", "Deployment", "DaemonSet", "PersistentVolume", "ConfigMap"]):
            case "Pod":
                return {"kind": "Pod", "metadata": metadata, "spec": pod_spec()}
            case "PersistentVolume" as kind:
                return {"kind": kind, "metadata": metadata, "spec": {"nodeAffinity": {"required": {TERMS: terms()}}}}
            case "ConfigMap" as kind:
                return {"kind": kind, "metadata": metadata, "data": {"a": words("amd64", "web"), "b": selector()}}
            case kind:
                template = some("template", lambda: {"spec": pod_spec()}, 0.2)
                return {"kind": kind, "metadata": metadata, "spec": {"selector": selector(), "template": template}}

    return {"kind": "List", "x": words("amd64", "s390x"), "items": [item(n) for n in range(random.randint(1, 4))]}


def leaves(left: Any, right: Any, here: str = "") -> list[str]:
    """Pointers at which two values differ; a list of another length differs as a whole."""
    if isinstance(left, dict) and isinstance(right, dict):
        keys = dict.fromkeys((*left, *right))
        return [each for key in keys for each in leaves(left.get(key), right.get(key), here + pointer(key))]
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs = enumerate(zip(left, right, strict=True))
        return [each for place, (one, other) in pairs for each in leaves(one, other, f"{here}/{place}")]
    return [] if left == right else [here]


@pytest.mark.req("MF-053", "MF-054")
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(random=st.randoms(use_true_random=False), flags=st.booleans())
def test_a_fix_changes_what_it_lists_and_nothing_that_only_shares_its_text(random: Random, flags: bool) -> None:
    """What PyYAML reads differs at the listed places only, and these are those of pods' constraints."""
    text = yaml.dump(objects(random), Dumper=Dumper, sort_keys=False, default_flow_style=random.random() < 0.3 or None)
    file = AnswerFile.from_mapping(IMAGES)
    known = ImageInspections({image: answer for image in IMAGES if (answer := file.get(parse(image))) is not None})
    options = LintOptions(fixes=FixOptions(widen=flags, replace=flags))
    result = fix(SourceText.of("web.yaml", text.encode()), known, FixRequest(options=options))
    account = FixReport("write")
    account.take(result)
    (entry,) = account.document(Report.of(result.remaining))["files"] or [{"changes": []}]
    assert result.unproven is None, (text, result.unproven.message)
    before, after = yaml.safe_load(text), yaml.safe_load(result.text)
    assert [change["document"] for change in entry["changes"]] == [0] * len(entry["changes"])
    listed = {change["path"] for change in entry["changes"]}
    listed |= {path.rpartition("/")[0] for path in listed if path[-1] in "-0123456789"}
    places = leaves(before, after)
    assert all(any(is_below(place, path) for path in listed) for place in places), (text, result.text, listed)
    # The same text without an anchor says where there are pods and what they need.
    written_out = scan(SourceText.of("web.yaml", json.dumps(before).encode()))
    fields = [f"{pod.pointer}/{field}" for pod in written_out.pod_specs for field in ("affinity", "nodeSelector")]
    assert all(any(is_below(place, field) for field in fields) for place in places), (text, result.text)
    suppressed = [
        each.pointer for each in written_out.objects if "annotations" in read(before, each.pointer)["metadata"]
    ]
    if all(finding.rule == "MA102" for finding in result.applied):
        assert not any(is_below(place, each) for place in places for each in suppressed), (text, result.text)
