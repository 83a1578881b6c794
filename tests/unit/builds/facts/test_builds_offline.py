"""A facts file: what it holds, how its registry answers, and what is said about a wrong one."""

from typing import Any

import msgspec
import pytest
from build_wishes import digest

from polyarch.builds.facts.build_facts import BuildFacts, BuildLookup, HeadResult
from polyarch.builds.facts.offline import FactsFile, InvalidFacts
from polyarch.oci.inspection import Status

NOW = "2026-01-31T12:00:00Z"
REPOSITORY = "registry.example.com/team/web"


def build(name: str = "web", namespace: str = "team", **spec: Any) -> dict[str, Any]:
    output = {"repository": REPOSITORY}
    return {
        "apiVersion": "polyarch.dev/v1alpha1",
        "kind": "ImageBuild",
        "metadata": {"namespace": namespace, "name": name, "uid": f"uid-{name}"},
        "spec": {"source": {"containerfile": "FROM scratch\n"}, "output": output, **spec},
    }


def run(name: str, namespace: str = "team") -> dict[str, Any]:
    return {
        "apiVersion": "polyarch.dev/v1alpha1",
        "kind": "ImageBuildRun",
        "metadata": {"namespace": namespace, "name": name, "uid": f"uid-{name}"},
        "spec": {"imageBuild": {"name": "web", "uid": "uid-web"}, "serial": 1},
        "status": {"phase": "Succeeded"},
    }


def node(name: str) -> dict[str, Any]:
    info = {"architecture": "arm64", "operatingSystem": "linux"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"nodeInfo": info}}


def file(*objects: Any, **members: Any) -> FactsFile:
    return FactsFile({"now": NOW, "objects": list(objects), **members})


def facts(*objects: Any, **members: Any) -> BuildFacts:
    content = file(build(), *objects, **members)
    return content.facts(content.requests[0])


@pytest.mark.req("BD-003")
def test_everything_that_a_plan_is_made_of() -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "namespace": "team",
            "name": "web-1-arm64",
            "uid": "uid-job",
            "labels": {"polyarch.dev/run": "web-1", "polyarch.dev/architecture": "arm64"},
        },
        "status": {"active": 1},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "team",
            "name": "web-1-arm64-x",
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "web-1-arm64", "uid": "uid-job", "controller": True}
            ],
        },
        "status": {"phase": "Running"},
    }
    record = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "namespace": "team",
            "name": "web-1-arch",
            "ownerReferences": [{"kind": "ImageBuildRun", "name": "web-1", "uid": "uid-web-1"}],
        },
        "data": {"architectures.json": '{"schema":1}'},
    }
    found = facts(node("n1"), run("web-1"), run("web-9", "other"), job, pod, record)
    assert (found.now, found.request.name) == (1769860800.0, "web")
    assert [each.name for each in found.nodes or ()] == ["n1"]
    assert [(each.name, each.recorded) for each in found.executions] == [("web-1", '{"schema":1}')]
    (only,) = found.jobs
    assert (only.name, only.active, only.pod is not None and only.pod.phase) == ("web-1-arm64", 1, "Running")
    assert (found.places.free, found.places.room) == (19, 19)


@pytest.mark.req("BD-003")
def test_jobs_of_others_and_jobs_that_have_ended_take_no_slot() -> None:
    def job(name: str, labels: dict[str, str], **status: Any) -> dict[str, Any]:
        metadata = {"namespace": "other", "name": name, "labels": labels}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "status": status}

    own = {"polyarch.dev/run": "web-1"}
    complete = [{"type": "Complete", "status": "True"}]
    found = facts(job("theirs", {"app": "x"}), job("ended", own, conditions=complete), job("runs", own))
    assert found.jobs == ()
    assert (found.places.free, found.places.room) == (19, 20)


@pytest.mark.req("BD-003")
def test_kinds_that_builds_do_not_read_are_passed_over() -> None:
    volcano = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {}, "status": {"active": "many"}}
    found = facts({"apiVersion": "apps/v1", "kind": "Deployment", "spec": 7}, volcano)
    assert found.jobs == ()


@pytest.mark.req("BD-003")
def test_lists_count_as_their_items() -> None:
    plain = {"apiVersion": "v1", "kind": "List", "items": [node("n1"), {"kind": "List", "items": [node("n2")]}]}
    bare = [{"metadata": {"name": "n3"}, "status": {}}]
    typed = {"apiVersion": "v1", "kind": "NodeList", "items": bare}
    assert [each.name for each in file(plain, typed).nodes] == ["n1", "n2", "n3"]


@pytest.mark.req("BD-003")
def test_builds_are_in_order_of_their_names_and_live_in_default() -> None:
    unplaced = build("alone")
    del unplaced["metadata"]["namespace"]
    found = file(build("b"), build("a"), unplaced).requests
    assert [(each.namespace, each.name) for each in found] == [("default", "alone"), ("team", "a"), ("team", "b")]


@pytest.mark.req("BD-003")
def test_config_maps_and_secrets_that_the_build_names() -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": "team", "name": "npm"},
        "data": {"t": "eA=="},
    }
    files = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"namespace": "team", "name": "f"},
        "data": {"a": "b"},
    }
    wanted = {
        "containerfileFrom": {"name": "f"},
        "context": {"type": "ConfigMap", "configMap": {"name": "gone"}},
        "secrets": [
            {"id": "npm", "secret": {"name": "npm", "key": "t"}},
            {"id": "x", "secret": {"name": "nope", "key": "t"}},
        ],
    }
    space = {
        "kind": "Namespace",
        "metadata": {"name": "team", "labels": {"pod-security.kubernetes.io/enforce": "baseline"}},
    }
    content = file(build(source=wanted), secret, files, space, settings={"hmacKey": "00" * 31 + "01"})
    inputs = content.facts(content.requests[0]).inputs
    assert inputs.config_maps == {"f": {"data": {"a": "b"}}, "gone": None}
    assert inputs.secrets["nope"] is None
    assert inputs.secrets["npm"] is not None
    assert inputs.secrets["npm"].fingerprints != _fingerprints(file(build(source=wanted), secret))
    assert (inputs.readable, inputs.pod_security) == (True, "baseline")


def _fingerprints(content: FactsFile) -> Any:
    found = content.facts(content.requests[0]).inputs.secrets["npm"]
    return found.fingerprints if found is not None else None


@pytest.mark.req("BD-003")
def test_settings() -> None:
    given = {
        "allowPrivileged": True,
        "archTaintKeys": ["a/b"],
        "maxActiveJobs": 3,
        "machineOS": "on",
        "builderImage": "b",
        "pushImage": "p",
    }
    found = file(settings=given).settings
    assert (found.allow_privileged, found.arch_taint_keys, found.max_active_jobs) == (True, ("a/b",), 3)
    assert (found.machine_os, found.builder_image, found.push_image) == ("on", "b", "p")
    assert file().settings.max_active_jobs == 20


TAG, INDEX, CHILD = f"{REPOSITORY}:v1", digest("f"), digest("a")
REGISTRY = {
    TAG: {"digest": INDEX, "children": {"linux/amd64": CHILD}},
    f"{REPOSITORY}@{digest('b')}": {"kind": "image", "platforms": ["linux/arm64"]},
    f"{REPOSITORY}@{digest('c')}": None,
    f"{REPOSITORY}:latest": {"digest": digest("c")},
    f"{REPOSITORY}:gone": {"error": "not-found"},
    f"{REPOSITORY}:shut": {"error": "denied"},
}
HEADS: dict[str, tuple[str, HeadResult]] = {
    "a tag": (TAG, HeadResult(digest=INDEX)),
    "the digest that a tag has": (f"{REPOSITORY}@{INDEX}", HeadResult(digest=INDEX)),
    "a child of an index": (f"{REPOSITORY}@{CHILD}", HeadResult(digest=CHILD)),
    "a digest that is listed": (f"{REPOSITORY}@{digest('b')}", HeadResult(digest=digest("b"))),
    "a digest of which nothing is said": (f"{REPOSITORY}@{digest('c')}", HeadResult(digest=digest("c"))),
    "a tag of which only the digest is said": (f"{REPOSITORY}:latest", HeadResult(digest=digest("c"))),
    "a tag that is not listed": (f"{REPOSITORY}:v2", HeadResult()),
    "a digest in another repository": (f"registry.example.com/other@{INDEX}", HeadResult()),
    "said not to be there": (f"{REPOSITORY}:gone", HeadResult()),
    "not allowed": (f"{REPOSITORY}:shut", HeadResult(error="denied")),
}


@pytest.mark.req("BD-003")
@pytest.mark.parametrize("case", HEADS, ids=str)
def test_what_exists(case: str) -> None:
    reference, expected = HEADS[case]
    assert file(registry=REGISTRY).head(reference) == expected


@pytest.mark.req("BD-003")
def test_what_is_not_listed_is_not_found() -> None:
    content = file(registry=REGISTRY)
    assert content.inspect(TAG).status is Status.RESOLVED
    for reference in (f"{REPOSITORY}:v2", "no reference at all"):
        missing = content.inspect(reference).error
        assert missing is not None
        assert missing.code == "not-found"


@pytest.mark.req("BD-003")
def test_questions_are_answered_until_there_are_none() -> None:
    class Plan(msgspec.Struct, frozen=True):
        facts: BuildFacts
        lookups: tuple[BuildLookup, ...]

    def plan(facts: BuildFacts) -> Plan:
        wanted: list[BuildLookup] = []
        if TAG not in facts.images:
            wanted.append(BuildLookup(reference=TAG, what="inspect"))
        elif not facts.pins_fresh:
            wanted += [
                BuildLookup(reference=TAG, what="inspect", revalidate=True),
                BuildLookup(reference=TAG, what="head"),
                BuildLookup(reference="late", what="secret"),
                BuildLookup(reference="later", what="configmap"),
            ]
        return Plan(facts, tuple(wanted))

    content = file(build(), registry=REGISTRY)
    found = content.planned(content.facts(content.requests[0]), plan).facts
    assert found.images[TAG].digest == INDEX
    assert found.existing == {TAG: HeadResult(digest=INDEX)}
    assert found.pins_fresh
    assert (found.inputs.secrets, found.inputs.config_maps) == ({"late": None}, {"later": None})


@pytest.mark.req("BD-006")
def test_the_order_of_objects_makes_no_difference_to_what_is_found() -> None:
    objects = [node("n1"), node("n2"), run("web-1"), run("web-2")]
    one, other = facts(*objects), facts(*objects[::-1])
    assert sorted(one.executions, key=lambda each: each.name) == sorted(other.executions, key=lambda each: each.name)
    assert {each.name for each in one.nodes or ()} == {each.name for each in other.nodes or ()}


WRONG: dict[str, tuple[Any, str]] = {
    "no mapping": ([], "must be a mapping, not a list"),
    "nothing": (None, "must be a mapping, not empty"),
    "an unknown member": ({"now": NOW, "object": []}, "object: is unknown; did you mean objects?"),
    "one that is like nothing": (
        {"now": NOW, "x": 1},
        "x: is unknown; expected one of now, objects, registry, settings",
    ),
    "no time": ({}, 'now: is missing; give the time of the plan, such as "2026-01-31T12:00:00Z"'),
    "a time that is none": ({"now": "noon"}, "now: 'noon' is not a time such as \"2026-01-31T12:00:00Z\""),
    "objects that are no list": ({"now": NOW, "objects": {}}, "objects: must be a list of Kubernetes objects"),
    "an object that is none": ({"now": NOW, "objects": [node("n1"), 5]}, "objects[1]: must be a mapping, not a number"),
    "an object without a kind": (
        {"now": NOW, "objects": [{}]},
        "objects[0]: has no kind; expected a Kubernetes object",
    ),
    "an object without a name": (
        {"now": NOW, "objects": [{"kind": "Node"}]},
        "objects[0].metadata: the Node has no name; give it metadata.name",
    ),
    "an object twice": (
        {"now": NOW, "objects": [node("n1"), node("n2"), node("n1")]},
        "objects[2]: objects[0] is Node n1 already; keep one of them",
    ),
    "a member of another type": (
        {"now": NOW, "objects": [build(retries="two")]},
        "objects[0].spec.retries: must be a whole number, not 'two'; write one from 0 to 10 without quotes",
    ),
    "a member within a list": (
        {"now": NOW, "objects": [{"kind": "List", "items": [build(source={"overrides": [{"architecture": 5}]})]}]},
        "objects[0].items[0].spec.source.overrides[0].architecture: must be a text, not 5; write it in quotes",
    ),
    "a registry that is no mapping": ({"now": NOW, "registry": []}, "registry: must be a mapping, not a list"),
    "an answer for no image": (
        {"now": NOW, "registry": {"Not An Image": []}},
        "registry.Not An Image: invalid image reference 'Not An Image'",
    ),
    "an answer with an unknown member": (
        {"now": NOW, "registry": {TAG: {"platform": ["linux/arm64"]}}},
        f"registry[{TAG}]: unknown member 'platform'",
    ),
    "an error code that does not exist": (
        {"now": NOW, "registry": {TAG: {"error": "broken"}}},
        f"registry[{TAG}]: error code 'broken' is unknown",
    ),
    "a digest that is none": (
        {"now": NOW, "registry": {TAG: {"digest": "sha256:12"}}},
        f"registry[{TAG}]: digest: a sha256 digest has 64",
    ),
    "an unknown setting": (
        {"now": NOW, "settings": {"maxActiveJob": 1}},
        "settings.maxActiveJob: is unknown; did you mean maxActiveJobs?",
    ),
    "a setting of another type": (
        {"now": NOW, "settings": {"maxActiveJobs": "x"}},
        "settings.maxActiveJobs: expected `int`, got `str`",
    ),
    "a setting that has no such value": (
        {"now": NOW, "settings": {"machineOS": "maybe"}},
        "settings.machineOS: 'maybe' is not auto, on or off",
    ),
    "a key that is not hexadecimal": (
        {"now": NOW, "settings": {"hmacKey": "secret"}},
        "settings.hmacKey: is not hexadecimal; give 64 digits",
    ),
}


@pytest.mark.req("BD-003")
@pytest.mark.parametrize("case", WRONG, ids=str)
def test_what_is_wrong_is_said_with_its_member(case: str) -> None:
    data, expected = WRONG[case]
    with pytest.raises(InvalidFacts) as caught:
        FactsFile(data)
    assert str(caught.value).startswith(expected)


@pytest.mark.req("BD-333")
def test_a_key_that_is_wrong_is_not_quoted() -> None:
    with pytest.raises(InvalidFacts) as caught:
        FactsFile({"now": NOW, "settings": {"hmacKey": "hunter2"}})
    assert "hunter2" not in str(caught.value)
