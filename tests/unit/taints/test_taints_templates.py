"""Templates of DaemonSets: what is added, recorded and taken back."""

import json
from typing import Any

import msgspec
import pytest
from placement_cases import APP, SIDE, Document, answers, failure, index, neutral, os_is, pod, term
from taint_cases import daemon_set, settings, templated, tolerating, toleration

from polyarch.kube.patches import apply_patch
from polyarch.objects import DaemonSet
from polyarch.taints import names
from polyarch.taints.patch import recorded_tolerations, restoring_patch

BOTH = index(APP, "amd64", "arm64")
RECORD = names.ADDED_TOLERATIONS_ANNOTATION


def tolerations(document: Document) -> list[Document]:
    return document["spec"]["template"]["spec"].get("tolerations") or []


def record(document: Document) -> Any:
    return json.loads(document["metadata"]["annotations"][RECORD])


def restored(document: Document) -> Document:
    return apply_patch(document, restoring_patch(msgspec.convert(document, DaemonSet)))


@pytest.mark.req("TN-050")
def test_the_template_gets_the_tolerations_and_the_daemon_set_the_record() -> None:
    held = [{"operator": "Exists", "effect": "NoExecute"}]
    given = daemon_set(pod(tolerations=held))
    found = templated(given, answers(BOTH))
    assert found.told == ("Images", "tolerated", ("amd64", "arm64"))
    assert tolerations(found.document) == [*held, *tolerating("amd64", "arm64")]
    assert record(found.document) == tolerating("amd64", "arm64")
    assert found.document["spec"]["template"]["metadata"] == given["spec"]["template"]["metadata"]
    assert found.decision.message.startswith("Template tolerates the taints of amd64 and arm64")


@pytest.mark.req("TN-050", "TN-094")
def test_all_rules_of_pods_hold_for_templates() -> None:
    template = pod(
        APP,
        initContainers=[{"name": "setup", "image": SIDE}],
        terms=[term(os_is("linux"))],
        nodeSelector={"kubernetes.io/arch": "arm64"},
    )
    found = templated(daemon_set(template), answers(BOTH, index(SIDE, "arm64", "amd64")))
    assert found.decision.added == ("arm64",)
    secondary = templated(daemon_set(pod()), answers(BOTH), settings(mode="secondary-only"))
    assert secondary.decision.added == ("arm64",)


@pytest.mark.req("TN-050")
def test_a_later_addition_extends_the_record() -> None:
    first = templated(daemon_set(pod(), {"team": "a"}), answers(BOTH), settings(mode="secondary-only"))
    second = templated(first.document, answers(BOTH))
    assert second.decision.added == ("amd64",)
    assert tolerations(second.document) == tolerating("arm64", "amd64")
    assert record(second.document) == tolerating("amd64", "arm64")
    assert second.document["metadata"]["annotations"]["team"] == "a"


@pytest.mark.req("TN-050")
def test_a_stored_daemon_set_is_written_only_if_it_has_not_changed() -> None:
    found = templated(daemon_set(pod()), answers(BOTH), stored=True)
    assert [(each.op, each.path, each.value) for each in found.operations[:2]] == [
        ("test", "/metadata/uid", "u-1"),
        ("test", "/metadata/resourceVersion", "7"),
    ]


@pytest.mark.req("TN-050")
@pytest.mark.parametrize(
    ("document", "changes", "reason"),
    [
        (daemon_set(pod(), {names.OPT_OUT: names.DISABLED}), {}, "OptedOut"),
        (daemon_set(pod(annotations={names.OPT_OUT: names.DISABLED})), {}, "OptedOut"),
        (daemon_set(pod()), {"excluded_namespaces": ("shop",)}, "NotSelected"),
        (daemon_set(pod()), {"templates": "ignore"}, "TemplatesIgnored"),
        (daemon_set(pod()), {"state": "paused"}, "Paused"),
    ],
)
def test_templates_that_are_not_touched(document: Document, changes: dict[str, Any], reason: str) -> None:
    found = templated(document, answers(BOTH), settings(**changes))
    assert found.told == (reason, "unchanged", ())
    assert found.operations == ()


@pytest.mark.req("TN-050")
def test_a_daemon_set_that_is_being_deleted_is_not_touched() -> None:
    document = daemon_set(pod())
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert templated(document, answers(BOTH)).told[0] == "Terminating"


@pytest.mark.req("TN-052")
@pytest.mark.parametrize("held", [tolerating("amd64", "arm64"), [{"operator": "Exists"}]])
def test_a_covered_template_is_not_written(held: list[Document]) -> None:
    for stored in (True, False):
        found = templated(daemon_set(pod(tolerations=held)), answers(BOTH), stored=stored)
        assert found.told == ("Covered", "unchanged", ())
        assert found.operations == ()


@pytest.mark.req("TN-052")
@pytest.mark.parametrize("policy", ["gate", "primary-only", "all", "none"])
def test_nothing_is_added_while_an_answer_is_missing_whatever_the_policy_for_pods(policy: str) -> None:
    for given in ({}, answers(failure(APP, "denied", 403))):
        found = templated(daemon_set(pod()), given, settings(on_unknown=policy))
        assert found.told == ("ArchitectureUnknown", "blocked", ())
        assert found.operations == ()
        assert f"{APP} " in found.decision.message
        assert "template gets no toleration" in found.decision.message


@pytest.mark.req("TN-052")
def test_images_that_exclude_each_other_are_not_waited_for() -> None:
    found = templated(daemon_set(pod(APP, SIDE)), answers(BOTH, index(SIDE, "s390x")), settings(on_no_common="deny"))
    assert found.told == ("NoCommonArchitecture", "unchanged", ())


@pytest.mark.req("TN-053")
def test_applying_the_original_manifest_again_and_again_ends_in_the_same_template() -> None:
    """Each admission sees the manifest as it was written, with the annotation that the live object has, or without."""
    original = daemon_set(pod(tolerations=[{"key": "team", "operator": "Exists"}]))
    live = templated(original, answers(BOTH)).document
    for number in range(10):
        annotations = live["metadata"]["annotations"] if number % 2 else None
        again = daemon_set(pod(tolerations=[{"key": "team", "operator": "Exists"}]), annotations)
        again = templated(again, answers(BOTH)).document
        assert again["spec"] == live["spec"]
        assert record(again) == record(live)
    assert templated(live, answers(BOTH)).operations == ()


@pytest.mark.req("TN-053")
def test_neutral_images_give_the_same_template_as_well() -> None:
    given = answers(neutral(APP))
    live = templated(daemon_set(pod()), given, existing=frozenset({"riscv64"})).document
    assert templated(live, given, existing=frozenset({"riscv64"})).operations == ()
    assert templated(daemon_set(pod()), given, existing=frozenset({"riscv64"})).document == live


# -- taken back --------------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-070")
def test_exactly_what_was_added_is_taken_back() -> None:
    held = [{"key": "a", "operator": "Exists"}, toleration("s390x")]
    found = templated(daemon_set(pod(tolerations=held), {"team": "a"}), answers(index(APP, "amd64", "arm64", "s390x")))
    assert found.decision.added == ("amd64", "arm64")
    document = found.document
    tolerations(document).append({"key": "later", "operator": "Exists"})
    after = restored(document)
    assert tolerations(after) == [*held, {"key": "later", "operator": "Exists"}]
    assert after["metadata"]["annotations"] == {"team": "a"}
    assert restoring_patch(msgspec.convert(after, DaemonSet)) == ()


@pytest.mark.req("TN-070")
def test_what_was_changed_meanwhile_is_the_users() -> None:
    document = templated(daemon_set(pod()), answers(BOTH)).document
    tolerations(document)[0] = toleration("amd64", tolerationSeconds=60)
    after = restored(document)
    assert tolerations(after) == [toleration("amd64", tolerationSeconds=60)]
    assert RECORD not in after["metadata"]["annotations"]


@pytest.mark.req("TN-070")
def test_a_record_that_somebody_broke_takes_nothing_back() -> None:
    deep = '[{"x":' + "[" * 50_000 + "]" * 50_000 + "}]"
    for text in ("", "amd64", '{"key": 1}', '[{"value": 5}]', deep):
        document = daemon_set(pod(tolerations=tolerating("amd64")), {RECORD: text})
        assert recorded_tolerations({RECORD: text}) == ()
        assert tolerations(restored(document)) == tolerating("amd64")
