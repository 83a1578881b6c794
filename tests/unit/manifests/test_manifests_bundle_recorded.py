"""Compat mode says word for word what the real validator said of the same bundles.

``multiarch-validator.yaml`` was recorded from operator-framework/api; ``tests/cluster/test_integrations_olm.py``
compares with the real one itself.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from bundling import container, csv, in_terms, known, labels

from polyarch.manifests import operator_sdk
from polyarch.manifests.operator_sdk import misshapen

pytestmark = pytest.mark.req("MF-076")

RECORDED = yaml.safe_load((Path(__file__).with_name("multiarch-validator.yaml")).read_text())
CAUSE = "unable to inspect the image ("


def comparable(line: str) -> str:
    """Without the cause of a failed inspection, which is the container tool's own there and ours here."""
    return line[: line.index(") :") + len(") :")] if CAUSE in line else line


@pytest.mark.parametrize("case", [pytest.param(each, id=each["case"]) for each in RECORDED])
def test_the_same_words(case: Any) -> None:
    document = csv(*case["pods"], labels=case["labels"], related=case["related"])
    assert misshapen(document) == ""
    outputs = operator_sdk.validate(document, known(document, case["images"]), container_tool=case["tool"])
    assert sorted(comparable(operator_sdk.line(each, "acme.v1")) for each in outputs) == sorted(case["said"])
    assert operator_sdk.passed(outputs) == (case["exit"] == 0)


@pytest.mark.req("MF-077")
def test_every_kind_of_complaint_is_recorded() -> None:
    """The rows that need a ClusterServiceVersion."""
    kinds = {
        "V0b": "invalid value (container-tools)",
        "V1": CAUSE,
        "V2": "not all images specified",
        "V3a": "for the Arch(s)",
        "V3b": "for the OS(s)",
        "V4a": "has labels for this Arch(s)",
        "V4b": "has labels for this OS(s)",
        "V5a": "is missing a node affinity",
        "V5b": "missing or invalid node affinity",
        "V5c": "the CSV includes [",
        "V5d": "the image data indicates [",
    }
    said = "\n".join(line for case in RECORDED for line in case["said"])
    assert {kind for kind, text in kinds.items() if text not in said} == set()


@pytest.mark.req("MF-078")
def test_the_document_is_escaped_as_go_does() -> None:
    """Scripts that search the raw text of ``-o json-alpha1`` find the same characters."""
    text = operator_sdk.json_alpha1([("warning", 'the label (arch.<value>) & "é"')], passed=True)
    assert r'"message": "the label (arch.\u003cvalue\u003e) \u0026 \"é\""' in text
    assert json.loads(text)["outputs"][0]["message"] == 'the label (arch.<value>) & "é"'


# What the real one cannot decode --------------------------------------------------------------------------------------


def changed(path: str, value: Any) -> dict[str, Any]:
    """A sound ClusterServiceVersion with another value at a path."""
    pod = {"containers": [container()], "affinity": in_terms({"os": ["linux"], "arch": ["amd64"]})}
    document = csv(pod, labels=labels("amd64"), related={"x": "quay.io/acme/x:1"})
    *parents, last = (int(each) if each.isdigit() else each for each in path.split("/"))
    target: Any = document
    for each in parents:
        target = target[each]
    target[last] = value
    return document


DEPLOYMENTS = "spec/install/spec/deployments"
POD = f"{DEPLOYMENTS}/0/spec/template/spec"
TERMS = f"{POD}/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms"


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("metadata/labels", ["a"], "metadata.labels is not a mapping"),
        ("metadata/labels/a", ["b"], "metadata.labels.a is not a string"),
        ("spec", "x", "spec is not a mapping"),
        (DEPLOYMENTS, {}, "spec.install.spec.deployments is not a list"),
        (f"{POD}/containers", {"name": "manager"}, ".spec.template.spec.containers is not a list"),
        (f"{POD}/containers/0/image", {"a": "b"}, ".containers[0].image is not a string"),
        (TERMS, "x", ".nodeSelectorTerms is not a list"),
        (f"{TERMS}/0/matchExpressions/0/values", "linux", ".matchExpressions[0].values is not a list"),
        ("spec/relatedImages", "x", "spec.relatedImages is not a list"),
        ("spec/relatedImages", ["x"], "spec.relatedImages[0] is not a mapping"),
    ],
)
def test_what_a_typed_reader_refuses(path: str, value: Any, problem: str) -> None:
    """Each was refused by the real one, with the same member in its message."""
    assert misshapen(changed(path, value)).endswith(problem)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata/labels", None),
        ("metadata/labels/a", True),
        ("metadata/name", 5),
        ("spec", None),
        (f"{POD}/containers", None),
        (f"{POD}/containers/0/image", 5),
    ],
)
def test_what_a_typed_reader_takes(path: str, value: Any) -> None:
    assert misshapen(changed(path, value)) == ""
