"""``python -m tools.random_manifests [N] [SEED]``: fixes random files and holds what was written against what was said.

Each file is written in a random way: block and flow style, JSON, anchors and aliases, merge keys, tags, comments,
quotes, block scalars, tabs, long lines, several documents, CRLF, a byte-order mark, no last line break, blanks in its
name. ``polyarch fix --write`` edits them all, as its users run it. Then others judge: PyYAML and kubectl read each
file before and after, BuildKit's parser each Dockerfile, and what differs must be what the report lists; comments and
lines must be the same elsewhere;
``git apply`` and ``patch`` must make of the printed diff what ``--write`` has written; a second run must change
nothing. The table says how often each rule was repaired in each style.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import yaml

from polyarch.kube.patches import pointer
from polyarch.manifests.operations import is_below
from polyarch.manifests.scan.dockerfiles import read_dockerfile

BATCH = 500
MINUTES = 60
"""Of one program on one batch: many times what it takes on a machine that is busy with other things."""
DIGESTS = {name: f"sha256:{name * 64}" for name in "abcd"}
IMAGES: Mapping[str, Any] = {
    "r.example/amd:1": ["linux/amd64"],
    "r.example/arm:1": ["linux/arm64"],
    "r.example/two:1": ["linux/amd64", "linux/arm64"],
    "r.example/four:1": ["linux/amd64", "linux/arm64", "linux/ppc64le", "linux/s390x"],
    "r.example/win:1": ["linux/amd64", "windows/amd64"],
    "r.example/pinned:1": {
        "platforms": ["linux/amd64", "linux/arm64"],
        "digest": DIGESTS["a"],
        "children": {"linux/amd64": DIGESTS["b"], "linux/arm64": DIGESTS["c"]},
    },
    f"r.example/pinned:1@{DIGESTS['a']}": {"platforms": ["linux/amd64", "linux/arm64"], "digest": DIGESTS["a"]},
    f"r.example/pinned:1@{DIGESTS['b']}": {"kind": "image", "platforms": ["linux/amd64"], "digest": DIGESTS["b"]},
}
PINNED = f"r.example/pinned:1@{DIGESTS['b']}"
TEXTS = [*IMAGES, PINNED, "r.example/two:1", "r.example/unknown:1"]
FLAGS: Sequence[Sequence[str]] = (
    (),
    ("--widen", "--replace", "--remove-labels", "--prefer", "arm64=50"),
    ("--uncomment", "--platforms", "linux/amd64,linux/arm64"),
)
KINDS = ("Pod", "Deployment", "Deployment", "DaemonSet", "CronJob", "Workflow", "CSV", "Config", "Preview", "Custom")
ARCHITECTURE = "kubernetes.io/arch"
REQUIRED, PREFERRED = (f"{word}DuringSchedulingIgnoredDuringExecution" for word in ("required", "preferred"))


# -- random objects ----------------------------------------------------------------------------------------------------


class Objects:
    """Makes objects whose parts are equal often enough to be shared."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.pool: dict[str, list[Any]] = {}

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def one(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def some(self, kind: str, made: Any) -> Any:
        """A new part, or an equal one that stands elsewhere."""
        known = self.pool.setdefault(kind, [])
        if known and self.maybe(0.4):
            return self.random.choice(known)
        known.append(made)
        return made

    def document(self, name: str) -> Any:
        if self.maybe(0.1):
            items = [self.object(f"{name}-i{number}") for number in range(self.random.randint(1, 3))]
            return {"apiVersion": "v1", "kind": "List", "items": items}
        return self.object(name)

    def object(self, name: str) -> Any:
        metadata = self.metadata(name)
        pod: dict[str, Any] = {"metadata": {"labels": {"app": "x"}}, "spec": self.pod_spec()}
        match self.one(*KINDS):
            case "Pod":
                return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self.pod_spec()}
            case "Deployment" | "DaemonSet" as kind:
                spec: dict[str, Any] = {"selector": {"matchLabels": {"app": "x"}}, "template": pod}
                return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}
            case "CronJob":
                spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": pod}}}
                return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}
            case "Workflow":
                return self.workflow(metadata)
            case "CSV":
                return self.service_version(metadata, pod)
            case "Custom":
                return self.custom(metadata)
            case "Preview":
                return {
                    "apiVersion": "multiarch.openshift.io/v1alpha1",
                    "kind": "PodPlacementConfig",
                    "metadata": metadata,
                    "spec": {"logVerbosity": "Normal"},
                }
        data = {"a": "amd64", "values.yaml": "nodeSelector:\n  kubernetes.io/arch: amd64\n# affinity:\n", "n": "386"}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}

    def metadata(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = {"name": name}
        if self.maybe(0.3):
            found["labels"] = self.selector() or {"a": "b"}
        if self.maybe(0.1):
            found["annotations"] = {"note": "word " * self.one(3, 400)}
        if self.maybe(0.08):
            found["annotations"] = {"ignore-check.polyarch.dev/MA101": "for a reason"}
        return found

    def workflow(self, metadata: dict[str, Any]) -> Any:
        spec: dict[str, Any] = {"entrypoint": "t0"}
        if self.maybe(0.5):
            spec["affinity"] = self.affinity()
        spec["templates"] = [
            {"name": f"t{number}", **self.scheduling(0.3), "container": self.container(0)}
            for number in range(self.random.randint(1, 3))
        ]
        return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": metadata, "spec": spec}

    def custom(self, metadata: dict[str, Any]) -> Any:
        """Kinds whose pods are put together of several places, some of which may be missing."""
        image = self.one(*TEXTS)
        steps = {"steps": [{"name": "s", "image": image}]}
        match self.one("Prometheus", "Kafka", "Spark", "Cluster", "TaskRun", "PipelineRun", "Knative"):
            case "Prometheus":
                version, kind, spec = "monitoring.coreos.com/v1", "Prometheus", {"image": image, **self.scheduling(0.5)}
            case "Kafka":
                kafka: dict[str, Any] = {"image": image}
                if self.maybe(0.5):
                    kafka["template"] = {"pod": {"affinity": self.affinity()}}
                version, kind, spec = "kafka.strimzi.io/v1beta2", "Kafka", {"kafka": kafka}
            case "Spark":
                driver = {"cores": 1, **self.scheduling(0.5)}
                spec = {"image": image, "driver": driver, "executor": {"cores": 1}}
                version, kind = "sparkoperator.k8s.io/v1beta2", "SparkApplication"
            case "Cluster":
                version, kind, spec = "postgresql.cnpg.io/v1", "Cluster", {"imageName": image}
                if self.maybe(0.5):
                    spec["affinity"] = {"nodeSelector": self.selector()}
            case "TaskRun":
                version, kind, spec = "tekton.dev/v1", "TaskRun", {"taskSpec": steps}
                if self.maybe(0.5):
                    spec["podTemplate"] = self.scheduling(0.9)
            case "PipelineRun":
                names = [f"t{number}" for number in range(self.one(1, 2))]
                spec = {"pipelineSpec": {"tasks": [{"name": name, "taskSpec": steps} for name in names]}}
                version, kind = "tekton.dev/v1", "PipelineRun"
            case _:
                version, kind, spec = "serving.knative.dev/v1", "Service", {"template": {"spec": self.pod_spec()}}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}

    def service_version(self, metadata: dict[str, Any], pod: Any) -> Any:
        labels = {f"operatorframework.io/arch.{name}": "supported" for name in ("amd64", "s390x") if self.maybe(0.6)}
        deployment = {"name": "m", "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": pod}}
        return {
            "apiVersion": "operators.coreos.com/v1alpha1",
            "kind": "ClusterServiceVersion",
            "metadata": {**metadata, "labels": labels} if labels else metadata,
            "spec": {"install": {"strategy": "deployment", "spec": {"deployments": [deployment]}}},
        }

    def pod_spec(self) -> dict[str, Any]:
        containers = [self.container(number) for number in range(self.random.choice([1, 1, 2]))]
        spec: dict[str, Any] = {}
        if self.maybe(0.3):
            spec["serviceAccountName"] = "x"
        spec["containers"] = self.some("containers", containers)
        if self.maybe(0.2):
            spec["initContainers"] = [self.container(7)]
        spec |= self.scheduling(0.5)
        if self.maybe(0.1):
            spec["tolerations"] = [{"key": ARCHITECTURE, "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}]
        return spec

    def scheduling(self, chance: float) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.maybe(chance):
            found["affinity"] = self.some("affinity", self.affinity())
        if self.maybe(chance):
            found["nodeSelector"] = self.some("selector", self.selector())
        return found

    def container(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = {"name": f"c{number}", "image": self.one(*TEXTS)}
        if self.maybe(0.3):
            found["args"] = self.some(f"values of {ARCHITECTURE}", self.values(ARCHITECTURE))
        if self.maybe(0.15):
            found["command"] = ["sh", "-c", 'set -e\n# affinity:\nuname -m  # x86_64\nexec "$@"\n']
        return found

    def selector(self) -> dict[str, Any]:
        key = self.one(ARCHITECTURE, ARCHITECTURE, f"beta.{ARCHITECTURE}", "pool")
        found = {key: self.one("amd64", "arm64", "x86_64", "aarch64", "s390x")}
        return found | ({"kubernetes.io/os": "linux"} if self.maybe(0.5) else {})

    def affinity(self) -> dict[str, Any]:
        node: dict[str, Any] = {}
        if self.maybe(0.85):
            terms = [
                {"matchExpressions": self.some("expressions", self.expressions())} for _ in range(self.one(1, 1, 2))
            ]
            node[REQUIRED] = {"nodeSelectorTerms": self.some("terms", terms)}
        if self.maybe(0.3) or not node:
            weighed = {"weight": self.one(1, 50), "preference": {"matchExpressions": self.expressions()}}
            node[PREFERRED] = [weighed]
        found: dict[str, Any] = {"nodeAffinity": node}
        if self.maybe(0.3):
            labels = {"matchExpressions": [{"key": "app", "operator": "In", "values": self.values(ARCHITECTURE)}]}
            found["podAntiAffinity"] = {REQUIRED: [{"topologyKey": "zone", "labelSelector": labels}]}
        return found

    def expressions(self) -> list[Any]:
        found = []
        for key in self.random.sample(
            [ARCHITECTURE, f"beta.{ARCHITECTURE}", "kubernetes.io/os", "pool"], self.one(1, 2, 2)
        ):
            operator = self.one("In", "In", "In", "NotIn")
            found.append({"key": key, "operator": operator, "values": self.some(f"values of {key}", self.values(key))})
        return found

    def values(self, key: str) -> list[str]:
        if key.endswith("/os"):
            return list(self.one(["linux"], ["linux", "windows"]))
        choices = ["amd64", "arm64", "s390x", "ppc64le", "x86_64", "386"]
        return self.random.sample(choices, self.random.randint(1, 4))


def dockerfile(random: Random) -> str:
    """Stages with and without a fixed architecture, in the ways in which people write them."""
    architecture = random.choice(["amd64", "amd64", "arm64"])
    lines = random.choice([[], ["# syntax=docker/dockerfile:1"], ["ARG VERSION=1"]])
    lines = [
        *lines,
        *random.choice([["FROM golang:1 AS build"], ["FROM --platform=$BUILDPLATFORM \\", "    golang:1 AS build"]]),
    ]
    steps = [
        ["WORKDIR /src"],
        ["# builds"],
        [""],
        [f"ENV CGO_ENABLED=0 GOARCH={architecture}"],
        [f"RUN GOARCH={architecture} go build ./..."],
        ["RUN CGO_ENABLED=0 \\", "    # static", f"    GOARCH={architecture} \\", "    go build -o /x ."],
        ["ARG TARGETARCH"],
        ["RUN <<EOF", f"export GOARCH={architecture}", "EOF"],
        [f"RUN wget https://x.example/tool-{architecture}"],
        [f"ENV GOARCH {architecture}"],
        [f"\tenv GOARCH={architecture} \\ ", "  CGO_ENABLED=0"],
        ["run <<-EOF cat", f"\tGOARCH={architecture}", "\tEOF"],
        [f"LABEL note='GOARCH={architecture}' \\", "  # of the label", "\t# again", "  b=c"],
        ["RUN a \\", "", f"  GOARCH={architecture} b"],
        ["ONBUILD ENV GOARCH=" + architecture],
        ['SHELL ["/bin/sh", "-c"]'],
        ["COPY <<a <<b /x/", f"GOARCH={architecture}", "a", "FROM b", "b"],
        [f"RUN go env -w GOARCH={architecture} && echo '\\\\' \\", " && true"],
    ]
    for step in random.sample(steps, random.randint(1, 5)):
        lines += step
    if random.random() < 0.6:
        lines += [random.choice(["FROM scratch", f"FROM --platform=linux/{architecture} r.example/two:1"])]
        lines += ["COPY --from=build /x /x"]
    if random.random() < 0.05:
        lines = ["# escape=`", *lines]
    ending = random.choice(["\n", "\n", "\n", "\r\n"])
    return ending.join(lines) + (ending if random.random() < 0.9 else "")


# -- random text -------------------------------------------------------------------------------------------------------


class Writer:
    """Writes objects as YAML in a random style; ``styles`` says which were used."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.styles: set[str] = set()
        self.comments, self.shares, self.tags, self.tabs = (random.random() < each for each in (0.5, 0.5, 0.25, 0.15))
        self.flow = random.choice([0, 0, 0.1, 0.4])
        self.anchors: list[tuple[str, Any]] = []
        self.number = 0

    def maybe(self, chance: float) -> bool:
        return self.random.random() < chance

    def used(self, style: str) -> None:
        self.styles.add(style)

    def file(self, documents: Sequence[Any]) -> bytes:
        parts = []
        for number, document in enumerate(documents):
            self.anchors = []
            if number or self.maybe(0.3):
                parts.append(self.random.choice(["---\n", "---\n", "--- # next\n" if self.comments else "---\n"]))
            parts.append(self.document(document, alone=len(documents) == 1))
        if len(documents) > 1:
            self.used("several documents")
        text = "".join(parts)
        if self.comments:
            self.used("comments")
            text = self.random.choice(["# first\n", "", "\n"]) + text + self.random.choice(["# last\n", "", "\n\n"])
        if self.maybe(0.1):
            text = text.rstrip("\n")
            self.used("no last line break")
        if self.maybe(0.15):
            text = text.replace("\n", "\r\n")
            self.used("CRLF")
        data = text.encode()
        if self.maybe(0.1):
            self.used("byte-order mark")
            data = b"\xef\xbb\xbf" + data
        return data

    def document(self, value: Any, *, alone: bool) -> str:
        if alone and self.maybe(0.1):  # kubectl reads no file whose first document is JSON and whose second is not
            self.used("JSON")
            self.comments = False
            separators = self.random.choice([None, (",", ":")])
            return json.dumps(value, indent=self.random.choice([None, 2, 4]), separators=separators) + "\n"
        return "".join(f"{line}\n" for line in self.block(value))

    def block(self, value: Any) -> list[str]:
        """Lines from column 0, of a collection that is not empty."""
        lines: list[str] = []
        step, indent = self.random.choice([2, 2, 2, 4]), self.random.choice([0, 0, 2])
        for head, member in self.entries(value):
            if lines and self.comments and self.maybe(0.1):
                lines.append(self.random.choice(["", "# note", "# affinity:", "    # - x"]))
            columns = (step if isinstance(member, dict) else indent) if head.endswith(":") else 2
            lines += self.entry(head, member, columns)
        return lines

    def entries(self, value: Any) -> Iterator[tuple[str, Any]]:
        if isinstance(value, list):
            yield from (("-", member) for member in value)
            return
        merged = self.merged(value)
        if merged is not None:
            name, keys = merged
            yield "<<:", _Text(f"*{name}")
            value = {key: member for key, member in value.items() if key not in keys}
        yield from ((f"{self.key(key)}:", member) for key, member in value.items())

    def merged(self, value: Mapping[str, Any]) -> tuple[str, set[str]] | None:
        """The anchor of a mapping that is a part of this one."""
        if not self.shares or len(value) < 2 or not self.maybe(0.7):
            return None
        for name, known in reversed(self.anchors):
            if isinstance(known, dict) and known and known.items() <= value.items():
                self.used("merge keys")
                return name, set(known)
        return None

    def shared(self, value: Any) -> tuple[str, str]:
        """The alias of an equal value, or an anchor."""
        if not self.shares:
            return "", ""
        known = [name for name, other in self.anchors if other == value and type(other) is type(value)]
        if known and self.maybe(0.6):
            self.used("aliases")
            return f"*{known[-1]}", ""
        if (isinstance(value, dict | list) and value and self.maybe(0.5)) or (
            value in ("amd64", "arm64") and self.maybe(0.3)
        ):
            self.number += 1
            return "", f"&a{self.number}"
        return "", ""

    def anchored(self, anchor: str, value: Any) -> None:
        if anchor:
            self.anchors.append((anchor[1:], value))

    def entry(self, head: str, member: Any, columns: int) -> list[str]:
        comment = " # note" if self.comments and self.maybe(0.1) else ""
        if isinstance(member, _Text):
            return [f"{head} {member}{comment}"]
        alias, anchor = self.shared(member)
        if alias:
            return [f"{head} {alias}{comment}"]
        gap = "\t" if self.tabs and head.endswith(":") and self.maybe(0.3) else " "
        if gap == "\t":
            self.used("tabs")
        before = f"{gap}{anchor}" if anchor else ""
        if isinstance(member, str) and "\n" in member:
            self.used("block scalars")
            mark = self.random.choice("||>") + self.random.choice(["", "", "-", "+"])
            return [f"{head}{before} {mark}", *(f"    {each}".rstrip() for each in member.splitlines())]
        if not isinstance(member, dict | list) or not member or self.maybe(self.flow):
            text = self.inline(member)
            self.anchored(anchor, member)
            if len(text) > 200:
                self.used("long lines")
            return [f"{head}{before}{gap if not before else ' '}{text}{comment}"]
        if self.tags and self.maybe(0.1):
            self.used("tags")
            before += f" !!{'map' if isinstance(member, dict) else 'seq'}"
        inner = self.block(member)
        self.anchored(anchor, member)
        self.used("block style")
        if not head.endswith(":") and not before and not comment:
            return [f"{head} {inner[0]}", *_indented(inner[1:], 2)]
        return [f"{head}{before}{comment}", *_indented(inner, columns)]

    def key(self, key: str) -> str:
        return self.random.choice([key, key, key, json.dumps(key)])

    def inline(self, value: Any) -> str:
        if isinstance(value, dict | list) and value:
            self.used("flow style")
            parts = []
            for head, member in self.entries(value):
                alias, anchor = ("", "") if isinstance(member, _Text) else self.shared(member)
                text = str(member) if isinstance(member, _Text) else alias or self.inline(member)
                if anchor:
                    self.anchored(anchor, member)
                    text = f"{anchor} {text}"
                # A blank behind an alias keeps the comma from its name.
                parts.append((f"{head} {text}" if head != "-" else text) + (" " if "*" in text[:1] else ""))
            blank, comma = self.random.choice(["", " "]), self.random.choice([", ", " , "])
            brackets = "{}" if isinstance(value, dict) else "[]"
            return brackets[0] + blank + comma.join(parts) + blank + brackets[1]
        if isinstance(value, str):
            ways = [json.dumps(value)]
            if "\n" not in value:
                ways.append("'" + value.replace("'", "''") + "'")
            if re.fullmatch(r"[A-Za-z][\w./-]*(:1)?", value) and value != "x":
                ways += [value] * 3
            text = self.random.choice(ways)
            if self.tags and self.maybe(0.05):
                self.used("tags")
                return f"!!str {text}"
            return text
        return json.dumps(value)


class _Text(str):
    """What is written as it stands."""

    __slots__ = ()


def _indented(lines: Sequence[str], columns: int) -> list[str]:
    return [" " * columns + line if line else line for line in lines]


# -- what was written against what was said ----------------------------------------------------------------------------


@dataclass
class Outcome:
    """Counts of a run, and everything that was not as it should be."""

    files: int = 0
    changed: int = 0
    refused: int = 0
    judged: int = 0
    """Objects that kubectl read before and after."""
    instructions: int = 0
    """Instructions that BuildKit's parser read before and after, and polyarch likewise."""
    applied: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Repairs that were written into files that are as the report says, by rule and style."""
    places: int = 0
    """Listed operations whose places differ."""
    failures: list[str] = field(default_factory=list)

    def table(self) -> str:
        from polyarch.cli.output.tables import Row, table

        styles = sorted({style for _, style in self.applied})
        rules = sorted({rule for rule, _ in self.applied})
        rows = [Row([rule, *(str(self.applied[rule, style]) for style in styles)]) for rule in rules]
        return table(["WRITTEN", *styles], rows)


def run(number: int, seed: int, folder: Path, *, kubectl: str | None, parser: str | None = None) -> Outcome:
    """Fix ``number`` random files in ``folder``; without ``kubectl`` or BuildKit's ``parser`` their judgement is left
    out.
    """
    outcome = Outcome()
    for batch in range(0, number, BATCH):
        flags = FLAGS[batch // BATCH % len(FLAGS)] if number > BATCH else ()
        for part, some in enumerate([flags] if number > BATCH else FLAGS):
            size = min(BATCH, number - batch) // (1 if number > BATCH else len(FLAGS))
            place = folder / f"{batch}-{part}"
            _Batch(place, Random(f"{seed}-{batch}-{part}"), some, outcome, kubectl, parser).run(size)
            shutil.rmtree(place)
        if number > BATCH:
            print(f"{outcome.files} files, {len(outcome.failures)} failures", file=sys.stderr, flush=True)
    return outcome


class _Batch:
    def __init__(
        self,
        folder: Path,
        random: Random,
        flags: Sequence[str],
        outcome: Outcome,
        kubectl: str | None,
        parser: str | None = None,
    ) -> None:
        self.folder, self.random, self.flags, self.outcome = folder, random, flags, outcome
        self.kubectl, self.parser = kubectl, parser
        self.before, self.after = folder / "before", folder / "after"
        self.styles: dict[str, set[str]] = {}

    def run(self, number: int) -> None:
        self.before.mkdir(parents=True)
        (self.folder / "answers.json").write_text(json.dumps(IMAGES))
        for each in range(number):
            self.write(each)
        shutil.copytree(self.before, self.after)
        diff = self.fix(self.before)
        (self.folder / "d.patch").write_bytes(diff)
        self.fix(self.after, "--write", "-o", f"json={self.folder / 'report.json'}")
        if not (self.folder / "report.json").exists():
            return
        report = json.loads((self.folder / "report.json").read_text())
        for gap in report["incomplete"]:
            if gap["file"]:
                self.fail(f"{gap['file']}: {gap['message']}")
        self.compare(report)
        self.apply()
        if self.kubectl is not None:
            self.judge(report, self.kubectl)
        if self.parser is not None:
            self.judge_dockerfiles(report, self.parser)
        again = self.fix(self.after)
        if again:
            self.fail("a second run changes", again[:2000].decode())
        self.outcome.files += number

    def fail(self, what: str, details: str = "") -> None:
        self.outcome.failures.append(f"{' '.join(self.flags) or 'without flags'}: {what}\n{details}")

    def write(self, number: int) -> None:
        name = f"f{number}.yaml" if self.random.random() < 0.9 else f"f {number}.yaml"
        if self.random.random() < 0.06:
            name = f"Dockerfile.f{number}"
            data, styles = dockerfile(self.random).encode(), {"Dockerfile"}
        else:
            objects, writer = Objects(self.random), Writer(self.random)
            documents = [
                objects.document(f"f{number}-d{place}") for place in range(self.random.choice([1, 1, 1, 2, 3]))
            ]
            data, styles = writer.file(documents), writer.styles
        (self.before / name).write_bytes(data)
        self.styles[name] = styles

    def fix(self, place: Path, *options: str) -> bytes:
        """The command's standard output; 3 is for an image that nobody knows."""
        words = [sys.executable, "-m", "polyarch", "fix", ".", "--platforms-file", "../answers.json", "--offline"]
        words += ["--include", "MA301", *self.flags, *options]
        done = subprocess.run(words, cwd=place, capture_output=True, check=False, timeout=MINUTES * 60)
        if done.returncode not in (0, 1, 3):
            self.fail(f"exit code {done.returncode}", done.stderr.decode()[-2000:])
        return done.stdout

    def compare(self, report: Mapping[str, Any]) -> None:
        """What PyYAML reads differs at all listed places and at no other, and files without a listed change are the
        same.
        """
        listed = {entry["file"].removeprefix("./"): entry["changes"] for entry in report["files"]}
        right: set[str] = set()
        for name in self.styles:
            old, new = (self.before / name).read_bytes(), (self.after / name).read_bytes()
            failures = len(self.outcome.failures)
            if name not in listed:
                if old != new:
                    self.fail(f"{name} has changed and is not listed")
                continue
            self.outcome.changed += 1
            if old == new:
                self.fail(f"{name} is listed and has not changed")
            elif not name.startswith("Dockerfile"):
                self.compare_documents(name, old, new, listed[name])
            elif [line for line in old.splitlines() if b"#" in line] != [
                line for line in new.splitlines() if b"#" in line
            ]:
                self.fail(f"{name} has other comments", new.decode())
            if len(self.outcome.failures) == failures:
                right.add(name)
                self.outcome.places += len(listed[name])
        for finding in report["fixed"]:
            name = finding["file"].removeprefix("./")
            rule = f"{finding['rule']}/{finding['sub']}" if finding.get("sub") else finding["rule"]
            if name in right:
                self.outcome.applied.update((rule, style) for style in self.styles[name])
            elif name not in listed:
                self.fail(f"{name}: {rule} is said to be fixed, and no change is listed")
        self.outcome.refused += len(report["notFixed"])

    def compare_documents(self, name: str, old: bytes, new: bytes, changes: Sequence[Mapping[str, Any]]) -> None:
        before, after = (list(yaml.load_all(data.decode("utf-8-sig"), Loader=_Loader)) for data in (old, new))
        if len(before) < len(after) and any("PodPlacementConfig" in json.dumps(each) for each in before):
            after = [each for each in after if (each or {}).get("kind") != "PlacementPolicy"]
        if len(before) != len(after):
            self.fail(f"{name} has another number of documents", new.decode())
            return
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            places = [change["path"] for change in changes if change["document"] == number]
            different = leaves(one, other)
            for leaf in different:
                if not _is_listed(leaf, places):
                    self.fail(f"{name}, document {number}: {leaf} has changed and is not listed", new.decode())
            for place in places:
                around = place.rpartition("/")[0]  # a later operation may move or remove what an earlier one changed
                if not any(is_below(leaf, around) or is_below(around, leaf) for leaf in different):
                    self.fail(f"{name}, document {number}: {place} is listed and has not changed", new.decode())
        lost = Counter(re.findall(rb"# (?:note|first|last|next)", old)) - Counter(
            re.findall(rb"# (?:note|first|last|next)", new)
        )
        if lost and not any(change["operation"] != "add" for change in changes):
            self.fail(f"{name} has lost comments", new.decode())

    def apply(self) -> None:
        """``git apply`` and ``patch`` make what ``--write`` made."""
        for words in (
            ["git", "apply", "--whitespace=nowarn", "../d.patch"],
            ["patch", "-s", "-p1", "--binary", "-i", "../d.patch"],
        ):
            if shutil.which(words[0]) is None:
                continue
            place = self.folder / words[0]
            shutil.copytree(self.before, place)
            environment = os.environ | {"GIT_CEILING_DIRECTORIES": str(self.folder)}
            done = subprocess.run(words, cwd=place, capture_output=True, check=False, timeout=300, env=environment)
            different = [
                name for name in self.styles if (place / name).read_bytes() != (self.after / name).read_bytes()
            ]
            if done.returncode or different:
                self.fail(
                    f"{words[0]} makes something else of {different[:5]}", (done.stdout + done.stderr).decode()[:2000]
                )

    def judge(self, report: Mapping[str, Any], kubectl: str) -> None:
        """What kubectl reads of each object differs at the listed places only."""
        places: dict[str, list[str]] = {}
        for entry in report["files"]:
            name = entry["file"].removeprefix("./")
            if name.startswith("Dockerfile"):
                continue
            text = (self.before / name).read_text(encoding="utf-8-sig")
            for number, document in enumerate(yaml.load_all(text, Loader=_Loader)):
                within = [change["path"] for change in entry["changes"] if change["document"] == number]
                items = enumerate(document["items"]) if document["kind"] == "List" else [(None, document)]
                for place, item in items:
                    root = "" if place is None else f"/items/{place}"
                    found = [path.removeprefix(root) for path in within if is_below(path, root)]
                    places[item["metadata"]["name"]] = found
        before, after = self.read(kubectl, self.before), self.read(kubectl, self.after)
        for name, old in before.items():
            new = after.get(name)
            for leaf in leaves(old, new) if new is not None else []:
                if not _is_listed(leaf, places.get(name, [])):
                    self.fail(f"kubectl reads {leaf} of {name} otherwise, which is not listed", json.dumps(new))
            if new is None and not any(path == "/metadata/name" for path in places.get(name, [])):
                self.fail(f"kubectl reads no {name} any more")
        self.outcome.judged += len(before)

    def judge_dockerfiles(self, report: Mapping[str, Any], parser: str) -> None:
        """BuildKit's parser reads the instructions that polyarch reads, and others afterwards at the listed places."""
        listed = {entry["file"].removeprefix("./"): entry["changes"] for entry in report["files"]}
        names = [name for name in self.styles if name.startswith("Dockerfile")]
        old, new = (
            _instructions(parser, [(place / name).read_bytes().decode() for name in names])
            for place in (self.before, self.after)
        )
        for name, before, after in zip(names, old, new, strict=True):
            if isinstance(before, str) or isinstance(after, str):
                if before != after or name in listed:
                    self.fail(f"BuildKit cannot read {name}: {before if isinstance(before, str) else after}")
                continue
            expected: list[Any] = list(before)
            for change in listed.get(name, []):
                place = int(change["path"].removeprefix("/"))
                match change["operation"]:
                    case "add":
                        expected.insert(place, None)
                    case "remove":
                        del expected[place]
                    case _:
                        expected[place] = None
            same = [one is None or one == other for one, other in zip(expected, after, strict=False)]
            if len(expected) != len(after) or not all(same):
                self.fail(f"BuildKit reads other instructions in {name} than are listed", json.dumps([before, after]))
            for folder, read in ((self.before, before), (self.after, after)):
                own = read_dockerfile((folder / name).read_bytes().decode())
                if not own.doubt and [each.text.strip() for each in own.instructions] != [each[0] for each in read]:
                    self.fail(f"{name} is read otherwise than by BuildKit", json.dumps(read))
            self.outcome.instructions += len(before)

    def read(self, kubectl: str, place: Path) -> dict[str, Any]:
        words = [kubectl, "label", "--local", "-R", "-f", ".", "random=manifests", "--overwrite", "-o", "json"]
        done = subprocess.run(
            [*words, "--kubeconfig=/dev/null"], cwd=place, capture_output=True, check=False, timeout=900
        )
        if done.stderr:
            self.fail("kubectl cannot read a file", done.stderr.decode()[:2000])
        objects: list[dict[str, Any]] = []
        decoder, text, at = json.JSONDecoder(), done.stdout.decode(), 0
        while text[at:].strip():
            value, at = decoder.raw_decode(text, at + len(text[at:]) - len(text[at:].lstrip()))
            objects += value["items"] if value["kind"] == "List" else [value]
        return {each["metadata"]["name"]: each for each in objects}


def _instructions(parser: str, texts: Sequence[str]) -> list[list[tuple[str, ...]] | str]:
    """The instructions of each text as BuildKit's parser reads them, with their here-documents; or why it cannot."""
    asked = "".join(f"{json.dumps(text)}\n" for text in texts)
    done = subprocess.run([parser], input=asked, capture_output=True, text=True, check=True, timeout=300)
    return [
        answer.get("error") or [(each["text"].strip(), *each["documents"]) for each in answer["instructions"]]
        for answer in map(json.loads, done.stdout.splitlines())
    ]


class _Loader(yaml.CSafeLoader):
    """PyYAML, but a date is a text as it is for kubectl."""


_Loader.yaml_implicit_resolvers = {
    mark: [each for each in resolvers if not each[0].endswith(":timestamp")]
    for mark, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def leaves(left: Any, right: Any, here: str = "") -> list[str]:
    """Pointers at which two values differ; a list of another length differs as a whole."""
    if isinstance(left, dict) and isinstance(right, dict):
        keys = dict.fromkeys((*left, *right))
        missing = object()
        return [
            each
            for key in keys
            for each in leaves(left.get(key, missing), right.get(key, missing), here + pointer(str(key)))
        ]
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs = enumerate(zip(left, right, strict=True))
        return [each for place, (one, other) in pairs for each in leaves(one, other, f"{here}/{place}")]
    return [] if type(left) is type(right) and left == right else [here]


def _is_listed(leaf: str, places: Sequence[str]) -> bool:
    """Whether a listed operation is about a place; one on an element is about its list, whose indexes move."""
    for place in places:
        parent, _, last = place.rpartition("/")
        if is_below(leaf, parent if last == "-" or last.isdigit() else place):
            return True
    return False


def main(arguments: Sequence[str]) -> int:
    """Prints the table and what went wrong; returns 1 if anything did."""
    number, seed = (int(each) for each in (*arguments[:2], *("500", "1")[len(arguments[:2]) :]))
    with tempfile.TemporaryDirectory() as folder:
        outcome = run(
            number, seed, Path(folder), kubectl=shutil.which("kubectl"), parser=shutil.which("dockerfile-parser")
        )
    sys.stdout.write(outcome.table())
    print(f"{outcome.files} files, {outcome.changed} changed at {outcome.places} places")
    print(f"{outcome.refused} repairs refused")
    print(f"{outcome.judged} objects read by kubectl, {outcome.instructions} instructions by BuildKit")
    print(f"{len(outcome.failures)} failures")
    for failure in outcome.failures[:20]:
        print(failure, file=sys.stderr)
    return int(bool(outcome.failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
