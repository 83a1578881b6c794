"""``polyarch build plan --facts`` for a MachineOSConfig: what would be built, without cluster and registry."""

import json
from pathlib import Path
from typing import Any

import pytest
from builds_world import digest
from machine_world import EXTENSIONS_IMAGE, OS_IMAGE, MachineWorld

from polyarch.builds.machineos import api as vocabulary
from polyarch.cli import main

TOOLS = {"builderImage": "registry.example.com/tools/buildah:1", "pushImage": "registry.example.com/tools/polyarch:1"}


def facts(*architectures: str) -> dict[str, Any]:
    world = MachineWorld(architectures=architectures)
    api = vocabulary.CONFIGS.api_version
    place = {"namespace": vocabulary.NAMESPACE}
    secret = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson"}
    objects: list[dict[str, Any]] = [
        {**world.config, "apiVersion": api, "kind": "MachineOSConfig"},
        {**world.pool, "apiVersion": api, "kind": "MachineConfigPool"},
        *({**each, "apiVersion": api, "kind": "MachineConfig"} for each in world.rendered.values()),
        *(
            {**secret, "metadata": {"name": name, **place}, "stringData": {".dockerconfigjson": '{"auths":{"a":{}}}'}}
            for name in ("push", vocabulary.GLOBAL_PULL_SECRET)
        ),
        *(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": each.name, "labels": dict(each.labels)},
                "status": {"nodeInfo": {"architecture": each.architecture, "operatingSystem": "linux"}},
            }
            for each in world.nodes
        ),
    ]
    images = (OS_IMAGE, EXTENSIONS_IMAGE, *TOOLS.values())
    children = {f"linux/{each}": digest(each) for each in ("amd64", "arm64")}
    registry = {
        each: {"kind": "index", "digest": digest(each), "platforms": list(children), "children": children}
        for each in images
    }
    return {"now": "2027-01-15T08:00:00Z", "objects": objects, "registry": registry, "settings": TOOLS}


@pytest.mark.req("BD-003")
@pytest.mark.parametrize("architectures", [("arm64",), ("amd64", "arm64")])
def test_a_machine_os_config_is_planned_without_a_cluster(tmp_path, monkeypatch, capsys, architectures):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    path: Path = tmp_path / "facts.json"
    path.write_text(json.dumps(facts(*architectures)), encoding="utf-8")
    assert main(["build", "plan", "--facts", str(path), "worker", "-o", "json"]) == 0
    out = capsys.readouterr().out
    document = json.loads(out)
    assert (document["decision"], document["architectures"]) == ("Build", list(architectures))
    world = MachineWorld(architectures=architectures)
    assert document["execution"].startswith("worker-")
    if len(architectures) == 1:  # a stock name, which no answer of a registry can change
        assert document["execution"] == world.plan().execution
    jobs = [each["name"] for each in document["writes"] if each["kind"] == "Job"]
    name = document["execution"]
    assert jobs == (
        [f"build-{name}"] if len(architectures) == 1 else [f"build-{name}-{each}" for each in architectures]
    )


@pytest.mark.req("BD-003")
def test_a_problem_is_printed_once(tmp_path, capsys):
    given = facts("arm64")
    (config,) = (each for each in given["objects"] if each["kind"] == "MachineOSConfig")
    content = "FROM configs AS final\nCOPY --from=a::b x y\n"
    config["spec"]["containerFile"] = [{"containerfileArch": "NoArch", "content": content}]
    (tmp_path / "facts.json").write_text(json.dumps(given), encoding="utf-8")
    assert main(["build", "plan", "--facts", str(tmp_path / "facts.json"), "worker"]) == 2
    out = capsys.readouterr().out
    assert out.count("COPY names the image 'a::b'") == 1
    assert "warning: The image of pool worker cannot be built" in out
