"""Labels that the newest bundle of a channel no longer has (MA210)."""

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from bundling import labels
from linting import scanned

from polyarch.manifests.rules.bundle_run import lint_catalog
from polyarch.manifests.rules.options import LintOptions, Selection

ENTRIES = [{"name": "acme.v2", "replaces": "acme.v1"}, {"name": "acme.v1"}]


def package(channel: str = "stable") -> dict[str, Any]:
    return {"schema": "olm.package", "name": "acme", "defaultChannel": channel}


def channel(entries: list[dict[str, Any]] | None = None, name: str = "stable") -> dict[str, Any]:
    return {
        "schema": "olm.channel",
        "package": "acme",
        "name": name,
        "entries": ENTRIES if entries is None else entries,
    }


def shipped(name: str, found: Mapping[str, str], *, embedded: bool = False) -> dict[str, Any]:
    content: dict[str, Any] = {"type": "olm.csv.metadata", "value": {"labels": dict(found)}}
    if embedded:
        csv = {"kind": "ClusterServiceVersion", "metadata": {"labels": dict(found)}}
        content = {"type": "olm.bundle.object", "value": {"data": b64encode(json.dumps(csv).encode()).decode()}}
    return {"schema": "olm.bundle", "package": "acme", "name": name, "image": "quay.io/a/b:1", "properties": [content]}


def lost(*documents: Mapping[str, Any], files: bool = False, **options: Any) -> list[str]:
    texts = [yaml.safe_dump(each) for each in documents]
    scans = [scanned(text, f"{index}.yaml") for index, text in enumerate(texts if files else ["---\n".join(texts)])]
    return [each.finding.message for each in lint_catalog(scans, LintOptions(**options))]


@pytest.mark.parametrize("files", [False, True])
@pytest.mark.parametrize("embedded", [False, True])
def test_MA210_the_head_lacks_a_label(files: bool, embedded: bool) -> None:
    old = shipped("acme.v1", labels("amd64", "s390x"), embedded=embedded)
    new = shipped("acme.v2", labels("amd64"), embedded=embedded)
    (message,) = lost(package(), channel(), old, new, files=files)
    assert "acme.v2, the head of the default channel stable of acme" in message
    assert "operatorframework.io/arch.s390x (acme.v1 had it)" in message


@pytest.mark.parametrize("old", [{}, labels(), {"operatorframework.io/os.linux": "supported"}])
def test_MA210_the_default_of_an_older_bundle_is_lost_like_a_label(old: dict[str, str]) -> None:
    """Clusters of amd64 would stay at the older bundle."""
    (message,) = lost(package(), channel(), shipped("acme.v1", old), shipped("acme.v2", labels("arm64")))
    assert "operatorframework.io/arch.amd64 (acme.v1 had it)" in message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(labels("amd64"), labels("amd64", "s390x"), id="more labels"),
        pytest.param(labels("amd64"), {}, id="the default holds without a label"),
        pytest.param({"operatorframework.io/arch.s390x": "no"}, labels("amd64"), id="it was no promise"),
    ],
)
def test_MA210_nothing_is_lost(old: dict[str, str], new: dict[str, str]) -> None:
    assert lost(package(), channel(), shipped("acme.v1", old), shipped("acme.v2", new)) == []


def test_MA210_looks_at_the_default_channel_alone() -> None:
    bundles = shipped("acme.v1", labels("amd64", "s390x")), shipped("acme.v2", labels("amd64"))
    assert lost(package("beta"), channel(), channel([{"name": "acme.v2"}], "beta"), *bundles) == []


def test_MA210_a_skipped_bundle_is_not_the_head() -> None:
    entries = [{"name": "acme.v1"}, {"name": "acme.v2", "skips": ["acme.v1"]}]
    bundles = shipped("acme.v1", labels("amd64", "s390x")), shipped("acme.v2", labels("amd64"))
    assert len(lost(package(), channel(entries), *bundles)) == 1
    assert lost(package(), channel([{"name": "acme.v1"}, {"name": "acme.v2"}]), *bundles) == [], "no single head"


def test_MA210_can_be_left_out() -> None:
    bundles = shipped("acme.v1", labels("amd64", "s390x")), shipped("acme.v2", labels("amd64"))
    assert lost(package(), channel(), *bundles, selection=Selection(exclude=("MA210",))) == []


@pytest.mark.parametrize("data", ["!!!", "e30=", None, b64encode(b"[]").decode()])
def test_odd_embedded_objects_are_no_crash(data: Any) -> None:
    odd = shipped("acme.v2", {}) | {"properties": [{"type": "olm.bundle.object", "value": {"data": data}}, "x"]}
    assert len(lost(package(), channel(), shipped("acme.v1", labels("s390x")), odd)) == 1
