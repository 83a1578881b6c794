"""Settings that are declared once: schema, what a value of another form is told, and what is read of an object."""

from typing import Annotated, Any, Literal

import msgspec
import pytest

from polyarch.kube.declared_settings import (
    SettingField,
    declared_settings,
    read_settings,
    schema_members,
    without_defaults,
)
from polyarch.kube.schema import departures, mistyped, obj
from polyarch.selectors import NOTHING, Requirement, Selector


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of every type."""

    system: Annotated[Literal["off", "auto"], SettingField("system", "Enum.")] = "auto"
    window: Annotated[float, SettingField("wait.window", "Duration.", bounds=(5.0, 60.0))] = 30.0
    count: Annotated[int | None, SettingField("wait.count", "Count.", bounds=(1, 9))] = None
    enabled: Annotated[bool, SettingField("wait.enabled", "Bool.")] = True
    kinds: Annotated[tuple[Literal["Job", "Pod"], ...], SettingField("kinds", "Set.")] = ("Job",)
    places: Annotated[frozenset[str], SettingField("places", "Names.", bounds=(1, 2), names=("a", "b"))] = frozenset()
    excluded: Annotated[tuple[str, ...], SettingField("excluded", "Namespaces.", excluding="system: off")] = ()
    selector: Annotated[Selector | None, SettingField("selector", "Selector.")] = None
    key: Annotated[str, SettingField("key", "Key.", derived=True)] = "usual"
    undeclared: str = ""


SETTINGS = declared_settings(Example)
SPEC = obj(schema_members(SETTINGS, "spec", {"wait": "Waiting."}))


def read(spec: dict[str, Any]) -> tuple[Example, list[str]]:
    found, problems = read_settings(SETTINGS, spec)
    return Example(**found), [str(problem) for problem in problems]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"system": False}, "spec.system: must be a text, not false; write one in quotes, of off, auto"),
    ({"system": 1}, "spec.system: must be a text, not 1; write one of off, auto"),
    ({"wait": {"window": 30}}, "spec.wait.window: must be a text, not 30; write a duration such as 30s, 5m or 1h30m"),
    (
        {"wait": {"count": "5"}},
        "spec.wait.count: must be a whole number, not '5'; write one from 1 to 9 without quotes",
    ),
    ({"wait": {"count": True}}, "spec.wait.count: must be a whole number, not true; write one from 1 to 9"),
    ({"wait": {"enabled": "no"}}, "spec.wait.enabled: must be true or false, not 'no'; write one of them without"),
    ({"wait": 30}, "spec.wait: must be an object, not 30; write members below it, of window, count, enabled"),
    ({"kinds": "Job"}, "spec.kinds: must be a list, not 'Job'; write a list such as [Job]"),
    ({"kinds": ["Pod", 7]}, "spec.kinds[1]: must be a text, not 7; write one of Job, Pod"),
    ({"excluded": {"a": 1}}, "spec.excluded: must be a list, not {'a': 1}; write a list"),
    ({"selector": ["a"]}, "spec.selector: must be an object, not ['a']; write members below it, of matchExpressions"),
    ({"key": 5}, "spec.key: must be a text, not 5; write it in quotes"),
]


@pytest.mark.parametrize(("spec", "said"), WRONG)
def test_a_value_of_another_type_is_told_what_to_write_by_every_reader(spec: dict[str, Any], said: str) -> None:
    (by_type,) = map(str, mistyped(SPEC, spec, "spec"))
    (by_schema,) = map(str, departures(SPEC, spec, "spec"))
    _, (stored,) = read(spec)
    assert by_type == by_schema
    assert by_type.startswith(said)
    assert stored.startswith(said)


@pytest.mark.parametrize(
    ("spec", "name", "value", "said"),
    [
        ({"wait": {"window": "soon"}}, "window", 30.0, "'soon' is not a duration; write a duration such as 30s"),
        ({"wait": {"window": "2m"}}, "window", 30.0, "must be a duration from 5s to 1m, not 2m; it counts as absent"),
        ({"wait": {"count": 10}}, "count", None, "is 10; between 1 and 9 is possible; it counts as absent"),
        ({"kinds": ["Pod", "CronJob"]}, "kinds", ("Pod",), "'CronJob' is not one of Job, Pod; it is left out"),
        ({"kinds": ["CronJob"]}, "kinds", ("Job",), "it counts as absent"),
        ({"excluded": ["*", "kube-*"]}, "excluded", ("kube-*",), "use system: off for that; it is left out"),
        ({"selector": {"matchLabels": {"a b": "c"}}}, "selector", NOTHING, "it selects nothing"),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}, "selector", NOTHING, "selects nothing"),
        ({"key": "a b"}, "key", "usual", "spec.key: is not the key of a taint"),
        ({"places": []}, "places", frozenset(), "spec.places: needs at least 1 entries"),
    ],
)
def test_a_value_that_the_schema_refuses_counts_as_absent_and_is_named(
    spec: dict[str, Any], name: str, value: Any, said: str
) -> None:
    found, (problem,) = read(spec)
    assert getattr(found, name) == value
    assert said in problem


def test_values_are_read_by_the_type_of_their_setting() -> None:
    spec = {
        "wait": {"window": "10s", "count": 2, "enabled": None},
        "kinds": ["Pod", "Job"],
        "places": ["b"],
        "selector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": None}]},
        "key": "example.com/cpu",
    }
    selector = Selector((Requirement("a", "Exists"),))
    wanted = Example(
        window=10.0, count=2, kinds=("Job", "Pod"), places=frozenset("b"), selector=selector, key="example.com/cpu"
    )
    assert read(spec) == (wanted, [])


def test_what_equals_the_defaults_is_left_out() -> None:
    spec = {"system": "auto", "wait": {"window": "30s", "enabled": True}, "kinds": ["Pod"], "key": "usual"}
    assert without_defaults(SETTINGS, spec) == {"kinds": ["Pod"], "key": "usual"}
