"""polyarch in the sandbox, and the demo: what a newcomer sees first."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polyarch.installation import apply, objects, preflight
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden
from polyarch.kube.resources import MUTATING_WEBHOOKS, PODS, SECRETS, SELF_SUBJECT_ACCESS_REVIEWS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.reports.wording import percent
from polyarch.sandbox import operator
from polyarch.sandbox.certificates import kubeconfig_with_token
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.document import describe
from polyarch.sandbox.files import write_json

PROGRAM = "import sys; from polyarch.cli import main; sys.exit(main())"
SECONDS = 480
"""The whole demo, on a machine that does other things as well."""
pytestmark = [pytest.mark.timeout(SECONDS + 60), pytest.mark.req("SB-010")]
OURS = {names.OPERATOR, names.WEBHOOK, names.CONTROLLER}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The document of ``polyarch up --demo`` in a sandbox of its own: the demo switches polyarch off for a while."""
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path_factory.mktemp("state"))}

    def polyarch(*arguments: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    try:
        yield json.loads(polyarch("up", "--demo", "--name", "demo", "-o", "json"))
    finally:
        polyarch("down", "--name", "demo", "--delete")


def pods(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {pod["name"]: pod for pod in document["demo"]["pods"]}


@pytest.mark.req("SB-007")
def test_every_pod_that_can_run_runs_where_its_images_can(demo: dict[str, Any]) -> None:
    for name, pod in pods(demo).items():
        if name == "impossible":
            continue
        assert pod["phase"] == "Running", pod
        supported = [{platform.split("/")[1] for platform in image["platforms"]} for image in pod["images"]]
        assert all(pod["nodeArchitecture"] in architectures for architectures in supported), pod
        assert pod["milliseconds"]["running"] >= pod["milliseconds"]["bound"] > 0


@pytest.mark.req("SB-007")
def test_the_pod_that_can_run_nowhere_is_not_tried_and_says_so(demo: dict[str, Any]) -> None:
    pod = pods(demo)["impossible"]
    assert (pod["path"], pod["reason"], pod["node"]) == ("gated", "NoSupportedArchitecture", "")
    assert pod["without"]["node"], "without polyarch it is put somewhere, and fails there"


@pytest.mark.req("PL-800", "SB-007")
def test_each_way_through_admission_is_taken_and_costs_what_it_should(demo: dict[str, Any]) -> None:
    found = pods(demo)
    assert {pod["path"] for pod in found.values()} == {"inline", "gated", "ignored"}
    assert found["pinned"]["reason"] == "ArchitectureAlreadyRequired"
    assert found["billing"]["architectures"] == ["amd64"]
    assert found["edge"]["architectures"] == ["arm64"]
    assert found["reports"]["path"] == "gated", "its registry takes longer than the webhook waits"
    assert found["reports"]["milliseconds"]["released"] is not None
    for pod in found.values():
        if pod["path"] != "gated":
            # One request is possible: the pull secret's first use.
            assert pod["requests"] <= (1 if pod["name"] == "vault" else 0), pod
        else:
            assert 1 <= pod["requests"] <= 6, pod


@pytest.mark.req("SB-007")
def test_without_polyarch_the_same_pods_stand_as_they_were_scheduled(demo: dict[str, Any]) -> None:
    for pod in pods(demo).values():
        without = pod["without"]
        supported = [{platform.split("/")[1] for platform in image["platforms"]} for image in pod["images"]]
        fits = all(without["nodeArchitecture"] in architectures for architectures in supported)
        assert (without["reason"] == "") == fits, pod
    assert "without" in demo["demo"]["summary"]


@pytest.mark.req("IN-003", "SB-007")
def test_the_operator_made_its_objects_and_its_uninstall_left_nothing(demo: dict[str, Any]) -> None:
    """By lists of every object of the API server, before the installation and after the uninstall."""
    line = demo["demo"]["operator"]
    assert line["installed"] > 10
    assert line["made"] > 20, "rights, Deployments, Services, webhook configurations, certificates"
    assert line["left"] == []
    assert 0 < line["installSeconds"] < 60
    assert 0 < line["uninstallSeconds"] < 60
    assert "uninstall left nothing" in demo["demo"]["summary"]


@pytest.mark.req("TN-027", "TN-050", "TN-073")
def test_nodes_that_join_are_tainted_before_a_pod_is_there_and_nothing_is_left(demo: dict[str, Any]) -> None:
    """The DaemonSet follows, pods of amd64 images stay away, and no node keeps a taint."""
    growth = demo["demo"]["growth"]
    assert growth == {"joined": 2, "tainted": 2, "daemonSetPods": 2, "keptAway": 4, "left": []}


@pytest.mark.req("RP-030")
def test_the_report_that_placement_keeps_names_what_holds_back_the_most(demo: dict[str, Any]) -> None:
    """Of the pods that the demo shows, in both namespaces, and no others: what has grown meanwhile is gone by then."""
    report, found = demo["demo"]["report"], pods(demo).values()
    able = sum(all("linux/arm64" in image["platforms"] for image in pod["images"]) for pod in found)
    assert report["target"] == "arm64"
    assert report["couldRun"] == percent(able / len(found))
    assert len(report["inTheWay"]) == 1


@pytest.mark.req("BD-103", "BD-391")
def test_an_image_is_built_for_all_and_after_a_change_for_one_alone(demo: dict[str, Any]) -> None:
    """In one index; the other architectures are reused."""
    build = demo["demo"]["build"]
    everything = {node["architecture"] for node in demo["nodes"]}
    assert set(build["built"]) == everything
    assert build["builtAgain"] == ["arm64"]
    assert set(build["reused"]) == everything - {"arm64"}
    assert "@sha256:" in build["image"]


@pytest.mark.req("SB-014")
def test_after_the_demo_polyarch_is_there_again(demo: dict[str, Any]) -> None:
    containers = {each["container"]: each for each in demo["processes"] if each.get("pod")}
    assert set(containers) == {"operator", "web-hook", "controller", "builder"}
    wrong = [each for each in containers.values() if not (each["healthy"] and each["pid"] and each["memory"])]
    assert wrong == []


@pytest.mark.req("PL-550", "SB-014")
def test_polyarch_was_allowed_everything_it_asked_for(demo: dict[str, Any]) -> None:
    """Exactly these rights, and no 403; when it is uninstalled, its rights go before its last pod."""
    refused = []
    seen = set()
    for line in Path(demo["auditLog"]).read_bytes().splitlines():
        event = msgspec.json.decode(line)
        if event["verb"] == "delete" and event.get("objectRef", {}).get("resource") == CPPCS.plural:
            break
        user = event["user"].get("username", "")
        if user.startswith(operator.ACCOUNTS):
            seen.add(user.removeprefix(operator.ACCOUNTS))
            if event.get("responseStatus", {}).get("code") == 403:
                refused.append((user, event["verb"], event["requestURI"]))
    assert seen == OURS
    assert refused == []


@pytest.mark.req("SB-006")
@pytest.mark.parametrize("account", sorted(OURS))
async def test_the_roles_are_no_administrators(placed_sandbox: Sandbox, tmp_path: Path, account: str) -> None:
    async with placed_sandbox.client() as administrator:
        token = await administrator.token(DEFAULT_NAMESPACE, account, expiration_seconds=600)
    kubeconfig = tmp_path / "kubeconfig"
    write_json(
        kubeconfig, kubeconfig_with_token(account, placed_sandbox.api_server, str(placed_sandbox.ca), token.token)
    )
    async with Client(config.load(str(kubeconfig))) as client:
        with pytest.raises(Forbidden, match=account):
            await client.list(SECRETS)
        review = {"resourceAttributes": {"verb": "*", "group": "*", "resource": "*"}}
        answer = await client.create(
            SELF_SUBJECT_ACCESS_REVIEWS,
            {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": review},
            type=dict,
        )
        assert answer["status"]["allowed"] is False


@pytest.mark.req("IN-031")
async def test_the_webhook_is_registered_by_service_and_places_pods(placed_sandbox: Sandbox) -> None:
    async with placed_sandbox.client() as client:
        registered = await client.get(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION)
        webhook, _probe = registered["webhooks"]
        assert webhook["clientConfig"]["service"]["namespace"] == DEFAULT_NAMESPACE
        assert "url" not in webhook["clientConfig"]
        assert webhook["failurePolicy"] == "Ignore"
        assert webhook["clientConfig"]["caBundle"]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "first"},
            "spec": {"containers": [{"name": "a", "image": "quay.io/acme/billing:2.3"}]},
        }
        created = await client.create(PODS, pod, namespace="default", type=dict, dry_run=True)
    assert created["metadata"]["labels"][names.SCHEDULING_GATE_LABEL] in {"removed", "gated"}


@pytest.mark.req("IN-031")
async def test_the_sandbox_has_the_objects_of_an_installation_and_no_others(placed_sandbox: Sandbox) -> None:
    """A second installation with the same values changes nothing."""
    wanted = objects.documents(operator.installation(placed_sandbox.layout, placed_sandbox.state.settings))
    async with placed_sandbox.client() as client:
        applied = await apply.apply_all(client, wanted, await preflight.gather(client, wanted))
    assert {each.verb for each in applied} == {"unchanged"}


@pytest.mark.req("SB-003")
async def test_every_component_of_a_sandbox_with_polyarch_is_healthy(placed_sandbox: Sandbox) -> None:
    described = await describe(placed_sandbox)
    assert {each.container for each in described.processes if each.pod} >= {"operator", "web-hook", "controller"}
    assert {each.name: each.detail for each in described.processes if not each.healthy} == {}
