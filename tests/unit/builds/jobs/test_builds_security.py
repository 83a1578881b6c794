"""What the containers of build pods may do."""

import pytest
from build_orders import order

from polyarch.builds.jobs.manifests import architecture_manifests
from polyarch.builds.jobs.spec import PROFILES, forbidden_by_pod_security


def pod(profile):
    return architecture_manifests(order(profile=profile))[-1]["spec"]["template"]["spec"]


@pytest.mark.req("BD-151")
def test_user_namespace_is_root_inside_with_what_a_chroot_needs() -> None:
    found = pod("UserNamespace")
    assert found["hostUsers"] is False
    context = found["initContainers"][0]["securityContext"]
    assert context["runAsUser"] == 0
    assert context["capabilities"]["drop"] == ["ALL"]
    assert set(context["capabilities"]["add"]) == {
        *("SYS_ADMIN", "SYS_CHROOT", "SETUID", "SETGID", "SETFCAP", "SETPCAP", "CHOWN", "DAC_OVERRIDE", "FOWNER"),
        *("FSETID", "KILL", "MKNOD"),
    }
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert "allowPrivilegeEscalation" not in context
    assert "privileged" not in context


@pytest.mark.req("BD-151")
def test_rootless_has_the_two_capabilities_that_map_ids() -> None:
    found = pod("Rootless")
    assert "hostUsers" not in found
    context = found["initContainers"][0]["securityContext"]
    assert context["runAsUser"] == context["runAsGroup"] == 0
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["SETUID", "SETGID"]}
    assert context["seccompProfile"] == context["appArmorProfile"] == {"type": "Unconfined"}
    assert "privileged" not in context


@pytest.mark.req("BD-151")
def test_privileged_is_what_it_says_and_nothing_else_is() -> None:
    assert pod("Privileged")["initContainers"][0]["securityContext"]["privileged"] is True
    assert [name for name, profile in PROFILES.items() if "privileged" in profile.container] == ["Privileged"]


@pytest.mark.req("BD-151")
@pytest.mark.parametrize("profile", PROFILES)
def test_push_is_confined_in_every_profile(profile: str) -> None:
    (push,) = pod(profile)["containers"]
    context = push["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["runAsGroup"] > 0, "without a group a container has that of root"
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}


@pytest.mark.req("BD-153")
@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_a_namespace_that_refuses_build_pods_is_named_with_its_label(level: str) -> None:
    said = forbidden_by_pod_security("team", level)
    assert said is not None
    for word in ("team", level, "pod-security.kubernetes.io/enforce", "'privileged'"):
        assert word in said


@pytest.mark.req("BD-153")
@pytest.mark.parametrize("level", ["", "privileged"])
def test_other_namespaces_take_them(level: str) -> None:
    assert forbidden_by_pod_security("team", level) is None
