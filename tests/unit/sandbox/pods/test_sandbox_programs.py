"""Command lines, variables and files of pods that are run, as Kubernetes makes them."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polyarch.objects import ObjectMeta, Secret
from polyarch.sandbox.pods import volumes as folders
from polyarch.sandbox.pods.environment import (
    ContainerFacts,
    File,
    MissingReference,
    environment_variables,
    quantity,
    token_path,
    volume_files,
)
from polyarch.sandbox.pods.programs import (
    POLYARCH_REPOSITORY,
    PROGRAM,
    NotInTheImage,
    SchedulerPodContext,
    addressed,
    configured_by,
    expanded,
    is_ours,
    is_run,
    pod_scheduler_configuration,
    polyarch_command,
    rewritten,
    scheduler_command,
)
from polyarch.sandbox.pods.spec import ConfigMap, Container, HostPath, PodDocument, Volume


@pytest.mark.req("SB-011")
@pytest.mark.parametrize(
    ("image", "ours"),
    [
        (POLYARCH_REPOSITORY, True),
        (f"{POLYARCH_REPOSITORY}:1.0", True),
        (f"{POLYARCH_REPOSITORY}@sha256:{'0' * 64}", True),
        (f"{POLYARCH_REPOSITORY}:1.0@sha256:{'0' * 64}", True),
        (f"{POLYARCH_REPOSITORY}-bundle:1.0", False),
        (f"{POLYARCH_REPOSITORY}/other:1.0", False),
        ("nginx:1.27", False),
        ("localhost:5000/nginx", False),
        ("", False),
    ],
)
def test_only_the_image_of_polyarch_is_run(image: str, ours: bool) -> None:
    assert is_ours(image) == ours


@pytest.mark.req("SB-011")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("--bind=$(POD_IP)", "--bind=127.244.0.7", id="a variable"),
        pytest.param("$(POD_IP):$(PORT)", "127.244.0.7:80", id="two"),
        pytest.param("$(UNKNOWN)", "$(UNKNOWN)", id="an unknown one stays"),
        pytest.param("$$(POD_IP)", "$(POD_IP)", id="escaped"),
        pytest.param("$$$(PORT)", "$80", id="escaped dollar before a variable"),
        pytest.param("$PORT $", "$PORT $", id="no parentheses"),
        pytest.param("$(PORT", "$(PORT", id="never closed"),
        pytest.param("$(EMPTY)", "", id="empty"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_variables_are_expanded_as_kubernetes_does(text: str, expected: str) -> None:
    assert expanded(text, {"POD_IP": "127.244.0.7", "PORT": "80", "EMPTY": ""}) == expected


@pytest.mark.req("SB-011")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("/etc/polyarch/certificates", "/v/certs", id="the mountPath itself"),
        pytest.param("/etc/polyarch/certificates/tls.crt", "/v/certs/tls.crt", id="a file in it"),
        pytest.param("--cert-dir=/etc/polyarch/certificates", "--cert-dir=/v/certs", id="in a flag"),
        pytest.param("/etc/polyarch/other", "/v/polyarch/other", id="the inner mount is longer"),
        pytest.param("/etc/polyarch-other", "/etc/polyarch-other", id="a name that only begins alike"),
        pytest.param("etc/polyarch", "etc/polyarch", id="not absolute"),
        pytest.param("A=/etc/polyarch/x", "A=/etc/polyarch/x", id="no flag"),
        pytest.param("/usr/bin", "/usr/bin", id="not mounted"),
        pytest.param("--socket=unix:///etc/polyarch/x.sock", "--socket=unix:///v/polyarch/x.sock", id="a unix socket"),
        pytest.param("unix://name", "unix://name", id="a socket without a path"),
    ],
)
def test_paths_into_volumes_lead_to_their_folders(text: str, expected: str) -> None:
    assert rewritten(text, {"/etc/polyarch": "/v/polyarch", "/etc/polyarch/certificates/": "/v/certs"}) == expected


@pytest.mark.req("SB-011")
@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        (None, None, ()),
        (None, ["run", "--bind=$(IP)"], ("run", "--bind=::1")),
        (["polyarch"], ["lint", "/m/a"], ("lint", "/v/a")),
        (["/usr/bin/polyarch", "run"], ["x"], ("run", "x")),
    ],
)
def test_the_program_is_this_installation(command: Any, args: Any, expected: tuple[str, ...]) -> None:
    found = polyarch_command(
        Container("c", command=command, args=args), {"IP": "::1"}, {"/m": "/v"}, address="127.9.0.1"
    )
    assert found == (sys.executable, "-c", PROGRAM, *expected)


@pytest.mark.req("SB-011")
def test_another_program_is_not_in_the_image() -> None:
    with pytest.raises(NotInTheImage, match='"sh": executable file not found'):
        polyarch_command(Container("c", command=["sh", "-c", "polyarch"]), {}, {}, address="127.9.0.1")


def pod(**spec: Any) -> PodDocument:
    metadata = {
        "name": "p",
        "namespace": "n",
        "uid": "u",
        "labels": {"b": "2", "a": "1"},
        "annotations": {"x.y/z": "w"},
    }
    spec = {"nodeName": "arm64-1", "serviceAccountName": "s", **spec}
    return msgspec.convert({"metadata": metadata, "spec": spec}, PodDocument)


def facts(document: PodDocument, **more: Any) -> ContainerFacts:
    config_map = ConfigMap(ObjectMeta(name="map"), {"A": "1", "B": "two"}, {"bin": b"\xff\x00"})
    secret = Secret(ObjectMeta(name="secret"), data={"key": b"hidden"})
    return ContainerFacts(document, "127.244.0.7", "10.250.0.1", {"map": config_map}, {"secret": secret}, **more)


def of(variables: list[dict[str, Any]], sources: list[dict[str, Any]] | None = None, **container: Any) -> Any:
    one = {"name": "c", "env": variables, "envFrom": sources or [], **container}
    document = pod(containers=[one])
    return environment_variables(document.container("c"), facts(document), {"HOME": "/h"})


@pytest.mark.req("SB-011")
@pytest.mark.parametrize(
    ("source", "value"),
    [
        ({"fieldRef": {"fieldPath": "metadata.name"}}, "p"),
        ({"fieldRef": {"fieldPath": "metadata.namespace"}}, "n"),
        ({"fieldRef": {"fieldPath": "metadata.uid"}}, "u"),
        ({"fieldRef": {"fieldPath": "metadata.labels['a']"}}, "1"),
        ({"fieldRef": {"fieldPath": "metadata.annotations['x.y/z']"}}, "w"),
        ({"fieldRef": {"fieldPath": "metadata.annotations['none']"}}, ""),
        ({"fieldRef": {"fieldPath": "spec.nodeName"}}, "arm64-1"),
        ({"fieldRef": {"fieldPath": "spec.serviceAccountName"}}, "s"),
        ({"fieldRef": {"fieldPath": "status.podIP"}}, "127.244.0.7"),
        ({"fieldRef": {"fieldPath": "status.hostIP"}}, "10.250.0.1"),
        ({"configMapKeyRef": {"name": "map", "key": "B"}}, "two"),
        ({"secretKeyRef": {"name": "secret", "key": "key"}}, "hidden"),
        ({"resourceFieldRef": {"resource": "limits.cpu"}}, "2"),
        ({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}, "1500"),
        ({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}, "256"),
        ({"resourceFieldRef": {"resource": "requests.cpu"}}, "0"),
        ({"resourceFieldRef": {"resource": "limits.ephemeral-storage", "divisor": "1Gi"}}, "100"),
    ],
)
def test_a_variable_of_every_source(source: dict[str, Any], value: str) -> None:
    limits = {"limits": {"cpu": "1500m", "memory": "256Mi"}}
    assert of([{"name": "V", "valueFrom": source}], resources=limits)["V"] == value


@pytest.mark.req("SB-011")
def test_later_variables_win_and_see_those_before_them() -> None:
    sources = [{"configMapRef": {"name": "map"}, "prefix": "P_"}, {"secretRef": {"name": "none", "optional": True}}]
    found = of(
        [
            {"name": "P_A", "value": "over"},
            {"name": "C", "value": "$(P_A)/$(P_B)/$(LATER)"},
            {"name": "LATER", "value": "x"},
            {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "map", "key": "no", "optional": True}}},
        ],
        sources,
    )
    assert (found["P_A"], found["C"], found["HOME"]) == ("over", "over/two/$(LATER)", "/h")
    assert "NONE" not in found


@pytest.mark.req("SB-011")
@pytest.mark.parametrize(
    ("variables", "sources", "said"),
    [
        ([{"secretKeyRef": {"name": "none", "key": "k"}}], [], 'secret "none" not found'),
        ([{"configMapKeyRef": {"name": "map", "key": "k"}}], [], "couldn't find key k in ConfigMap n/map"),
        ([], [{"configMapRef": {"name": "none"}}], 'configmap "none" not found'),
        ([{"fieldRef": {"fieldPath": "spec.foo"}}], [], "unsupported fieldPath: spec.foo"),
    ],
)
def test_what_is_missing_is_named(variables: list[Any], sources: list[Any], said: str) -> None:
    with pytest.raises(MissingReference, match=said):
        of([{"name": "V", "valueFrom": each} for each in variables], sources)


@pytest.mark.req("SB-011")
@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("1.5Gi", 3 * 2**29), ("250m", 0.25), ("1e3", 1000), ("2k", 2000), (4, 4), ("5E", 5e18)],
)
def test_quantities(text: str | int, value: float) -> None:
    assert quantity(text) == value


@pytest.mark.req("SB-011")
def test_no_quantity() -> None:
    with pytest.raises(ValueError, match="1Q"):
        quantity("1Q")


# -- volumes ----------------------------------------------------------------------------------------------------------


def content(volume: dict[str, Any], **more: Any) -> dict[str, bytes]:
    document = pod(volumes=[{"name": "v", **volume}])
    (one,) = document.spec.volumes or ()
    return {path: file.content for path, file in volume_files(one, facts(document, **more)).items()}


@pytest.mark.req("SB-011")
@pytest.mark.parametrize(
    ("volume", "expected"),
    [
        ({"configMap": {"name": "map"}}, {"A": b"1", "B": b"two", "bin": b"\xff\x00"}),
        ({"configMap": {"name": "map", "items": [{"key": "A", "path": "d/e"}]}}, {"d/e": b"1"}),
        ({"configMap": {"name": "none", "optional": True}}, {}),
        ({"configMap": {"name": "map", "optional": True, "items": [{"key": "no", "path": "x"}]}}, {}),
        ({"secret": {"secretName": "secret"}}, {"key": b"hidden"}),
        (
            {"downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {"l": b'a="1"\nb="2"'},
        ),
        (
            {
                "projected": {
                    "sources": [
                        {"secret": {"name": "secret", "items": [{"key": "key", "path": "s"}]}},
                        {"configMap": {"name": "map", "items": [{"key": "A", "path": "ca.crt"}]}},
                        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
                    ]
                }
            },
            {"s": b"hidden", "ca.crt": b"1", "token": b"t"},
        ),
    ],
    ids=["configMap", "items", "optional", "optional key", "secret", "downwardAPI", "projected"],
)
def test_files_of_volumes(volume: dict[str, Any], expected: dict[str, bytes]) -> None:
    assert content(volume, tokens={("", 3607): "t"}) == expected


@pytest.mark.req("SB-011")
@pytest.mark.parametrize(
    ("volume", "said"),
    [
        ({"secret": {"secretName": "none"}}, 'secret "none" not found'),
        ({"configMap": {"name": "map", "items": [{"key": "no", "path": "x"}]}}, "non-existent configmap key: no"),
        ({"configMap": {"name": "map", "items": [{"key": "A", "path": "../../x"}]}}, "leads out of the volume"),
    ],
    ids=["absent", "key", "outside"],
)
def test_a_volume_that_cannot_be_mounted_says_why(volume: dict[str, Any], said: str) -> None:
    with pytest.raises(MissingReference, match=said):
        content(volume)


@pytest.mark.req("SB-011")
def test_the_token_for_the_api_server_is_found() -> None:
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
    other = {"serviceAccountToken": {"path": "vault", "audience": "vault"}}
    document = pod(volumes=[{"name": "kube", "projected": {"sources": [other, source]}}])
    assert token_path(document) == ("kube", "token")
    assert token_path(pod()) is None


@pytest.mark.req("SB-011")
def test_files_are_replaced_all_at_once(tmp_path: Path) -> None:
    """Who has opened a folder by ``..data`` goes on to see the old files; names lead to the new ones."""
    assert folders.fill(tmp_path, {"a": File(b"1"), "d/e": File(b"2", 0o600)})
    assert not folders.fill(tmp_path, {"a": File(b"1"), "d/e": File(b"2")}), "nothing has changed"
    first = (tmp_path / "..data").readlink()
    assert (tmp_path / "d/e").stat().st_mode & 0o777 == 0o600
    assert folders.fill(tmp_path, {"a": File(b"3"), "f": File(b"4")})
    assert (tmp_path / "..data").readlink() != first
    assert not (tmp_path / first).exists()
    assert {entry.name for entry in tmp_path.iterdir() if not entry.name.startswith("..")} == {"a", "f"}
    assert (tmp_path / "a").read_bytes() == b"3"


@pytest.mark.req("SB-011")
@pytest.mark.parametrize(
    ("kind", "there"),
    [("", True), ("DirectoryOrCreate", True), ("Directory", False), ("File", False), ("Socket", False)],
)
def test_a_host_path_is_below_the_nodes_folder(tmp_path: Path, kind: str, there: bool) -> None:
    volume = Volume("h", host_path=HostPath("/sys/x", kind))
    pod_folder = folders.PodFolder(tmp_path / "pod")
    if there:
        folders.make_volume(pod_folder, volume, tmp_path / "host")
        assert (tmp_path / "host/sys/x").is_dir()
    else:
        with pytest.raises(MissingReference, match=f"/sys/x is not a {kind}"):
            folders.make_volume(pod_folder, volume, tmp_path / "host")


@pytest.mark.req("SB-011")
def test_other_volumes_are_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(MissingReference, match="have no volumes of this kind"):
        folders.make_volume(folders.PodFolder(tmp_path), Volume("pvc"), tmp_path)


# -- the stock kube-scheduler --------------------------------------------------------------------------------------

SURROUNDINGS = SchedulerPodContext(
    program="/cache/kube-scheduler", address="127.9.0.1", kubeconfig="/p/kubeconfig", configuration="/p/changed"
)
SCHEDULER = Container(
    "secondary-scheduler",
    image="registry.k8s.io/kube-scheduler:v1.30.1",
    command=["kube-scheduler"],
    args=["--config=/etc/kubernetes/config.yaml", "-v=2"],
)


@pytest.mark.req("NS-164")
@pytest.mark.parametrize(
    ("image", "runs"),
    [
        ("registry.k8s.io/kube-scheduler:v1.36.2", True),
        (f"registry.k8s.io/kube-scheduler@sha256:{'0' * 64}", True),
        ("registry.k8s.io/kube-scheduler-amd64:v1.36.2", False),
        ("docker.io/kube-scheduler:v1.36.2", False),
    ],
)
def test_the_stock_scheduler_is_run_too(image: str, runs: bool) -> None:
    assert is_run(image) == runs
    assert not is_ours(image)


@pytest.mark.req("NS-164")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("--listen=127.0.0.1:9448", "--listen=127.9.0.1:9448", id="its own loopback"),
        pytest.param("--listen=localhost:9448", "--listen=127.9.0.1:9448", id="by name"),
        pytest.param("--status-listen=:8448", "--status-listen=127.9.0.1:8448", id="all addresses"),
        pytest.param("--status-listen=0.0.0.0:8448", "--status-listen=127.9.0.1:8448", id="all addresses in words"),
        pytest.param("--status-listen=[::]:8448", "--status-listen=127.9.0.1:8448", id="all addresses of IPv6"),
        pytest.param("--allow=127.0.0.0/8", "--allow=127.0.0.0/8", id="a range"),
        pytest.param("--registry=127.0.0.1:5000/x", "--registry=127.0.0.1:5000/x", id="more than host and port"),
        pytest.param("--bind=10.0.0.1:80", "--bind=10.0.0.1:80", id="another host"),
        pytest.param("--toleration=:", "--toleration=:", id="a colon"),
        pytest.param(":8448", ":8448", id="no flag"),
    ],
)
def test_a_pod_has_its_network_for_itself(text: str, expected: str) -> None:
    assert addressed(text, "127.9.0.1") == expected
    container = Container("c", image=POLYARCH_REPOSITORY, args=["run", text])
    assert polyarch_command(container, {}, {}, address="127.9.0.1")[-1] == expected


@pytest.mark.req("NS-164")
def test_the_scheduler_gets_what_its_pod_would_give_it() -> None:
    mounts = {"/etc/kubernetes": "/v/config"}
    assert scheduler_command(SCHEDULER, {}, mounts, SURROUNDINGS) == (
        "/cache/kube-scheduler",
        "--config=/p/changed",
        "-v=2",
        "--bind-address=127.9.0.1",
        "--authentication-kubeconfig=/p/kubeconfig",
        "--authorization-kubeconfig=/p/kubeconfig",
    )
    assert configured_by(SCHEDULER, {}, mounts) == "/v/config/config.yaml"
    with pytest.raises(NotInTheImage, match='"": executable file not found'):
        scheduler_command(Container("c"), {}, {}, SURROUNDINGS)


@pytest.mark.req("NS-164")
def test_the_scheduler_reaches_the_api_server_and_the_extender_of_its_own_pod() -> None:
    text = """
profiles: [{schedulerName: topo}]
extenders:
- {urlPrefix: "http://127.0.0.1:9448/numa", weight: 10}
- {urlPrefix: "https://elsewhere.example:443/x"}
"""
    found = msgspec.json.decode(pod_scheduler_configuration(text, SURROUNDINGS))
    assert found == {
        "profiles": [{"schedulerName": "topo"}],
        "clientConnection": {"kubeconfig": "/p/kubeconfig"},
        "extenders": [
            {"urlPrefix": "http://127.9.0.1:9448/numa", "weight": 10},
            {"urlPrefix": "https://elsewhere.example:443/x"},
        ],
    }


@pytest.mark.req("NS-164")
@pytest.mark.parametrize("text", ["", "[]", "a: [", "extenders: 1", "clientConnection: x"])
def test_what_is_no_configuration_is_left_to_the_scheduler(text: str) -> None:
    assert pod_scheduler_configuration(text, SURROUNDINGS) == text


@pytest.mark.req("NS-164")
def test_a_kubeconfig_that_the_configuration_names_stays() -> None:
    text = "clientConnection: {kubeconfig: /mine, qps: 7}\nextenders: [{urlPrefix: 'http://[::1'}, 3]"
    found = msgspec.json.decode(pod_scheduler_configuration(text, SURROUNDINGS))
    assert found["clientConnection"] == {"kubeconfig": "/mine", "qps": 7}
    assert found["extenders"] == [{"urlPrefix": "http://[::1"}, 3]
