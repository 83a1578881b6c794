"""``--dump-config``: the merged settings as a file."""

from pathlib import Path

import pytest
import yaml

from polyarch.numa.exporter.configuration import ConfigurationDump, load_configuration


def dumped(tmp_path: Path, *words: str) -> ConfigurationDump:
    found = load_configuration([*words, "--dump-config=-"], {}, home=tmp_path, host_name=lambda: "host-1").dump
    assert found is not None
    return found


@pytest.mark.req("NE-133")
def test_keys_are_sorted_and_spelt_as_a_file_spells_them(tmp_path: Path) -> None:
    found = dumped(tmp_path, "--sleep-interval=90s", "--reference-container=a/b/c", "-v=0")
    loaded = yaml.safe_load(found.text)
    assert loaded["topologyExporter"]["sleepInterval"] == 90_000_000_000
    assert loaded["topologyExporter"]["referenceContainer"] == {
        "containerName": "c",
        "namespace": "a",
        "podName": "b",
    }
    assert loaded["nrtUpdater"]["patchMode"] is True
    assert loaded["nrtUpdater"]["hostname"] == "host-1"
    tops = [line for line in found.text.splitlines() if not line.startswith(" ")]
    assert tops == ["global:", "nrtUpdater:", "resourceMonitor:", "topologyExporter:"]
    for part in loaded.values():
        assert list(part) == sorted(part)


@pytest.mark.req("NE-133")
def test_zero_values_are_left_out_except_verbose(tmp_path: Path) -> None:
    loaded = yaml.safe_load(dumped(tmp_path, "--patch-mode=false", "--sleep-interval=0", "-v=0").text)
    assert loaded["global"]["verbose"] == 0
    assert "patchMode" not in loaded["nrtUpdater"]
    assert "oneShot" not in loaded["nrtUpdater"]
    assert "sleepInterval" not in loaded["topologyExporter"]


@pytest.mark.req("NE-133")
def test_flags_say_what_a_file_cannot(tmp_path: Path) -> None:
    found = dumped(tmp_path, "--patch-mode=false", "--sleep-interval=0", "--metrics-ip=")
    assert found.text.splitlines()[0] == (
        "# Zero values are left out here. These are flags: --patch-mode=false --sleep-interval=0s --metrics-ip="
    )


@pytest.mark.req("NE-133")
@pytest.mark.parametrize(("place", "ends"), [("-", False), (".andexit", True), (".log", False), ("/tmp/x", False)])
def test_one_place_ends_the_program(tmp_path: Path, place: str, ends: bool) -> None:
    found = load_configuration([f"--dump-config={place}"], {}, home=tmp_path, host_name=lambda: "host-1").dump
    assert found is not None
    assert (found.place, found.ends) == (place, ends)


@pytest.mark.req("NE-133")
def test_nothing_is_dumped_unless_it_is_asked_for(tmp_path: Path) -> None:
    assert load_configuration([], {}, home=tmp_path, host_name=lambda: "host-1").dump is None
