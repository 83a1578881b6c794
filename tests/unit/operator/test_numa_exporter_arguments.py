"""The flags that the settings of a group become (NO §6)."""

from pathlib import Path
from typing import Any

import pytest
from numa_cluster import PREFIX, Json, flags, found, operator, planned, pool

from polyarch.kube.rbac import Permission, granting, grants
from polyarch.numa.exporter.cluster import asks_configz, needs_node
from polyarch.numa.exporter.configuration import load_configuration
from polyarch.numa.exporter.settings import ExporterSettings

WORKERS = {"poolName": "worker"}


def configured(**config: str) -> Json:
    return {**WORKERS, "config": config}


@pytest.mark.req("NO-060")
def test_always() -> None:
    given = flags(planned(WORKERS))
    assert {
        "--sysfs=/host-sys",
        "--podresources-socket=unix:///host-podresources/kubelet.sock",
        "--kubelet-state-dir=/host-kubelet",
        "--refresh-node-resources",
        "--metrics-mode=httptls",
        "--metrics-ip=$(POD_IP)",
        "--metrics-certs-dir=/etc/secrets/rte",
        "--node-group=worker",
        "-v=2",
    } <= set(given)
    assert not any("add-nrt-owner" in each for each in given), "node owners stay on, so that objects go with nodes"


@pytest.mark.req("NO-061")
@pytest.mark.parametrize(
    ("fingerprinting", "expected"),
    [
        ("Disabled", {"--pods-fingerprint=false"}),
        ("Enabled", {"--pods-fingerprint=true", "--pods-fingerprint-method=all"}),
        (
            "EnabledExclusiveResources",
            {"--pods-fingerprint=true", "--pods-fingerprint-method=with-exclusive-resources"},
        ),
    ],
)
def test_fingerprints(fingerprinting: str, expected: set[str]) -> None:
    given = flags(planned(configured(podsFingerprinting=fingerprinting)))
    assert {each for each in given if "fingerprint" in each} == expected


@pytest.mark.req("NO-062")
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ["--sleep-interval=10s", "--state-poll=0"]),
        ({"infoRefreshPeriod": "1m30s"}, ["--sleep-interval=1m30s", "--state-poll=0"]),
        ({"infoRefreshMode": "Events"}, ["--sleep-interval=0", "--state-poll=1s"]),
        ({"infoRefreshMode": "Events", "infoRefreshPeriod": "5s"}, ["--sleep-interval=0", "--state-poll=1s"]),
        ({"infoRefreshMode": "PeriodicAndEvents"}, ["--sleep-interval=10s", "--state-poll=1s"]),
        ({"infoRefreshPeriod": "0"}, ["--sleep-interval=0", "--state-poll=0"]),
    ],
    ids=["default", "period", "events", "events with a period", "both", "no timer"],
)
def test_triggers(config: dict[str, str], expected: list[str]) -> None:
    """Events mode really has no timer."""
    given = flags(planned(configured(**config)))
    assert [each for each in given if each.startswith(("--sleep-interval", "--state-poll", "--notify"))] == expected


@pytest.mark.req("NO-063")
def test_paused() -> None:
    """The objects are left as they are."""
    assert "--no-publish" in flags(planned(configured(infoRefreshPause="Enabled")))
    assert "--no-publish" not in flags(planned(WORKERS))


@pytest.mark.req("NO-002")
@pytest.mark.parametrize(
    ("level", "flag"), [("Normal", "-v=2"), ("Debug", "-v=4"), ("Trace", "-v=6"), ("TraceAll", "-v=8")]
)
def test_verbosity(level: str, flag: str) -> None:
    assert flag in flags(planned(given=operator(WORKERS, logLevel=level)))


@pytest.mark.req("NO-101")
def test_annotations_of_the_group() -> None:
    annotations = {f"{PREFIX}placement-vectors": "enabled", f"{PREFIX}heartbeat": "10m"}
    given = flags(planned({**WORKERS, "annotations": annotations}))
    assert {"--placement-vectors", "--heartbeat=10m"} <= set(given)
    assert "--placement-vectors" in flags(planned(WORKERS, evicts=True)), "or a scheduler would not know whom to evict"
    no = {f"{PREFIX}placement-vectors": "disabled"}
    assert "--placement-vectors" not in flags(planned({**WORKERS, "annotations": no}, evicts=True))
    assert not {"--placement-vectors"} & set(
        flags(planned({**WORKERS, "annotations": {f"{PREFIX}placement-vectors": "x"}}))
    )


class TestTls:
    """The profile of OpenShift's API server, read with every plan, so that a change replaces the pods."""

    def given(self, profile: Json | None) -> dict[str, str]:
        made = planned(WORKERS, platform="openshift", pools=(pool("worker"),), tls_profile=profile)
        pairs = (each.removeprefix("--metrics-tls-").partition("=") for each in flags(made) if "metrics-tls" in each)
        return {name: value for name, _, value in pairs}

    @pytest.mark.req("NO-065")
    def test_no_profile_is_the_exporters_default(self) -> None:
        assert self.given(None) == {}

    @pytest.mark.req("NO-065")
    def test_named_profiles(self) -> None:
        assert self.given({"type": "Modern"}) == {"min-version": "VersionTLS13"}
        for kind in ("Intermediate", "Old"):
            offered = self.given({"type": kind})
            assert offered["min-version"] == "VersionTLS12", "nothing older is offered"
            assert offered["cipher-suites"].split(",")[0] == "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"

    @pytest.mark.req("NO-065")
    def test_a_profile_of_ones_own(self) -> None:
        """OpenSSL's names become IANA's; what nobody should offer is left out."""
        ciphers = ["ECDHE-RSA-AES256-GCM-SHA384", "DES-CBC3-SHA", "TLS_AES_128_GCM_SHA256"]
        profile = {"type": "Custom", "custom": {"minTLSVersion": "VersionTLS11", "ciphers": ciphers}}
        assert self.given(profile) == {
            "min-version": "VersionTLS12",
            "cipher-suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        }
        profile = {"type": "Custom", "custom": {"minTLSVersion": "VersionTLS13", "ciphers": ciphers}}
        assert self.given(profile) == {"min-version": "VersionTLS13"}, "ciphers of 1.3 cannot be chosen"


class TestUnderstood:
    """The exporter itself reads what the operator writes."""

    def read(self, folder: Path, *groups: Json, **facts: Any) -> ExporterSettings:
        made = planned(*groups, **facts)
        text = found(made, "ConfigMap")["data"]["config.yaml"]
        root = folder / ".rte"
        (root / "extra").mkdir(parents=True, exist_ok=True)
        (root / "extra/config.yaml").write_text(text)
        given = [each.replace("$(POD_IP)", "10.0.0.1") for each in flags(made)]  # as a kubelet does
        understood = load_configuration([*given, str(root)], {"NODE_NAME": "n1"}, home=folder)
        assert understood.warnings == ()
        return understood.settings

    @pytest.mark.req("NO-052", "NO-060", "NO-061", "NO-062", "NO-063", "NO-101")
    def test_flags_and_file_mean_what_the_group_says(self, tmp_path: Path) -> None:
        """No flag that the exporter does not know."""
        annotations = {f"{PREFIX}placement-vectors": "enabled", f"{PREFIX}heartbeat": "10m"}
        config = {"podsFingerprinting": "Enabled", "infoRefreshMode": "PeriodicAndEvents", "infoRefreshPeriod": "1m30s"}
        entry = {**WORKERS, "annotations": annotations, "config": {**config, "infoRefreshPause": "Enabled"}}
        given = operator(entry, logLevel="Trace", podExcludes=[{"namespace": "kube-*", "name": "*"}])
        settings = self.read(tmp_path, given=given)
        assert (settings.scan.node_group, settings.verbosity) == ("worker", 6)
        assert (settings.scan.pods_fingerprint, settings.scan.pods_fingerprint_method) == (True, "all")
        assert settings.scan.placement_vectors
        assert [(each.namespace, each.name) for each in settings.scan.pod_exclude] == [("kube-*", "*")]
        assert (settings.triggers.sleep_interval, settings.triggers.state_poll) == (90.0, 1.0)
        assert settings.triggers.refresh_node_resources
        assert (settings.publish.no_publish, settings.publish.heartbeat) == (True, 600.0)
        assert settings.host.podresources_socket == "unix:///host-podresources/kubelet.sock"
        assert (settings.host.sysfs, settings.host.kubelet_state_dir) == ("/host-sys", "/host-kubelet")
        assert settings.metrics.mode == "httptls"

    @pytest.mark.req("NE-122", "NO-052", "NO-065")
    @pytest.mark.parametrize("kind", ["Old", "Intermediate", "Modern"])
    def test_tls_and_the_kubelet_of_openshift(self, tmp_path: Path, kind: str) -> None:
        """Names of versions and ciphers are known."""
        settings = self.read(
            tmp_path, WORKERS, platform="openshift", pools=(pool("worker"),), tls_profile={"type": kind}
        )
        assert settings.metrics.min_tls_version == ("VersionTLS13" if kind == "Modern" else "VersionTLS12")
        assert (settings.host.topology_manager_policy, settings.host.topology_manager_scope) == ("none", "container")

    @pytest.mark.req("NE-140", "NO-058")
    def test_the_rights_are_those_that_the_exporter_needs(self, tmp_path: Path) -> None:
        for facts in ({}, {"platform": "openshift", "pools": (pool("worker"),)}):
            settings = self.read(tmp_path, WORKERS, **facts)
            made = planned(WORKERS, **facts)
            usual = {
                *(
                    Permission(verb, "topology.node.k8s.io", "noderesourcetopologies")
                    for verb in ("get", "list", "watch", "create", "update", "patch")
                ),
                *(Permission(verb, "", "nodes") for verb in ("get", "list", "watch")),
            }
            configz = {Permission("get", "", "nodes/configz")} if asks_configz(settings) else set()
            assert set(grants(granting([found(made, "ClusterRole")]))) == usual | configz, facts
            assert (needs_node(settings), settings.scan.exclude_terminal_pods) == (True, False)
            assert set(grants(granting([found(made, "Role")]))) == {
                Permission("get", "", "pods"),
                Permission("patch", "", "pods/status"),
            }
