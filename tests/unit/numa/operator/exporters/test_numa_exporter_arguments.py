"""The flags that the settings of a group become (NO §6)."""

import pytest
from numa_cluster import PREFIX, Json, flags, operator, planned, pool

WORKERS = {"poolName": "worker"}


def configured(**config: str) -> Json:
    return {**WORKERS, "config": config}


def test_no_060_always() -> None:
    """NO-060."""
    given = flags(planned(WORKERS))
    assert {
        "--sysfs=/host-sys",
        "--podresources-socket=unix:///host-podresources/kubelet.sock",
        "--kubelet-state-dir=/host-kubelet",
        "--refresh-node-resources",
        "--metrics-mode=httptls",
        "--node-group=worker",
        "-v=2",
    } <= set(given)
    assert not any("add-nrt-owner" in each for each in given), "node owners stay on, so that objects go with nodes"


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
def test_no_061_fingerprints(fingerprinting: str, expected: set[str]) -> None:
    """NO-061."""
    given = flags(planned(configured(podsFingerprinting=fingerprinting)))
    assert {each for each in given if "fingerprint" in each} == expected


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
def test_no_062_triggers(config: dict[str, str], expected: list[str]) -> None:
    """NO-062, §15: events mode really has no timer."""
    given = flags(planned(configured(**config)))
    assert [each for each in given if each.startswith(("--sleep-interval", "--state-poll", "--notify"))] == expected


def test_no_063_paused() -> None:
    """NO-063: the objects are left as they are."""
    assert "--no-publish" in flags(planned(configured(infoRefreshPause="Enabled")))
    assert "--no-publish" not in flags(planned(WORKERS))


@pytest.mark.parametrize(
    ("level", "flag"), [("Normal", "-v=2"), ("Debug", "-v=4"), ("Trace", "-v=6"), ("TraceAll", "-v=8")]
)
def test_no_002_verbosity(level: str, flag: str) -> None:
    """NO-002."""
    assert flag in flags(planned(given=operator(WORKERS, logLevel=level)))


def test_no_101_annotations_of_the_group() -> None:
    """NO-101."""
    annotations = {f"{PREFIX}placement-vectors": "enabled", f"{PREFIX}heartbeat": "10m"}
    given = flags(planned({**WORKERS, "annotations": annotations}))
    assert {"--placement-vectors", "--heartbeat=10m"} <= set(given)
    assert not {"--placement-vectors"} & set(
        flags(planned({**WORKERS, "annotations": {f"{PREFIX}placement-vectors": "x"}}))
    )


class TestTls:
    """NO-065: the profile of OpenShift's API server, read with every plan, so that a change replaces the pods."""

    def given(self, profile: Json | None) -> dict[str, str]:
        made = planned(WORKERS, platform="openshift", pools=(pool("worker"),), tls_profile=profile)
        pairs = (each.removeprefix("--metrics-tls-").partition("=") for each in flags(made) if "metrics-tls" in each)
        return {name: value for name, _, value in pairs}

    def test_no_065_no_profile_is_the_exporters_default(self) -> None:
        """NO-065."""
        assert self.given(None) == {}

    def test_no_065_named_profiles(self) -> None:
        """NO-065."""
        assert self.given({"type": "Modern"}) == {"min-version": "VersionTLS13"}
        for kind in ("Intermediate", "Old"):
            found = self.given({"type": kind})
            assert found["min-version"] == "VersionTLS12", "nothing older is offered"
            assert found["cipher-suites"].split(",")[0] == "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"

    def test_no_065_a_profile_of_ones_own(self) -> None:
        """NO-065: OpenSSL's names become IANA's; what nobody should offer is left out."""
        ciphers = ["ECDHE-RSA-AES256-GCM-SHA384", "DES-CBC3-SHA", "TLS_AES_128_GCM_SHA256"]
        profile = {"type": "Custom", "custom": {"minTLSVersion": "VersionTLS11", "ciphers": ciphers}}
        assert self.given(profile) == {
            "min-version": "VersionTLS12",
            "cipher-suites": "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        }
        profile = {"type": "Custom", "custom": {"minTLSVersion": "VersionTLS13", "ciphers": ciphers}}
        assert self.given(profile) == {"min-version": "VersionTLS13"}, "ciphers of 1.3 cannot be chosen"
