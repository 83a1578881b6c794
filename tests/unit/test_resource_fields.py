"""No field of a custom resource is accepted and dropped: its type has it, and something reads it.

The fields come from the definitions, each with a value that is not its default, so that a new one is checked, too.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from polyarch.builds.api.resources import ImageBuild, ImageBuildRun
from polyarch.kube.declared_settings import Setting
from polyarch.numa.api.resources import NUMAResourcesOperator, NUMAResourcesScheduler
from polyarch.placement.api import ClusterPodPlacementConfig, PlacementPolicy, PodPlacementConfig
from polyarch.placement.settings import POLICY_SETTINGS
from polyarch.selectors import Selector
from polyarch.taints.api import ArchitectureTaints
from polyarch.taints.settings import TAINT_SETTINGS

Json = dict[str, Any]
ROOT = Path(__file__).parents[2]
CRDS = ROOT / "deploy" / "crds"
TYPES = {
    each.__name__: each
    for each in (
        ArchitectureTaints,
        ClusterPodPlacementConfig,
        ImageBuild,
        ImageBuildRun,
        NUMAResourcesOperator,
        NUMAResourcesScheduler,
        PlacementPolicy,
        PodPlacementConfig,
    )
}


def schemas() -> Iterator[tuple[str, Json]]:
    for path in CRDS.glob("*.yaml"):
        spec = yaml.safe_load(path.read_text())["spec"]
        stored = next(each for each in spec["versions"] if each["storage"])
        yield spec["names"]["kind"], stored["schema"]["openAPIV3Schema"]["properties"].get("spec", {})


SPECS = {kind: schema for kind, schema in schemas() if kind in TYPES}


def filled(schema: Json) -> Any:
    """A value with every field, none of them with its default."""
    if schema.get("x-kubernetes-int-or-string"):
        return "7"
    match schema.get("type"):
        case "object" if "properties" in schema:
            return {name: filled(each) for name, each in schema["properties"].items()}
        case "object":
            return {"some": filled(schema.get("additionalProperties") or {})}
        case "array":
            return [filled(schema["items"])]
        case "boolean":
            return not schema.get("default", False)
        case "integer" | "number":
            return schema.get("maximum", schema.get("minimum", 0) + 7)
        case _:
            return next((each for each in schema.get("enum", ()) if each != schema.get("default")), "7s")


def fields(value: Any, at: str = "") -> Iterator[str]:
    """The places of all leaves."""
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from fields(each, f"{at}.{name}")
    elif isinstance(value, list | tuple) and value:
        for each in value:
            yield from fields(each, f"{at}[]")
    else:
        yield at


def test_every_definition_with_a_spec_is_here() -> None:
    assert {kind for kind, schema in schemas() if schema.get("properties")} == TYPES.keys()


@pytest.mark.parametrize("kind", SPECS)
def test_every_field_of_a_spec_is_in_its_type(kind: str) -> None:
    given = filled(SPECS[kind])
    read = msgspec.to_builtins(msgspec.convert({"metadata": {"name": "x"}, "spec": given}, TYPES[kind]))["spec"]
    assert sorted({*fields(given)} - {*fields(read)}) == []


def types(of: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """This one and those of its fields, at any depth."""
    yield of
    for each in msgspec.inspect.type_info(of).fields:  # type: ignore[attr-defined]
        for inner in (each.type, *getattr(each.type, "types", ()), getattr(each.type, "item_type", None)):
            if isinstance(inner, msgspec.inspect.StructType):
                yield from types(inner.cls)
            elif isinstance(item := getattr(inner, "item_type", None), msgspec.inspect.StructType):
                yield from types(item.cls)


def read_in_the_source() -> set[str]:
    """The names of all attributes that are read; a declaration is no read."""
    paths = (ROOT / "src").glob("polyarch/**/*.py")
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text())))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}


def test_every_field_of_a_spec_is_read_by_something() -> None:
    read = read_in_the_source()
    kinds = set(TYPES.values()) - {PlacementPolicy, ArchitectureTaints}  # these stay JSON: the next test is theirs
    specs = {each for kind in kinds for each in types(kind.__annotations__["spec"])}
    unread = {f"{each.__name__}.{name}" for each in specs for name in each.__struct_fields__ if name not in read}
    assert unread == set()


@pytest.mark.parametrize("settings", [POLICY_SETTINGS, TAINT_SETTINGS], ids=["policy", "taints"])
def test_every_declared_setting_is_read_by_something(settings: tuple[Setting, ...]) -> None:
    read = read_in_the_source()
    assert {setting.name for setting in settings if setting.name not in read} == set()


def test_every_field_of_taints_is_a_setting() -> None:
    declared = {"." + setting.field.path for setting in TAINT_SETTINGS if setting.type is not Selector}
    selecting = tuple("." + setting.field.path for setting in TAINT_SETTINGS if setting.type is Selector)
    own = {each.removesuffix("[]") for each in fields(filled(SPECS["ArchitectureTaints"]))}
    own = {each for each in own if not each.startswith((*selecting, ".compatibility"))}
    assert own == declared


def test_every_field_of_a_policy_is_a_setting() -> None:
    entry = SPECS["PlacementPolicy"]["properties"]["overrides"]["items"]["properties"]
    declared = {"." + setting.field.path for setting in POLICY_SETTINGS}
    overriding = {"." + setting.field.path for setting in POLICY_SETTINGS if setting.field.override}
    own = {each.removesuffix("[]") for each in fields(filled(SPECS["PlacementPolicy"]))}
    assert {each for each in own if not each.startswith(".overrides")} == declared
    selection = {"name", "namespaceSelector"}
    entry = {name: schema for name, schema in entry.items() if name not in selection}
    assert {each.removesuffix("[]") for each in fields(filled({"type": "object", "properties": entry}))} == overriding
