"""Shared by the tests of the rules: a manifest and answers in, problems out, repairs applied."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import yaml

from polyarch.manifests import operations as tree
from polyarch.manifests.rules.engine import RepairableFinding, lint
from polyarch.manifests.rules.options import LintOptions
from polyarch.manifests.scan.scanning import Scan, scan
from polyarch.manifests.scan.sets import ImageInspections
from polyarch.manifests.scan.text import SourceText
from polyarch.oci.platforms_file import AnswerFile
from polyarch.oci.reference import InvalidReference, parse

ROUNDS = 20


def answers(images: Mapping[str, Any], texts: Sequence[str] = ()) -> ImageInspections:
    """Answers as a platforms file says them, for its own keys and for more texts."""
    file = AnswerFile.from_mapping(images)
    found = {}
    for text in (*images, *texts):
        try:
            answer = file.get(parse(text))
        except InvalidReference:
            continue
        if answer is not None:
            found[text] = answer
    return ImageInspections(found)


def scanned(text: str, path: str = "web.yaml") -> Scan:
    return scan(SourceText.of(path, text.encode()))


def problems(text: str, images: Mapping[str, Any], **options: Any) -> tuple[RepairableFinding, ...]:
    file = scanned(text)
    texts = [use.resolved_text for pod_spec in file.pod_specs for use in pod_spec.images]
    return lint(file, answers(images, texts), LintOptions(**options))


def names(found: Sequence[RepairableFinding]) -> list[str]:
    """Rules with their sub, ``MA107/mixed``."""
    return [f"{each.finding.rule}/{each.finding.sub}".rstrip("/") for each in found]


def rule(found: Sequence[RepairableFinding], name: str) -> RepairableFinding:
    """The only problem of a rule."""
    (problem,) = [each for each in found if each.finding.rule == name]
    return problem


def repaired(text: str, problem: RepairableFinding) -> Any:
    """The document after one repair."""
    assert problem.repair is not None
    assert problem.repair.operations, problem.repair.note
    (document,) = [each for each in scanned(text).documents if each.index == problem.repair.document]
    return tree.apply(document.value, problem.repair.operations)


def fixed(text: str, images: Mapping[str, Any], *, only: Sequence[str] = (), **options: Any) -> tuple[str, list[str]]:
    """Repairs one by one until none is left; the text (written anew) and the rules that were applied."""
    applied: list[str] = []
    for _ in range(ROUNDS):
        chosen = next(
            (
                each
                for each in problems(text, images, **options)
                if each.repair and each.repair.operations and (not only or each.finding.rule in only)
            ),
            None,
        )
        if chosen is None:
            return text, applied
        applied.append(chosen.finding.rule)
        assert chosen.repair is not None
        documents = {each.index: each.value for each in scanned(text).documents}
        number = chosen.repair.document
        documents[number] = tree.apply(documents[number], chosen.repair.operations)
        written = [documents[each] for each in sorted(documents)] + list(chosen.documents)
        text = yaml.safe_dump_all(msgspec.to_builtins(written), sort_keys=False)
    raise AssertionError(f"still repairing after {ROUNDS} rounds: {applied}")


def deployment(spec: str, *, images: Sequence[str] = ("quay.io/acme/web:2",), kind: str = "Deployment") -> str:
    """A deployment called ``web`` with these images and more of a pod specification (indented by 0)."""
    lines = [f"apiVersion: apps/v1\nkind: {kind}\nmetadata:\n  name: web\nspec:\n  template:\n    spec:"]
    lines += [f"      {line}" for line in spec.strip("\n").splitlines() if line.strip()]
    lines += ["      containers:"]
    lines += [f"      - name: c{index}\n        image: {image}" for index, image in enumerate(images)]
    return "\n".join(lines) + "\n"


def required(*terms: str) -> str:
    """Required node affinity; a term is its expressions, ``arch In amd64,arm64; zone Exists``; empty: ``{}``."""
    lines = [
        "affinity:",
        "  nodeAffinity:",
        "    requiredDuringSchedulingIgnoredDuringExecution:",
        "      nodeSelectorTerms:",
    ]
    for term in terms:
        if not term:
            lines.append("      - {}")
            continue
        lines.append("      - matchExpressions:")
        for each in term.split(";"):
            key, operator, *values = each.split()
            key = {"arch": "kubernetes.io/arch", "os": "kubernetes.io/os"}.get(key, key)
            lines += [f"        - key: {key}", f"          operator: {operator}"]
            if values:
                lines += ["          values:", *(f'          - "{value}"' for value in values[0].split(","))]
    return "\n".join(lines)


def terms_of(document: Any) -> list[Any]:
    """The required terms of the deployment, short: lists of ``key operator values``."""
    pod_spec = document["spec"]["template"]["spec"]
    found = pod_spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [
        [
            " ".join(
                [each["key"].removeprefix("kubernetes.io/"), each["operator"], ",".join(each.get("values") or ())]
            ).strip()
            for each in term.get("matchExpressions") or ()
        ]
        for term in found["nodeSelectorTerms"]
    ]
