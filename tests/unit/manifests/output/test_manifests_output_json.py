"""The document ``polyarch.dev/lint/v1``."""

import json
from typing import Any

import pytest
from reporting import WEB, report

from polyarch.manifests.output import json as output
from polyarch.manifests.report import Incomplete, Report


def document(found: Report) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(output.render(found))
    return result


@pytest.mark.req("MF-043")
def test_the_summary_has_every_number() -> None:
    assert document(report())["summary"] == {
        "files": 1,
        "objects": 1,
        "podSpecs": 1,
        "images": 1,
        "errors": 1,
        "warnings": 0,
        "infos": 1,
        "suppressed": 0,
        "unresolved": 0,
        "complete": True,
    }


@pytest.mark.req("MF-043")
def test_a_finding_has_every_member() -> None:
    """Whoever reads it needs no other form."""
    found = document(report())
    assert found["schemaVersion"] == "polyarch.dev/lint/v1"
    (finding,) = [each for each in found["findings"] if each["rule"] == "MA102"]
    fingerprint = finding.pop("fingerprint")
    assert len(fingerprint) == 16
    assert int(fingerprint, 16) >= 0
    assert finding.pop("message").startswith("Deployment shop/web admits linux/s390x")
    assert finding.pop("hint")
    term = (
        "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0"
    )
    assert finding == {
        "rule": "MA102",
        "sub": "",
        "severity": "error",
        "file": "deploy/web.yaml",
        "line": 16,
        "column": 40,
        "endLine": 16,
        "endColumn": 45,
        "object": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"},
        "path": f"{term}/matchExpressions/0/values/2",
        "images": ["quay.io/acme/web:2"],
        "platforms": {
            "admitted": ["linux/amd64", "linux/arm64", "linux/s390x"],
            "supported": ["linux/amd64", "linux/arm64"],
            "excess": ["linux/s390x"],
            "missing": [],
        },
        "fixable": True,
        "origin": "",
        "upstream": "",
    }


@pytest.mark.req("MF-043")
def test_images_are_told_with_what_is_known_of_them() -> None:
    """Reference → status, node platforms."""
    text = WEB + "      - {name: b, image: 'gone:1'}\n      - {name: c, image: '$(IMAGE)'}\n"
    images = {"quay.io/acme/web:2": ["linux/arm64", "linux/amd64"], "gone:1": {"error": "not-found"}}
    found = document(report(text, images))["images"]
    assert list(found) == ["$(IMAGE)", "gone:1", "quay.io/acme/web:2"]
    assert found["quay.io/acme/web:2"]["status"] == "resolved"
    assert found["quay.io/acme/web:2"]["platforms"] == ["linux/amd64", "linux/arm64"]
    assert found["gone:1"]["error"]["code"] == "not-found"
    assert (found["$(IMAGE)"]["status"], found["$(IMAGE)"]["error"]["code"]) == ("unknown", "not-a-reference")


@pytest.mark.req("MF-032")
def test_suppressed_findings_are_there_on_request() -> None:
    quiet = WEB.replace("  namespace: shop\n", "  annotations: {ignore-check.polyarch.dev/MA102: see OPS-1}\n")
    assert "suppressed" not in document(report(quiet))
    (hidden,) = document(report(quiet, show_suppressed=True))["suppressed"]
    assert (hidden["rule"], hidden["suppressed"]) == ("MA102", "see OPS-1")


@pytest.mark.req("MF-040")
def test_what_is_not_complete_is_said() -> None:
    found = document(report(incomplete=(Incomplete("a.yaml", "", "permission denied"),)))
    assert found["summary"]["complete"] is False
    assert found["incomplete"] == [{"file": "a.yaml", "image": "", "message": "permission denied"}]
