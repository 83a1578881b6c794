"""Repairs as a kustomize component: built by kubectl, it gives what the repair in place gives."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from linting import answers, deployment, required
from reporting import IMAGES, WEB

from polyarch.manifests.emit import Component
from polyarch.manifests.fix import FixRequest, FixResult, fix
from polyarch.manifests.rules.options import FixOptions, LintOptions
from polyarch.manifests.scan.text import SourceText

FLAGS = FixOptions(widen=True, replace=True)
TERMS = "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms"

CASES: Mapping[str, str] = {
    "other affinity": deployment("affinity:\n  podAntiAffinity: {}"),
    "mixed terms": deployment(required("arch In amd64,s390x", "zone Exists")),
    "another name": deployment(required("arch In x86_64,arm64")),
}


def result_of(text: str, path: str = "web.yaml") -> FixResult:
    request = FixRequest(options=LintOptions(fixes=FLAGS))
    return fix(SourceText.of(path, text.encode()), answers(IMAGES), request)


def component(*results: FixResult) -> Component:
    made = Component()
    for result in results:
        made.add(result)
    made.settle()
    return made


def patches(made: Component) -> list[Any]:
    found: list[Any] = yaml.safe_load(made.text())["patches"]
    return found


@pytest.mark.req("MF-070")
def test_the_document_is_a_component_with_explicit_targets() -> None:
    document = yaml.safe_load(component(result_of(WEB)).text())
    assert document["apiVersion"] == "kustomize.config.k8s.io/v1alpha1"
    assert document["kind"] == "Component"
    (patch,) = document["patches"]
    assert patch["target"] == {
        "group": "apps",
        "version": "v1",
        "kind": "Deployment",
        "name": "web",
        "namespace": "shop",
    }


@pytest.mark.req("MF-070")
def test_terms_that_are_there_get_expressions_and_are_never_replaced() -> None:
    """A strategic merge would replace the whole list."""
    (patch,) = patches(component(result_of(CASES["mixed terms"])))
    operations = yaml.safe_load(patch["patch"])
    assert all(f"{TERMS}/" in operation["path"] for operation in operations)
    assert f"/spec/template/spec{TERMS}/1/matchExpressions/-" in [
        operation["path"] for operation in operations if operation["op"] == "add"
    ]


@pytest.mark.req("MF-070")
def test_missing_parents_are_made_from_the_first_one_missing() -> None:
    (patch,) = patches(component(result_of(CASES["other affinity"])))
    (operation,) = yaml.safe_load(patch["patch"])
    assert (operation["op"], operation["path"]) == ("add", "/spec/template/spec/affinity/nodeAffinity")


@pytest.mark.req("MF-070")
def test_what_is_replaced_or_removed_is_tested_first() -> None:
    """The patch fails rather than change another object."""
    (patch,) = patches(component(result_of(CASES["another name"])))
    operations = yaml.safe_load(patch["patch"])
    for before, operation in zip([None, *operations], operations, strict=False):
        if operation["op"] in ("replace", "remove"):
            assert before is not None
            assert (before["op"], before["path"]) == ("test", operation["path"])


@pytest.mark.req("MF-070")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "kind: List\nitems:\n- " + WEB.replace("\n", "\n  ").rstrip() + "\n",
            "web.yaml: a patch cannot name item 0 of a list",
        ),
        (WEB.replace("  name: web\n  namespace: shop\n", "  generateName: web-\n"), "web.yaml, document 1"),
    ],
)
def test_what_no_patch_can_name_is_refused_by_file_and_index(text: str, words: str) -> None:
    made = component(result_of(text))
    assert made.patches == []
    assert words in made.refused[0]


def test_two_objects_that_one_target_fits_are_refused() -> None:
    """Kustomize would apply both patches to both."""
    first = WEB.replace("  namespace: shop\n", "")
    made = component(result_of(first, "a.yaml"), result_of(WEB, "b.yaml"))
    assert made.patches == []
    assert len(made.refused) == 2


def test_nothing_to_do_is_an_empty_component() -> None:
    assert patches(component(result_of("kind: ConfigMap\n"))) == []
