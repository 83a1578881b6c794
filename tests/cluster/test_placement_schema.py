"""What the API server refuses of placement's custom resources, and in which words.

Creates are dry runs: they are validated like any other and leave nothing behind, so tests can share one cluster.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import msgspec
import pytest
import yaml

from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import AlreadyExists, Invalid, NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CRDS, Resource
from polyarch.placement.api import CPPCS, ENOEXECEVENTS, POLICIES, PPCS, PlacementPolicy
from polyarch.placement.crd import PREVIEW_MESSAGE, crds
from polyarch.placement.settings import Settings, SettingsTable
from polyarch.sandbox.cluster import Sandbox

Json = dict[str, Any]
ESTABLISHED_SECONDS = 20
PPCS_V1ALPHA1 = Resource(PPCS.group, "v1alpha1", PPCS.plural, PPCS.kind)
CPPCS_V1ALPHA1 = Resource(CPPCS.group, "v1alpha1", CPPCS.plural, CPPCS.kind, namespaced=False)


@pytest.fixture(scope="session")
def served(sandbox: Sandbox) -> Sandbox:
    """The sandbox, serving our resources."""
    with ThreadPoolExecutor(1) as thread:  # session fixtures must not touch the event loops of the tests
        thread.submit(asyncio.run, _install(str(sandbox.kubeconfig))).result()
    return sandbox


@pytest.fixture
def api(served: Sandbox, client: Client) -> Client:
    """A client of an API server that serves our resources."""
    assert served.kubeconfig.exists()
    return client


async def _install(kubeconfig: str) -> None:
    async with Client(config.load(kubeconfig), role="tests") as client:
        for document in crds():
            await client.apply(CRDS, document)
        async with asyncio.timeout(ESTABLISHED_SECONDS):
            for resource in (CPPCS, CPPCS_V1ALPHA1, POLICIES, PPCS, PPCS_V1ALPHA1, ENOEXECEVENTS):
                while resource.plural not in {each.plural for each in await _served(client, resource)}:
                    await asyncio.sleep(0.1)
                while not await _answers(client, resource):  # discovery can be ahead of the handler
                    await asyncio.sleep(0.1)


async def _served(client: Client, resource: Resource) -> list[Resource]:
    return [each for each in await client.discover(resource.group) if each.version == resource.version]


async def _answers(client: Client, resource: Resource) -> bool:
    try:
        await client.list(resource)
    except NotFound:
        return False
    return True


def of(resource: Resource, spec: Json | None, name: str = "cluster") -> Json:
    document: Json = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
    return document if spec is None else document | {"spec": spec}


async def accepted(client: Client, resource: Resource, document: Json, namespace: str = "") -> Json:
    """The object as it would be stored; a real one of that name counts as acceptance too, validation comes first."""
    try:
        return await client.create(resource, document, namespace=namespace, dry_run=True, type=dict)
    except AlreadyExists:
        return document


async def refused(client: Client, resource: Resource, document: Json, namespace: str = "") -> str:
    with pytest.raises(Invalid) as refusal:
        await client.create(resource, document, namespace=namespace, dry_run=True)
    return str(refusal.value)


def scoring(*platforms: tuple[str, int], enabled: bool = True) -> Json:
    listed = [{"architecture": name, "weight": weight} for name, weight in platforms]
    return {"plugins": {"nodeAffinityScoring": {"enabled": enabled, "platforms": listed}}}


class TestClusterPodPlacementConfig:
    @pytest.mark.req("PL-010")
    @pytest.mark.parametrize("resource", [CPPCS, CPPCS_V1ALPHA1], ids=["v1beta1", "v1alpha1"])
    async def test_only_the_name_cluster_and_the_message_says_so(self, api: Client, resource: Resource) -> None:
        said = await refused(api, resource, of(resource, {}, "other"))
        assert "is named cluster" in said
        assert "set metadata.name to cluster" in said
        await accepted(api, resource, of(resource, {}))
        await accepted(api, resource, of(resource, None))

    @pytest.mark.req("PL-010")
    @pytest.mark.parametrize(
        "spec",
        [
            {
                "logVerbosity": "TraceAll",
                "namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "Exists"}]},
            },
            scoring(("arm64", 100), ("amd64", 1), ("ppc64le", 2), ("s390x", 3)),
            scoring(("arm64", 1), enabled=False),
            {"plugins": {"execFormatErrorMonitor": {"enabled": True}}},
            {"fallbackArchitecture": ""},
            {"fallbackArchitecture": "s390x"},
        ],
        ids=["selector", "scoring", "scoring disabled", "monitor", "no fallback", "fallback"],
    )
    async def test_what_is_allowed(self, api: Client, spec: Json) -> None:
        await accepted(api, CPPCS, of(CPPCS, spec))

    @pytest.mark.req("PL-010", "PL-751")
    @pytest.mark.parametrize(
        ("spec", "said"),
        [
            ({"logVerbosity": "Loud"}, ["spec.logVerbosity", '"Normal"']),
            ({"fallbackArchitecture": "vax"}, ["spec.fallbackArchitecture", '"arm64"']),
            ({"plugins": {"nodeAffinityScoring": {"enabled": True}}}, ["platforms", "Required"]),
            ({"plugins": {"nodeAffinityScoring": {"platforms": []}}}, ["enabled", "Required"]),
            (scoring(), ["platforms", "at least 1"]),
            (scoring(("arm64", 0)), ["weight", "greater than or equal to 1"]),
            (scoring(("arm64", 101)), ["weight", "less than or equal to 100"]),
            (scoring(("riscv64", 1)), ["architecture", '"arm64"']),
            (
                scoring(("amd64", 1), ("arm64", 1), ("arm64", 2)),
                ["platforms[1] and [2] both have architecture arm64", "keep one of them"],
            ),
            (
                scoring(("arm64", 1), ("arm64", 2), enabled=False),
                ["platforms[0] and [1] both have architecture arm64", "keep one of them"],
            ),
            ({"plugins": {"execFormatErrorMonitor": {}}}, ["enabled", "Required"]),
        ],
        ids=[
            "verbosity",
            "fallback",
            "platforms missing",
            "enabled missing",
            "no platforms",
            "weight too small",
            "weight too large",
            "architecture",
            "twice",
            "twice though disabled",
            "monitor",
        ],
    )
    async def test_what_is_refused(self, api: Client, spec: Json, said: list[str]) -> None:
        message = await refused(api, CPPCS, of(CPPCS, spec))
        assert all(part in message for part in said), message

    @pytest.mark.req("PL-010")
    async def test_defaults(self, api: Client) -> None:
        stored = await api.apply(CPPCS, of(CPPCS, {"namespaceSelector": {}}), dry_run=True, type=dict)
        assert stored["spec"]["logVerbosity"] in ("Normal", "Debug", "Trace", "TraceAll")
        assert "fallbackArchitecture" in stored["spec"]


class TestPodPlacementConfig:
    @pytest.mark.req("PL-030")
    @pytest.mark.parametrize(
        "spec",
        [
            scoring(("arm64", 1)),
            scoring(("arm64", 1)) | {"priority": 255, "labelSelector": {}},
            scoring(("arm64", 1), ("arm64", 2), enabled=False),
            {"plugins": {}},
        ],
        ids=["plain", "priority and selector", "twice while disabled", "no plugin"],
    )
    async def test_what_is_allowed(self, api: Client, namespace: str, spec: Json) -> None:
        stored = await accepted(api, PPCS, of(PPCS, spec, "some"), namespace)
        assert stored["spec"]["priority"] == spec.get("priority", 0)

    @pytest.mark.req("PL-030", "PL-751")
    @pytest.mark.parametrize(
        ("spec", "said"),
        [
            (None, ["spec", "Required"]),
            ({}, ["spec.plugins", "Required"]),
            (scoring(("arm64", 1)) | {"priority": 256}, ["spec.priority", "less than or equal to 255"]),
            (scoring(("arm64", 1)) | {"priority": -1}, ["spec.priority", "greater than or equal to 0"]),
            (
                scoring(("arm64", 1), ("arm64", 2)),
                ["platforms[0] and [1] both have architecture arm64", "keep one of them"],
            ),
        ],
        ids=["no spec", "no plugins", "priority too high", "priority negative", "twice"],
    )
    async def test_what_is_refused(self, api: Client, namespace: str, spec: Json | None, said: list[str]) -> None:
        message = await refused(api, PPCS, of(PPCS, spec, "some"), namespace)
        assert all(part in message for part in said), message

    @pytest.mark.req("PL-030")
    async def test_a_misspelt_member_is_never_stored(self, api: Client, namespace: str) -> None:
        """It cannot look as if it applied."""
        stored = await accepted(api, PPCS, of(PPCS, scoring(("arm64", 1)) | {"prority": 7}, "some"), namespace)
        assert set(stored["spec"]) == {"plugins", "priority"}


class TestENoExecEvent:
    GOOD: ClassVar[Json] = {
        "podName": "web-1",
        "podNamespace": "shop",
        "nodeName": "n1.example",
        "containerID": "cri-o://" + "a" * 64,
    }

    @pytest.mark.req("PL-036")
    @pytest.mark.parametrize(
        ("status", "field"),
        [
            ({}, ""),
            ({"podName": "Web"}, "status.podName"),
            ({"podName": "a" * 254}, "status.podName"),
            ({"podNamespace": "a.b"}, "status.podNamespace"),
            ({"podNamespace": "a" * 64}, "status.podNamespace"),
            ({"nodeName": "-n"}, "status.nodeName"),
            ({"containerID": "a" * 64}, "status.containerID"),
            ({"containerID": "containerd://" + "A" * 64}, "status.containerID"),
            ({"containerID": "containerd://" + "a" * 63}, "status.containerID"),
        ],
    )
    async def test_the_status_is_checked_by_the_schema(
        self, api: Client, namespace: str, status: Json, field: str
    ) -> None:
        name = "event-" + (field.rpartition(".")[2].lower() or "good")
        await api.apply(ENOEXECEVENTS, of(ENOEXECEVENTS, {}, name), namespace=namespace)
        change = MergePatch({"status": self.GOOD | status})
        if field:
            with pytest.raises(Invalid, match=field):
                await api.patch(ENOEXECEVENTS, name, change, namespace=namespace, subresource="status")
        else:
            after = await api.patch(ENOEXECEVENTS, name, change, namespace=namespace, subresource="status", type=dict)
            assert after["status"] == self.GOOD


EXAMPLE = """
apiVersion: polyarch.dev/v1alpha1
kind: PlacementPolicy
metadata: {name: cluster}
spec:
  onUnresolved: {retryWindow: 5m}
  excludedNamespaces: [build-cache, "vendor-*"]
  overrides:
  - name: regulated
    namespaceSelector: {matchLabels: {tier: regulated}}
    onUnresolved: {action: hold, holdLimit: 12h}
    podOptOut: forbidden
  - name: trial
    namespaceSelector: {matchExpressions: [{key: trial, operator: Exists}]}
    mode: audit
"""


def override(**members: Any) -> Json:
    return {"overrides": [{"name": "some", "namespaceSelector": {"matchLabels": {"a": "b"}}} | members]}


@pytest.mark.req("PL-041", "PL-043", "PL-044")
class TestPlacementPolicy:
    @pytest.mark.req("PL-040")
    async def test_the_only_name_is_cluster(self, api: Client) -> None:
        said = await refused(api, POLICIES, of(POLICIES, {}, "mine"))
        assert "the only PlacementPolicy is named cluster" in said

    @pytest.mark.req("PL-042", "PL-045")
    async def test_the_example_is_accepted_and_means_what_it_says(self, api: Client) -> None:
        """What the API server fills in does not keep overrides from inheriting."""
        stored = await accepted(api, POLICIES, yaml.safe_load(EXAMPLE))
        table = SettingsTable.of(msgspec.convert(stored, PlacementPolicy), None, operator_namespace="")
        assert table.problems == ()
        regulated = table.of_namespace({"tier": "regulated"})
        assert (regulated.unresolved_action, regulated.hold_limit, regulated.retry_window) == ("hold", 43200.0, 300.0)
        assert (regulated.pod_opt_out, table.of_namespace({"trial": ""}).mode) == ("forbidden", "audit")
        assert table.spec.excludes("vendor-x")

    @pytest.mark.req("PL-040")
    async def test_an_empty_policy_is_all_defaults(self, api: Client) -> None:
        stored = await accepted(api, POLICIES, of(POLICIES, {}))
        filled = SettingsTable.of(msgspec.convert(stored, PlacementPolicy), None, operator_namespace="").spec
        assert filled == msgspec.structs.replace(Settings(), warm_up_kinds=filled.warm_up_kinds)

    @pytest.mark.req("PL-040")
    @pytest.mark.parametrize(
        "spec",
        [
            {"onUnresolved": {"action": "hold", "holdLimit": "168h", "retryWindow": "1h"}},
            {"onUnresolved": {"retryWindow": "5s", "fallbackArchitectures": ["386", "riscv64"]}},
            {"inline": {"enabled": False, "budget": "0s"}},
            {"inline": {"budget": "2s"}},
            {"sweep": {"interval": "24h", "minAge": "1h", "maxEvictionsPerMinute": 100, "scope": "all"}},
            {"warmUp": {"enabled": True, "kinds": ["CronJob"], "imagesPerMinute": 1}},
            {"images": {"staleFor": "24h", "secretAccess": "none", "shareReadings": False}},
            {"images": {"staleFor": "0s"}},
            {"report": {"enabled": True, "interval": "10m"}},
            {"nodeAware": {"mode": "narrow", "assumeArchitectures": ["arm64"]}},
            override(
                onUnresolved={"action": "hold", "holdLimit": "2m"}, inline={"budget": "1s"}, sweep={"action": "off"}
            ),
            {"excludedNamespaces": ["a", "a-*", "9*"]},
        ],
        ids=lambda spec: "+".join(spec),
    )
    async def test_what_is_allowed(self, api: Client, spec: Json) -> None:
        await accepted(api, POLICIES, of(POLICIES, spec))

    REFUSED: tuple[tuple[str, Json, list[str]], ...] = (
        ("mode", {"mode": "strict"}, ["spec.mode", '"enforce", "audit"']),
        ("action", {"onUnresolved": {"action": "drop"}}, ["spec.onUnresolved.action", '"hold", "fallback", "release"']),
        ("window short", {"onUnresolved": {"retryWindow": "4s"}}, ["spec.onUnresolved.retryWindow", "5s to 1h"]),
        ("window long", {"onUnresolved": {"retryWindow": "61m"}}, ["spec.onUnresolved.retryWindow", "5s to 1h"]),
        ("window form", {"onUnresolved": {"retryWindow": "1 hour"}}, ["spec.onUnresolved.retryWindow"]),
        (
            "window huge",
            {"onUnresolved": {"retryWindow": "9999999999h"}},
            ["spec.onUnresolved.retryWindow", "5s to 1h"],
        ),
        (
            "limit without hold",
            {"onUnresolved": {"holdLimit": "1h"}},
            ["holdLimit is allowed only with", "action: hold"],
        ),
        (
            "limit below window",
            {"onUnresolved": {"action": "hold", "holdLimit": "1m"}},
            ["holdLimit must not be shorter", "retryWindow"],
        ),
        ("limit long", {"onUnresolved": {"action": "hold", "holdLimit": "169h"}}, ["holdLimit", "168h"]),
        ("fallback", {"onUnresolved": {"fallbackArchitectures": ["vax"]}}, ["fallbackArchitectures", '"amd64"']),
        ("fallback twice", {"onUnresolved": {"fallbackArchitectures": ["arm", "arm"]}}, ["fallbackArchitectures[1]"]),
        ("budget", {"inline": {"budget": "3s"}}, ["spec.inline.budget", "0s to 2s"]),
        ("os", {"osConstraint": "maybe"}, ["spec.osConstraint", '"off", "auto", "always"']),
        ("node aware", {"nodeAware": {"mode": "yes"}}, ["spec.nodeAware.mode", '"narrow"']),
        ("all namespaces", {"excludedNamespaces": ["*"]}, ["spec.excludedNamespaces", "mode: audit"]),
        ("star in the middle", {"excludedNamespaces": ["a*b"]}, ["spec.excludedNamespaces", "prefix followed by *"]),
        ("opt out", {"podOptOut": "no"}, ["spec.podOptOut", '"allowed", "forbidden"']),
        ("events", {"events": "all"}, ["spec.events", '"problems", "lean", "full"']),
        ("sweep", {"sweep": {"action": "kill"}}, ["spec.sweep.action", '"evict"']),
        ("sweep interval", {"sweep": {"interval": "30s"}}, ["spec.sweep.interval", "1m to 24h"]),
        ("sweep age", {"sweep": {"minAge": "2h"}}, ["spec.sweep.minAge", "30s to 1h"]),
        ("evictions", {"sweep": {"maxEvictionsPerMinute": 101}}, ["maxEvictionsPerMinute", "100"]),
        ("kinds", {"warmUp": {"kinds": ["Job"]}}, ["spec.warmUp.kinds", '"CronJob"']),
        ("pace", {"warmUp": {"imagesPerMinute": 0}}, ["imagesPerMinute", "1"]),
        ("stale", {"images": {"staleFor": "25h"}}, ["spec.images.staleFor", "0s to 24h"]),
        ("report", {"report": {"interval": "9m"}}, ["spec.report.interval", "10m to 168h"]),
        ("secrets", {"images": {"secretAccess": "list"}}, ["spec.images.secretAccess", '"byName"']),
        (
            "empty selector",
            {"overrides": [{"name": "a", "namespaceSelector": {}}]},
            ["namespaceSelector must not be empty"],
        ),
        ("no selector", {"overrides": [{"name": "a"}]}, ["namespaceSelector", "Required"]),
        (
            "override twice",
            {"overrides": override()["overrides"] * 2},
            ["spec.overrides[1]", "Duplicate"],
        ),
        ("override limit", override(onUnresolved={"holdLimit": "1h"}), ["spec.overrides", "action: hold"]),
        (
            "override limit below the inherited window",
            {"onUnresolved": {"retryWindow": "1h"}} | override(onUnresolved={"action": "hold", "holdLimit": "30m"}),
            ["holdLimit must not be shorter"],
        ),
        (
            "too many overrides",
            {"overrides": [override()["overrides"][0] | {"name": f"o{at}"} for at in range(65)]},
            ["spec.overrides", "64"],
        ),
    )

    @pytest.mark.req("PL-040", "PL-750", "PL-751")
    @pytest.mark.parametrize(("spec", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
    async def test_what_is_refused_and_in_which_words(self, api: Client, spec: Json, said: list[str]) -> None:
        """The message names the field and what is allowed."""
        message = await refused(api, POLICIES, of(POLICIES, spec))
        assert all(part in message for part in said), message


@pytest.mark.req("PL-060")
@pytest.mark.parametrize("field", ["logVerbosityLevel", "logVerbosity"])
async def test_a_manifest_of_the_first_preview_is_told_what_replaces_it(api: Client, field: str) -> None:
    """Whatever its fields were; `polyarch lint` says the same of the file."""
    document = {
        "apiVersion": PPCS_V1ALPHA1.api_version,
        "kind": PPCS.kind,
        "metadata": {"name": "cluster"},
        "spec": {field: "Normal", "namespaceSelector": {}},
    }
    with pytest.raises(Invalid) as refused:
        await api.create(PPCS_V1ALPHA1, document, namespace="default")
    assert PREVIEW_MESSAGE in str(refused.value)
    with pytest.raises(Invalid, match="polyarch fix FILE rewrites the manifest"):
        await api.apply(PPCS_V1ALPHA1, document, namespace="default")
    with pytest.raises(NotFound):
        await api.get(PPCS, "cluster", namespace="default")


@pytest.mark.req("PL-060")
async def test_configurations_of_today_can_be_read_through_the_old_version_and_not_written(api: Client) -> None:
    """Nothing is stored from v1alpha1, and v1beta1 is served as if it were not there."""
    scoring = {"enabled": True, "platforms": [{"architecture": "arm64", "weight": 5}]}
    name = "preview-beside"
    document = {"metadata": {"name": name}, "spec": {"plugins": {"nodeAffinityScoring": scoring}, "priority": 60}}
    await api.create(PPCS, {"apiVersion": PPCS.api_version, "kind": PPCS.kind, **document}, namespace="default")
    try:
        assert (await api.get(PPCS_V1ALPHA1, name, namespace="default"))["spec"]["priority"] == 60
        with pytest.raises(Invalid, match="polyarch fix FILE"):
            await api.patch(PPCS_V1ALPHA1, name, MergePatch({"spec": {"priority": 61}}), namespace="default")
        await api.patch(PPCS, name, MergePatch({"spec": {"priority": 62}}), namespace="default")
        definition = await api.get(CRDS, f"{PPCS.plural}.{PPCS.group}")
        assert definition["status"]["storedVersions"] == ["v1beta1"]
    finally:
        await api.delete(PPCS, name, namespace="default")
