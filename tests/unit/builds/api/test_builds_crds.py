"""The schemas of ImageBuild and ImageBuildRun say what is read and written, with the limits of the settings."""

import re
from typing import Any, get_args

import msgspec
import pytest
from build_refusals import Json, spec

from polyarch.builds.api import formats
from polyarch.builds.api.crd import IMMUTABLE, crds
from polyarch.builds.api.formats import BuildTimes, build_seconds, emulation_hosts
from polyarch.builds.api.resources import ImageBuildRunSpec, ImageBuildRunStatus, ImageBuildSpec, ImageBuildStatus

BUILD, RUN = crds()
ROOTS = {each["spec"]["names"]["kind"]: each["spec"]["versions"][0] for each in (BUILD, RUN)}


def root(kind: str) -> Any:
    return ROOTS[kind]["schema"]["openAPIV3Schema"]


def at(path: str) -> Json:
    """The schema of a field of ImageBuild, as ``spec.output.tags[]``."""
    found = root("ImageBuild")
    for name in path.split("."):
        found = found["properties"][name.removesuffix("[]")]
        if name.endswith("[]"):
            found = found["items"]
    return found


def filled(schema: Json, value: Any) -> Any:
    """What the API server makes of it with the defaults."""
    if isinstance(value, list):
        return [filled(schema["items"], each) for each in value]
    if not isinstance(value, dict):
        return value
    found = dict(value)
    for name, member in schema.get("properties", {}).items():
        if name in found or "default" in member:
            found[name] = filled(member, found.get(name, member.get("default")))
    return found


@pytest.mark.req("BD-010", "BD-020")
def test_the_resources() -> None:
    """Namespaced, with the short names of the page."""
    described = [
        (each["metadata"]["name"], each["spec"]["scope"], each["spec"]["names"]["shortNames"]) for each in (BUILD, RUN)
    ]
    assert described == [
        ("imagebuilds.polyarch.dev", "Namespaced", ["ib"]),
        ("imagebuildruns.polyarch.dev", "Namespaced", ["ibr"]),
    ]
    assert [(each["name"], each["subresources"]) for each in ROOTS.values()] == [("v1alpha1", {"status": {}})] * 2


@pytest.mark.req("BD-014", "BD-022")
def test_columns() -> None:
    """What `kubectl get` shows, and with `-o wide`."""

    def columns(kind: str) -> list[str]:
        return [
            f"{each['name']}{' wide' * each.get('priority', 0)}" for each in ROOTS[kind]["additionalPrinterColumns"]
        ]

    assert columns("ImageBuild") == ["Ready", "Architectures", "Run", "Image wide", "Age"]
    assert columns("ImageBuildRun") == ["Phase", "Architectures", "Result wide", "Duration", "Age"]


@pytest.mark.req("BD-010", "BD-013", "BD-020", "BD-022")
@pytest.mark.parametrize(
    ("kind", "part", "struct"),
    [
        ("ImageBuild", "spec", ImageBuildSpec),
        ("ImageBuild", "status", ImageBuildStatus),
        ("ImageBuildRun", "spec", ImageBuildRunSpec),
        ("ImageBuildRun", "status", ImageBuildRunStatus),
    ],
)
def test_the_schema_has_the_fields_that_are_read_and_written(
    kind: str, part: str, struct: type[msgspec.Struct]
) -> None:
    """The API server drops what the schema does not have."""
    assert fields_of_type(msgspec.inspect.type_info(struct)) == fields_of_schema(root(kind)["properties"][part])


def fields_of_type(type: msgspec.inspect.Type) -> Any:
    if isinstance(type, msgspec.inspect.UnionType):
        return next(found for each in type.types if (found := fields_of_type(each)) is not None)
    if isinstance(type, msgspec.inspect.ListType):
        return [fields_of_type(type.item_type)]
    if isinstance(type, msgspec.inspect.StructType):
        name = type.cls.__name__
        if name == "Condition":
            return "condition"
        return {each.encode_name: fields_of_type(each.type) for each in type.fields}
    if isinstance(type, msgspec.inspect.DictType):
        return "map"
    return None if isinstance(type, msgspec.inspect.NoneType) else "value"


def fields_of_schema(schema: Json) -> Any:
    if schema.get("type") == "array":
        return [fields_of_schema(schema["items"])]
    members = schema.get("properties")
    if members is None or set(members) in ({"requests", "limits"}, TOLERATION):
        return "map" if schema.get("type") == "object" else "value"
    if "lastTransitionTime" in members:
        return "condition"
    return {name: fields_of_schema(each) for name, each in members.items()}


TOLERATION = {"key", "operator", "value", "effect", "tolerationSeconds"}
"""Passed on as pods have it."""


@pytest.mark.req("BD-010")
def test_what_a_small_spec_is_filled_with_means_the_defaults() -> None:
    """Two places say the defaults, and mean the same."""
    stored = filled(root("ImageBuild")["properties"]["spec"], spec())
    assert stored["source"]["context"] == {"type": "None"}
    assert stored["emulation"] == {"hosts": ["amd64"]}
    assert stored["timeouts"] == {"preflight": "5m", "nodeWait": "15m", "build": "1h", "index": "5m"}
    assert stored["history"] == {"successful": 3, "failed": 1, "images": "Keep"}
    read, plain = (msgspec.convert(each, ImageBuildSpec) for each in (stored, spec()))
    assert msgspec.structs.replace(read, emulation=plain.emulation) == plain
    assert emulation_hosts(read) == emulation_hosts(plain) == ("amd64",)


@pytest.mark.req("BD-010")
@pytest.mark.parametrize(
    ("field", "limits"),
    [
        ("spec.source.containerfile", {"maxLength": 128 * 1024}),
        ("spec.source.overrides", {"maxItems": 16, "x-kubernetes-list-map-keys": ["architecture"]}),
        ("spec.source.buildArgs", {"maxProperties": 64}),
        ("spec.source.secrets", {"maxItems": 16, "x-kubernetes-list-map-keys": ["id"]}),
        ("spec.source.containerfileFrom.key", {"default": "Containerfile"}),
        ("spec.baseImages.policy", {"default": "OnBuild", "enum": ["Never", "OnBuild", "Interval"]}),
        ("spec.baseImages.preflight", {"default": "Required", "enum": ["Required", "Warn"]}),
        ("spec.baseImages.substitute", {"maxItems": 32, "x-kubernetes-list-map-keys": ["from"]}),
        ("spec.architectures.list", {"minItems": 1, "maxItems": 16, "x-kubernetes-list-type": "set"}),
        ("spec.architectures.include", {"maxItems": 16, "x-kubernetes-list-type": "set"}),
        ("spec.architectures.exclude", {"maxItems": 16, "x-kubernetes-list-type": "set"}),
        ("spec.architectures.settle", {"default": "30s"}),
        ("spec.architectures.empty", {"default": "WorkerNodes", "enum": ["WorkerNodes", "Wait"]}),
        ("spec.architectures.onNewArchitecture", {"default": "Build", "enum": ["Build", "NextBuild"]}),
        ("spec.output.tags", {"maxItems": 16, "x-kubernetes-list-type": "set"}),
        ("spec.output.pullSecrets", {"maxItems": 8, "x-kubernetes-list-map-keys": ["name"]}),
        ("spec.output.format", {"default": "OCI", "enum": ["OCI", "Docker"]}),
        ("spec.output.labels", {"maxProperties": 64}),
        ("spec.output.annotations", {"maxProperties": 32}),
        ("spec.output.index", {"default": "Auto", "enum": ["Auto", "Always", "Never"]}),
        ("spec.output.attestations", {"default": "Drop", "enum": ["Drop", "Keep"]}),
        ("spec.output.archTags", {"default": "Keep", "enum": ["Keep", "None"]}),
        ("spec.strategy", {"default": "Native", "enum": ["Native", "PreferNative", "Emulated"]}),
        ("spec.failFast", {"default": False}),
        ("spec.retries", {"minimum": 0, "maximum": 10, "default": 3}),
        ("spec.scheduling.maxParallel", {"minimum": 0, "default": 0}),
        ("spec.scheduling.perArchitecture", {"x-kubernetes-list-map-keys": ["architecture"]}),
        ("spec.builder.serviceAccount", {"default": "default"}),
        (
            "spec.builder.securityProfile",
            {"default": "Auto", "enum": ["Auto", "UserNamespace", "Rootless", "Privileged"]},
        ),
        ("spec.reproducible.enabled", {"default": True}),
        ("spec.reproducible.timestamp", {"default": 0}),
        ("spec.registryAccess", {"default": "Controller", "enum": ["Controller", "Job"]}),
        ("spec.history.successful", {"minimum": 1, "maximum": 100, "default": 3}),
        ("spec.history.failed", {"minimum": 0, "maximum": 100, "default": 1}),
        ("spec.history.images", {"default": "Keep", "enum": ["Keep", "Delete"]}),
        ("spec.rebuild.token", {"maxLength": 63}),
        ("spec.suspend", {"default": False}),
    ],
)
def test_limits_and_defaults(field: str, limits: Json) -> None:
    """Every row of the table."""
    found = at(field)
    assert {name: found.get(name) for name in limits} == limits


@pytest.mark.req("BD-010")
def test_every_field_is_described() -> None:
    """`kubectl explain` has a word about each."""
    assert [each for kind in ROOTS for each in undescribed(root(kind)["properties"]["spec"], f"{kind}.spec")] == []
    assert [each for kind in ROOTS for each in undescribed(root(kind)["properties"]["status"], f"{kind}.status")] == []


def undescribed(schema: Json, path: str) -> list[str]:
    inner = schema.get("items", schema)
    lacking = [] if schema.get("description") else [path]
    members = {} if path.endswith(".conditions") else inner.get("properties", {})
    return lacking + [found for name, each in members.items() for found in undescribed(each, f"{path}.{name}")]


@pytest.mark.req("BD-010")
def test_every_list_says_how_it_is_merged() -> None:
    """Server-side apply merges by key."""

    def lists(schema: Any) -> list[Json]:
        if not isinstance(schema, dict):
            return []
        here = [schema] if schema.get("type") == "array" else []
        return here + [found for each in schema.values() for found in lists(each)]

    found = [each for kind in ROOTS for each in lists(root(kind))]
    assert all(each["x-kubernetes-list-type"] in ("set", "map", "atomic") for each in found)
    assert len(found) > 20


@pytest.mark.req("BD-020")
def test_the_spec_of_a_run_never_changes() -> None:
    (rule,) = root("ImageBuildRun")["properties"]["spec"]["x-kubernetes-validations"]
    assert rule == {"rule": "self == oldSelf", "message": IMMUTABLE}


@pytest.mark.req("BD-022")
def test_phases_are_those_that_the_planner_knows() -> None:
    status = root("ImageBuildRun")["properties"]["status"]["properties"]
    assert status["phase"]["enum"] == list(get_args(formats.ExecutionPhase))
    architecture = status["architectures"]
    assert architecture["x-kubernetes-list-map-keys"] == ["architecture"]
    assert architecture["items"]["properties"]["phase"]["enum"] == list(get_args(formats.Phase))
    assert architecture["items"]["properties"]["message"]["maxLength"] == 1024


@pytest.mark.req("BD-012")
def test_every_rule_has_a_message_that_names_its_field() -> None:
    """The message names field and cure."""

    def rules(schema: Any) -> list[Json]:
        if isinstance(schema, list):
            return [found for each in schema for found in rules(each)]
        if not isinstance(schema, dict):
            return []
        here = schema.get("x-kubernetes-validations", [])
        return here + [found for name, each in schema.items() if name != "default" for found in rules(each)]

    messages = [each.get("message") or each["messageExpression"] for kind in ROOTS for each in rules(root(kind))]
    assert len(messages) > 50
    assert [each for each in messages if not re.search(r"spec(\.[a-zA-Z]+)*", each)] == []


class TestTimes:
    """Durations are Go-style texts."""

    @pytest.mark.req("BD-010")
    def test_the_durations_of_the_defaults(self) -> None:
        assert BuildTimes.of(ImageBuildSpec()) == BuildTimes(
            settle=30.0, interval=None, preflight=300.0, node_wait=900.0, build=3600.0, index=300.0
        )

    @pytest.mark.req("BD-010")
    def test_what_is_said_is_meant(self) -> None:
        """The time of one architecture wins over the common one."""
        given = {
            "baseImages": {"policy": "Interval", "interval": "24h"},
            "architectures": {"settle": "1m30s"},
            "timeouts": {"preflight": "10s", "nodeWait": "1h", "build": "90m", "index": "2m"},
            "scheduling": {"perArchitecture": [{"architecture": "s390x", "buildTimeout": "4h"}]},
        }
        read = msgspec.convert(given, ImageBuildSpec)
        assert BuildTimes.of(read) == BuildTimes(
            settle=90.0, interval=86400.0, preflight=10.0, node_wait=3600.0, build=5400.0, index=120.0
        )
        assert (build_seconds(read, "s390x"), build_seconds(read, "amd64")) == (14400.0, 5400.0)

    @pytest.mark.req("BD-010")
    def test_what_the_schema_would_refuse_is_the_default_or_the_bound(self) -> None:
        """A plan of an older object never fails for it."""
        given = {
            "baseImages": {"policy": "Interval", "interval": "1s"},
            "architectures": {"settle": "5h"},
            "timeouts": {"build": "soon", "index": "1s"},
        }
        times = BuildTimes.of(msgspec.convert(given, ImageBuildSpec))
        assert (times.interval, times.settle, times.build, times.index) == (300.0, 3600.0, 3600.0, 10.0)

    @pytest.mark.req("BD-157")
    @pytest.mark.parametrize("text", ["169h", "2000000h", "2562047h47m16s", "99999999h", "604801s"])
    def test_no_time_and_no_sum_of_times_is_longer_than_its_bound(self, text: str) -> None:
        """Kubernetes multiplies the seconds of a deadline by a thousand million: two of 2000000h were below zero."""
        given = {
            "baseImages": {"policy": "Interval", "interval": "99999h"},
            "timeouts": dict.fromkeys(("preflight", "nodeWait", "build", "index"), text),
            "scheduling": {"perArchitecture": [{"architecture": "s390x", "buildTimeout": text}]},
        }
        read = msgspec.convert(given, ImageBuildSpec)
        times = BuildTimes.of(read)
        longest = 168 * 3600.0
        every = (times.preflight, times.node_wait, times.build, times.index, build_seconds(read, "s390x"))
        assert all(each <= longest for each in every)
        assert times.node_wait + times.build + times.index < 2**63 / 10**9 / 1000
        assert times.interval == 8760 * 3600
