"""Laws of the exporter's configuration: precedence, and that a dump says everything."""

import shlex
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from polyarch.numa.exporter.configuration import LoadedConfiguration, load_configuration
from polyarch.numa.exporter.flags import FLAG_OF, flag_text
from polyarch.numa.exporter.settings import (
    POD_EXCLUDE,
    POLICY,
    REFERENCE,
    SCOPE,
    SETTINGS,
    WATCHED_NAMESPACE,
    Boolean,
    Duration,
    Enumeration,
    Integer,
    InvalidExporterConfiguration,
    Names,
    Setting,
    Text,
)
from polyarch.numa.facts import PodPattern

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1, max_size=12)
NANOSECONDS = st.integers(0, 10**7).map(lambda milliseconds: milliseconds * 1_000_000)
PLACES = {
    "metricsAddress": st.sampled_from(["", "::1", "10.0.0.1"]),
    "podResourcesSocketPath": NAMES.map("unix:///{}".format),
    "nodeGroup": st.sampled_from(["", "workers", "a.b"]),
}


def values_of(setting: Setting) -> st.SearchStrategy[Any]:
    """What the setting takes."""
    match setting.type:
        case Boolean():
            return st.booleans()
        case Integer(least=least, most=most):
            return st.integers(least, min(most, 10**6))
        case Duration(least=least):
            return NANOSECONDS.map(lambda found: max(found, 1_000_000 if least else 0))
        case Enumeration(choices=choices):
            return st.sampled_from(choices)
        case Names(known=known):
            return st.lists(st.sampled_from(sorted(known)), max_size=3).map(tuple)
        case Text():
            return PLACES.get(setting.key.rpartition(".")[2], NAMES)
    if setting.key == POD_EXCLUDE:
        return st.lists(st.builds(PodPattern, NAMES, NAMES), max_size=2).map(tuple)
    return st.dictionaries(NAMES, st.lists(NAMES, max_size=2).map(tuple), max_size=2)


WHOLE = (*REFERENCE, POLICY, SCOPE)
"""Keys that mean something only together."""
SAID = st.fixed_dictionaries(
    {},
    optional={key: values_of(each) for key, each in SETTINGS.items() if key not in (*WHOLE, WATCHED_NAMESPACE)},
).flatmap(
    lambda some: st.sampled_from([{}, dict(zip(WHOLE, ("a", "b", "c", "restricted", "pod"), strict=True))]).map(
        lambda whole: {**some, **whole}
    )
)
AS_FLAGS = {key: value for key, value in SETTINGS.items() if key in FLAG_OF}


def file_of(values: dict[str, Any]) -> str:
    document: dict[str, Any] = {}
    for key, value in values.items():
        *sections, name = key.split(".")
        part = document
        for section in sections:
            part = part.setdefault(section, {})
        part[name] = SETTINGS[key].file_content(value)
    return yaml.safe_dump(document)


def flags_of(values: dict[str, Any]) -> list[str]:
    return [f"{FLAG_OF[key].name}={flag_text(SETTINGS[key], value)}" for key, value in values.items() if key in FLAG_OF]


def read_with(text: str, *words: str) -> LoadedConfiguration:
    with TemporaryDirectory() as home:
        root = Path(home, ".rte", "daemon")
        root.mkdir(parents=True)
        root.joinpath("config.yaml").write_text(text)
        return load_configuration([*words, str(root.parent)], {}, home=Path(home), host_name=lambda: "host-1")


@pytest.mark.req("NE-133")
@given(SAID)
def test_a_dump_and_the_flags_it_names_say_everything(values: dict[str, Any]) -> None:
    first = read_with(file_of(values), "--dump-config=-")
    assert first.dump is not None
    comment, *_ = first.dump.text.splitlines()
    flags = shlex.split(comment.partition("flags:")[2]) if comment.startswith("#") else []
    again = read_with(first.dump.text, "--strict-config", "--dump-config=-", *flags)
    assert again.settings == first.settings
    assert again.dump == first.dump
    assert again.warnings == ()


@pytest.mark.req("NE-132")
@given(SAID)
def test_a_flag_means_what_its_key_means(values: dict[str, Any]) -> None:
    typed = {key: value for key, value in values.items() if key in FLAG_OF}
    assert read_with("", *flags_of(typed)).settings == read_with(file_of(typed)).settings


@pytest.mark.req("NE-130")
@given(SAID, SAID)
def test_what_is_said_later_wins(in_file: dict[str, Any], typed: dict[str, Any]) -> None:
    """Flags over files over defaults, key by key."""
    typed = {key: value for key, value in typed.items() if key in FLAG_OF}
    both = read_with(file_of(in_file), *flags_of(typed))
    assert both.settings == read_with(file_of({**in_file, **typed})).settings


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8) | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
    max_leaves=8,
)
PARTS = st.sampled_from(sorted({part for key in SETTINGS for part in key.split(".")}))
DOCUMENTS = st.dictionaries(PARTS, st.dictionaries(PARTS, JSON, max_size=3) | JSON, max_size=4)


@pytest.mark.req("NE-135")
@given(DOCUMENTS)
def test_whatever_a_file_says_is_settings_or_one_line(document: dict[str, Any]) -> None:
    problem = ""
    try:
        found = read_with(yaml.safe_dump(document))
    except InvalidExporterConfiguration as error:
        problem = str(error)
    if problem:
        assert "\n" not in problem
    else:
        assert msgspec.json.decode(msgspec.json.encode(found.settings), type=type(found.settings)) == found.settings


@pytest.mark.req("NE-135")
@given(
    st.lists(st.text(max_size=12) | st.sampled_from([f"--{name}" for name in ("oneshot=", "config", "v", "hostname=")]))
)
def test_whatever_is_typed_is_settings_or_an_error_with_a_reason(words: list[str]) -> None:
    with suppress(InvalidExporterConfiguration), TemporaryDirectory() as home:
        load_configuration(words, {}, home=Path(home), host_name=lambda: "host-1")
