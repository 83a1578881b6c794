"""``polyarch numa export --verify`` as a user runs it."""

import json
from pathlib import Path
from typing import Any

import pytest

from polyarch.cli import main
from polyarch.numa.fingerprint import fingerprint

PODS = [("demo", "web"), ("demo", "cache")]


def topology(node: str, text: str) -> dict[str, Any]:
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": node},
        "attributes": [
            {"name": "nodeTopologyPodsFingerprint", "value": text},
            {"name": "nodeTopologyPodsFingerprintMethod", "value": "all"},
        ],
        "zones": [],
    }


def pod(node: str, namespace: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": "Running"},
    }


@pytest.fixture
def verify(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    """``verify(objects, pods, *options)``: exit code, lines of stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def run(objects: Any, pods: Any = None, *options: str) -> tuple[int, list[str], str]:
        Path("topologies.json").write_text(json.dumps(objects))
        words = ["numa", "export", "--verify", "topologies.json", *options]
        if pods is not None:
            Path("pods.json").write_text(json.dumps(pods))
            words += ["--pods", "pods.json"]
        code = main(words)
        out, err = capsys.readouterr()
        return code, out.splitlines(), err

    return run


def listed(*items: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


@pytest.mark.req("NE-161")
def test_one_line_per_node_and_1_if_any_is_not_ok(verify):
    objects = listed(
        topology("node-b", fingerprint(PODS[:1])),
        topology("node-a", fingerprint(PODS)),
        topology("node-c", fingerprint([])),
    )
    pods = listed(*(pod(node, *name) for node in ("node-a", "node-b") for name in PODS))
    code, (_, *lines), err = verify(objects, pods)
    assert code == 1
    assert [line.split()[:2] for line in lines] == [["node-a", "ok"], ["node-b", "mismatch"], ["node-c", "ok"]]
    assert not err


@pytest.mark.req("NE-161")
def test_0_if_all_are_ok(verify):
    code, lines, _ = verify(topology("node-a", fingerprint(PODS)), listed(*(pod("node-a", *name) for name in PODS)))
    assert code == 0
    assert len(lines) == 2


@pytest.mark.req("NE-161")
def test_as_a_document(verify):
    text = fingerprint([])
    code, lines, _ = verify(
        topology("node-a", text), {"kind": "PodList", "apiVersion": "v1", "items": []}, "-o", "json"
    )
    assert code == 0
    assert json.loads("".join(lines)) == {
        "schemaVersion": "polyarch.dev/numa-verify/v1",
        "nodes": [{"node": "node-a", "verdict": "ok", "fingerprint": text, "note": ""}],
    }


@pytest.mark.req("NE-161")
def test_a_status_file_names_its_node(verify):
    status = {
        "fingerprintExpected": "",
        "fingerprintComputed": fingerprint(PODS),
        "pods": [{"Namespace": namespace, "Name": name} for namespace, name in PODS],
        "nodeName": "node-a",
    }
    assert verify(topology("node-a", fingerprint(PODS)), status)[0] == 0
    assert verify(topology("node-b", fingerprint(PODS)), status)[0] == 1


@pytest.mark.req("NE-161")
def test_a_saved_list_of_a_kubelet_is_of_the_only_node(verify):
    answer = {"pod_resources": [{"namespace": namespace, "name": name} for namespace, name in PODS]}
    assert verify(topology("node-a", fingerprint(PODS)), answer)[0] == 0
    code, _, err = verify(listed(*(topology(node, "") for node in "ab")), answer)
    assert code == 2
    assert "the list of one kubelet does not tell its node; --verify has 2 of them" in err


@pytest.mark.req("NE-161")
@pytest.mark.parametrize(
    ("objects", "pods", "problem"),
    [
        (listed(), None, "topologies.json: no NodeResourceTopology in it; save them with: kubectl get"),
        (topology("a", ""), {"kind": "Node"}, "pods.json, document 1 (line 1): expected pods of the API"),
        (topology("a", ""), {"pod_resources": 1}, "pods.json, document 1 (line 1): "),
    ],
)
def test_files_that_cannot_be_judged_are_named(verify, objects: Any, pods: Any, problem: str):
    code, _, err = verify(objects, pods)
    assert code == 2
    assert problem in err


@pytest.mark.req("NE-160")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "give either --once, to scan a machine, or --verify FILE"),
        (("--once", "--verify", "a"), "give either --once, to scan a machine, or --verify FILE"),
        (("--once", "--pods", "a"), "--pods belongs to --verify FILE"),
        (("--verify", "a", "--publish"), "--pod and --publish belong to --once"),
        (("--once", "--pod", "a/b", "--publish"), "remove --publish"),
    ],
)
def test_words_that_do_not_belong_together(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], problem: str):
    assert main(["numa", "export", *words]) == 2
    assert problem in capsys.readouterr().err
