"""``polyarch numa export --once`` as a user runs it, on a fixture of a machine."""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import podresources_server
import pytest
import yaml
from google.protobuf.json_format import Parse
from machine_trees import GIB
from numa_host import NumaHost
from scripted_server import ScriptedServer, document, serving, status

from polyarch.cli import main
from polyarch.numa.host import podresources_pb2 as api

HUGE = {"aiohttp", "aiohttp.web", "grpclib", "structlog", "cryptography", "uvloop"}
"""What a server, a client of the API server, or one of a real kubelet needs."""


class Ran(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NumaHost:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("NODE_NAME", "KUBECONFIG", "TOPOLOGY_MANAGER_POLICY", "TOPOLOGY_MANAGER_SCOPE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    host = NumaHost(tmp_path / "host")
    host.pods({"web": [5, 6], "shared": []})
    return host


@pytest.fixture
def export(host: NumaHost, capsys: pytest.CaptureFixture[str]):
    """``export(*options)``: a scan of that host as node ``n1``."""

    def run(*options: str, source: Sequence[str] | None = None) -> Ran:
        given = source if source is not None else words(host)
        code = main(["numa", "export", "--once", *given, "--hostname", "n1", *options])
        return Ran(code, *capsys.readouterr())

    return run


def words(host: NumaHost) -> list[str]:
    """Root and socket; the exporter's own flags belong behind ``--``."""
    return [each for each in host.flags if each.startswith(("--root", "--podresources-socket"))]


@pytest.mark.req("NE-160")
def test_a_table_of_zones(export):
    ran = export()
    assert ran.code == 0
    about, pods, fingerprint, blank, header, *lines = ran.out.splitlines()
    assert about == "Node n1, policy single-numa-node, scope pod"
    assert pods == "Pods: 2, with exclusive resources: 1, left out: 0"
    assert fingerprint.startswith("Fingerprint: pfp0v001")
    assert (blank, header.split()[:3]) == ("", ["ZONE", "RESOURCE", "CAPACITY"])
    assert [line.split() for line in lines] == [
        ["node-0", "cpu", "4", "3", "0", "3", "-"],
        ["node-0", "memory", "4Gi", "3Gi", "0", "3Gi", "-"],
        ["node-1", "cpu", "4", "4", "2", "2", "-"],
        ["node-1", "memory", "4Gi", "4Gi", "0", "4Gi", "-"],
    ]


@pytest.mark.req("NE-160")
@pytest.mark.parametrize(("form", "load"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_the_object_that_would_be_published(export, form: str, load: Any):
    made = load(export("-o", form).out)
    assert (made["apiVersion"], made["kind"]) == ("topology.node.k8s.io/v1alpha2", "NodeResourceTopology")
    assert made["metadata"]["name"] == "n1"
    assert "ownerReferences" not in made["metadata"]
    cpu, memory = made["zones"][1]["resources"]
    assert cpu == {"name": "cpu", "capacity": "4", "allocatable": "4", "available": "2"}
    assert memory["available"] == str(4 * GIB)


@pytest.mark.req("NE-160")
def test_it_goes_to_a_file_too(export, tmp_path: Path):
    assert export("-o", f"json={tmp_path}/n1.json", "-o", "text").code == 0
    assert json.loads((tmp_path / "n1.json").read_text())["kind"] == "NodeResourceTopology"


@pytest.mark.req("NE-010", "NE-160")
def test_the_nodes_name_comes_from_the_environment(host: NumaHost, capsys: Any, monkeypatch: Any):
    monkeypatch.setenv("NODE_NAME", "from-environment")
    assert main(["numa", "export", "--once", *words(host), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["metadata"]["name"] == "from-environment"


@pytest.mark.req("NE-056", "NE-160")
def test_one_pod_alone(export):
    lines = export("--pod", "default/web").out.splitlines()
    assert lines[1] == "Pods: 1, with exclusive resources: 1, left out: 0"
    assert export("--pod", "default/shared").out.splitlines()[1] == "Pods: 1, with exclusive resources: 0, left out: 0"


@pytest.mark.req("NE-069", "NE-160")
def test_one_pod_alone_is_not_charged_for_what_the_kubelet_keeps(export, host: NumaHost):
    state = host.root / "var/lib/kubelet/cpu_manager_state"
    state.parent.mkdir(parents=True, exist_ok=True)
    state.write_text(json.dumps({"policyName": "static", "defaultCpuSet": "0", "checksum": 1}))
    whole = export().out
    assert "3 kept for init containers that have ended" in whole  # of node-0
    assert "2 kept for init containers that have ended" in whole  # of node-1, beside those of the pod
    assert "kept for init containers" not in export("--pod", "default/web").out


@pytest.mark.req("NE-160")
def test_flags_of_the_exporter_follow_after_two_hyphens(export):
    made = json.loads(export("-o", "json", "--", "--pods-fingerprint=false", "--legacy-fields=false").out)
    assert "annotations" not in made["metadata"]
    assert not any("Fingerprint" in each["name"] for each in made["attributes"])


@pytest.mark.req("NE-160")
def test_policy_and_scope_stand_in_for_a_configuration(export, host: NumaHost):
    (host.root / "podresources/config.yaml").unlink()
    ran = export("--topology-manager-policy", "restricted", "--topology-manager-scope", "container")
    assert "policy restricted, scope container" in ran.out


@pytest.mark.req("NE-160")
def test_on_a_node_the_kubelets_own_configuration_is_read(export, host: NumaHost):
    own = host.root / "var/lib/kubelet/config.yaml"
    own.parent.mkdir(parents=True, exist_ok=True)
    (host.root / "podresources/config.yaml").rename(own)
    assert "policy single-numa-node, scope pod" in export().out


@pytest.mark.req("NE-103", "NE-160")
@pytest.mark.parametrize(
    ("place", "text", "flag"),
    [
        ("var/lib/kubelet/kubeadm-flags.env", 'KUBELET_KUBEADM_ARGS="--v=2 --topology-manager-policy=none"', "none"),
        ("etc/default/kubelet", "KUBELET_EXTRA_ARGS='--topology-manager-policy restricted'", "restricted"),
        ("etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS=--topology-manager-policy=none\n", "none"),
        ("etc/systemd/system/kubelet.service.d/20-numa.conf", "\\\n  --topology-manager-policy=none \\\n", "none"),
        ("etc/default/kubelet", "# --topology-manager-policy=none\nARGS=--v=2 --node-ip=::1", ""),
        ("etc/systemd/system/kubelet.service.d/20-numa.txt", "--topology-manager-policy=none", ""),
    ],
)
def test_flags_of_the_kubelet_that_count_more_than_its_file_are_told(
    export, host: NumaHost, place: str, text: str, flag: str
):
    path = host.root / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    told = f"--topology-manager-policy={flag} ({path})"
    assert (told in export().err) == bool(flag)
    given = ("--topology-manager-policy", "restricted", "--topology-manager-scope", "container")
    assert "flags" not in export(*given).err


@pytest.mark.req("NE-103", "NE-160")
def test_2_if_the_kubelets_settings_are_not_known(export, host: NumaHost):
    (host.root / "podresources/config.yaml").unlink()
    ran = export()
    assert (ran.code, ran.out) == (2, "")
    assert f"{host.root}/var/lib/kubelet/config.yaml: No such file or directory" in ran.err
    assert "or give --topology-manager-policy and --topology-manager-scope" in ran.err


@pytest.mark.req("NE-160")
@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--pod", "web"), "--pod web: expected NAMESPACE/NAME"),
        (("--pod", "a/b/c"), "--pod a/b/c: expected NAMESPACE/NAME"),
        (("--", "--no-such-flag"), "--no-such-flag: unknown flag"),
        (("--topology-manager-policy", "strict"), "strict"),
    ],
)
def test_2_for_a_wrong_command_line(export, options: tuple[str, ...], problem: str):
    ran = export(*options)
    assert (ran.code, ran.out) == (2, "")
    assert problem in ran.err


@pytest.mark.req("NE-160")
def test_2_for_a_socket_that_is_no_url(export):
    ran = export(source=["--podresources-socket", "tcp://host"])
    assert ran.code == 2
    assert "is neither unix:///path/to/socket nor fake:///directory" in ran.err


@pytest.mark.req("NE-160")
def test_3_if_the_kubelet_cannot_be_asked(export, host: NumaHost):
    host.break_kubelet()
    ran = export()
    assert (ran.code, ran.out) == (3, "")
    assert "list.json: No such file or directory" in ran.err


@pytest.mark.req("NE-160")
def test_3_without_a_kubelet_says_what_to_pass(export, host: NumaHost):
    ran = export(source=[f"--root={host.root}"])
    assert ran.code == 3
    assert f"no kubelet answers at unix:///podresources/kubelet.sock or unix://{host.root}/var/lib/kubelet/" in ran.err
    assert "give --podresources-socket: unix:///PATH of its socket, or fake:///DIRECTORY" in ran.err


@pytest.mark.req("NE-036", "NE-160")
def test_3_if_the_machine_cannot_be_read(export, host: NumaHost):
    (host.root / "sys/devices/system/node/node1/cpulist").write_text("none\n")
    ran = export()
    assert ran.code == 3
    assert "node1/cpulist: 'none' is not a list such as 0-3,8" in ran.err


@pytest.mark.req("NE-160")
def test_what_was_left_out_is_said_on_demand(export):
    assert export().err == ""
    told = export("-v").err
    assert "cpu_manager_state: absent, or of no use" in told
    assert "flags of the kubelet's command line would count more than its file; they are not seen here" in told


@pytest.mark.req("NE-068", "NE-160")
def test_ended_pods_are_not_known_without_a_cluster(export):
    assert "pods that have ended count as used here" in export("--", "--exclude-terminal-pods").err


# -- a kubelet that runs -----------------------------------------------------------------------------------------------


@pytest.fixture
def kubelet(server_loop, host: NumaHost):
    """A kubelet that answers what the host's files say, at a socket with a short path; ``.socket`` is that."""
    answers = podresources_server.Answers()
    answers.pods = Parse((host.root / "answers/list.json").read_text(), api.ListPodResourcesResponse())
    allocatable = (host.root / "answers/get_allocatable_resources.json").read_text()
    answers.resources = Parse(allocatable, api.AllocatableResourcesResponse())
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        answers.socket = Path(folder) / "kubelet.sock"
        served = podresources_server.serving(answers, answers.socket)
        asyncio.run_coroutine_threadsafe(served.__aenter__(), server_loop).result(30)
        yield answers
        asyncio.run_coroutine_threadsafe(served.__aexit__(None, None, None), server_loop).result(30)


@pytest.mark.req("NE-160")
def test_a_running_kubelet_is_asked_at_its_socket(export, host: NumaHost, kubelet: Any):
    ran = export(source=[f"--root={host.root}", f"--podresources-socket=unix://{kubelet.socket}"])
    assert ran.code == 0, ran.err
    assert ran.out == export().out
    assert kubelet.calls == ["List", "GetAllocatableResources"]


@pytest.mark.req("NE-160")
def test_on_a_node_the_kubelets_own_socket_is_found(export, host: NumaHost, kubelet: Any):
    own = host.root / "var/lib/kubelet/pod-resources/kubelet.sock"
    own.parent.mkdir(parents=True)
    own.symlink_to(kubelet.socket)
    assert export(source=[f"--root={host.root}"]).code == 0
    assert kubelet.calls == ["List", "GetAllocatableResources"]


@pytest.mark.req("NE-056")
def test_one_pod_is_asked_for_and_else_picked_out_of_the_list(export, host: NumaHost, kubelet: Any):
    source = [f"--root={host.root}", f"--podresources-socket=unix://{kubelet.socket}"]
    whole = export("--pod", "default/web", source=source)
    assert sorted(kubelet.calls) == ["Get", "GetAllocatableResources", "List"]
    kubelet.calls.clear()
    kubelet.pod = api.GetPodResourcesResponse(pod_resources=kubelet.pods.pod_resources[0])
    assert export("--pod", "default/web", source=source) == whole
    assert sorted(kubelet.calls) == ["Get", "GetAllocatableResources"]


# -- publishing --------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(server_loop, tmp_path: Path):
    """An API server that answers by script, and its kubeconfig."""
    made = serving()
    api: ScriptedServer = asyncio.run_coroutine_threadsafe(made.__aenter__(), server_loop).result(30)
    (tmp_path / "kubeconfig").write_text(
        json.dumps(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": api.url}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    yield api
    asyncio.run_coroutine_threadsafe(made.__aexit__(None, None, None), server_loop).result(30)


@pytest.mark.req("NE-160")
def test_publish_writes_the_object(export, cluster: ScriptedServer, tmp_path: Path):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "uid-1"}}
    cluster.script(document(node), status(404, "NotFound"), document({"metadata": {"name": "n1"}}, 201))
    ran = export("--publish", "--kubeconfig", str(tmp_path / "kubeconfig"), "-o", "json")
    assert ran.code == 0, ran.err
    assert [each.method for each in cluster.requests] == ["GET", "GET", "POST"]
    written = cluster.last.document
    assert written["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
    assert written["zones"] == json.loads(ran.out)["zones"]
    assert "NodeResourceTopology n1: created" in ran.err


@pytest.mark.req("NE-160")
def test_without_publish_no_cluster_is_asked(export, cluster: ScriptedServer, tmp_path: Path):
    assert export("--kubeconfig", str(tmp_path / "kubeconfig")).code == 0
    assert cluster.requests == []


@pytest.mark.req("NE-160")
def test_3_if_it_could_not_be_published(export, cluster: ScriptedServer, tmp_path: Path):
    cluster.otherwise = status(403, "Forbidden", "no rights")
    ran = export("--publish", "--kubeconfig", str(tmp_path / "kubeconfig"))
    assert ran.code == 3
    assert "no rights" in ran.err


# -- how little it needs -----------------------------------------------------------------------------------------------


@pytest.mark.req("NE-154")
def test_no_server_is_imported(host: NumaHost):
    words_of = ["numa", "export", "--once", *words(host), "--hostname", "n1", "-o", "json"]
    code = f"import sys; from polyarch.cli import main; assert main({words_of!r}) == 0; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(ran.stdout.splitlines()[-1].split())
    assert "polyarch.numa.exporter.scan" in imported
    assert sorted(HUGE & imported) == []
    servers = ("admission", "certificates", "conversion", "server", "x509")
    assert sorted(imported & {f"polyarch.kube.{each}" for each in servers}) == []


@pytest.mark.req("NE-160")
def test_a_root_that_is_not_there_is_told_and_not_taken_for_a_missing_kubelet(export):
    ran = export(source=["--root", "/nowhere"])
    assert ran.code == 2
    assert "--root /nowhere: no such directory" in ran.err
