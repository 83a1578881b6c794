"""``polyarch numa top`` as a user runs it, on files."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from numa_files import listed, machine, pod, topology, zone

NODES = listed(
    topology("a", zone(0, cpu="2", memory="12Gi"), zone(1, **{"example.com/gpu": "1"})),
    topology("b", zone(0, cpu="8"), policy="none"),
)
GOLDEN = """\
NODE       CELL   CPU:CAPACITY   CPU:ALLOCATABLE   CPU:AVAILABLE   CPU:RESERVED   CPU:LARGEST   MEMORY:CAPACITY   \
MEMORY:ALLOCATABLE   MEMORY:AVAILABLE   MEMORY:RESERVED   MEMORY:LARGEST   POLICY             SCOPE       AGE   MARKS
a          0      8              8                 2               0              2             32Gi              \
32Gi                 12Gi               0                 12Gi             single-numa-node   container   -     -
a          1      8              8                 8               0              8             32Gi              \
32Gi                 32Gi               0                 32Gi             single-numa-node   container   -     -
b          0      8              8                 8               0              8             32Gi              \
32Gi                 32Gi               0                 32Gi             none               container   -     -
total(2)   3      24             24                18              0              8             96Gi              \
96Gi                 76Gi               0                 32Gi             -                  -           -     -
"""


@pytest.mark.req("NS-160")
def test_a_pipe_gets_a_line_per_cell_and_the_totals(numa) -> None:
    ran = numa("top", "--nrt", "nodes.json", files={"nodes.json": NODES})
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == GOLDEN


@pytest.mark.req("NS-160")
def test_nodes_resources_and_order(numa) -> None:
    def first(*words: str) -> list[list[str]]:
        ran = numa("top", "--nrt", "nodes.json", *words, files={"nodes.json": NODES})
        assert ran.code == 0
        return [line.split()[:3] for line in ran.out.splitlines()[1:-1]]

    assert first("b") == [["b", "0", "8"]]
    assert [line[0] for line in first("--sort", "used")] == ["a", "a", "b"]
    assert [line[0] for line in first("--sort", "free")] == ["a", "a", "b"]
    assert [line[2] for line in first("--resource", "example.com/gpu")] == ["-", "2", "-"]


@pytest.mark.req("NS-160")
def test_most_used_and_most_free_come_first(numa) -> None:
    nodes = listed(topology("a", zone(0, cpu="8")), topology("b", zone(0, cpu="1")), topology("c", zone(0, cpu="4")))

    def order(sort: str) -> list[str]:
        ran = numa("top", "--nrt", "nodes.json", "--sort", sort, files={"nodes.json": nodes})
        return [line.split()[0] for line in ran.out.splitlines()[1:-1]]

    assert order("used") == ["b", "c", "a"]
    assert order("free") == ["a", "c", "b"]
    assert order("name") == ["a", "b", "c"]


@pytest.mark.req("NS-160")
def test_reservations_are_those_of_pods_that_the_object_does_not_show(numa) -> None:
    """Not admitted by its kubelet yet, so that no exporter can have seen it."""
    files = {"nodes.json": NODES, "others.json": listed(machine("a"), pod("web", node="a", cpu="2"))}
    ran = numa("top", "a", "--nrt", "nodes.json", "--nodes", "others.json", "-o", "json", files=files)
    (node,) = ran.document["nodes"]
    cpu = [cell["resources"]["cpu"] for cell in node["cells"]]
    assert [each["reserved"] for each in cpu] == ["2", "0"]
    assert [each["largest"] for each in cpu] == ["0", "8"]
    assert ran.document["schemaVersion"] == "polyarch.dev/numa-top.v1"
    assert ran.document["source"] == "files"


@pytest.mark.req("NS-160")
def test_the_largest_pod_is_no_larger_than_the_sums_of_the_node_leave(numa) -> None:
    burstable = pod("shared", node="b", cpu="12")
    burstable["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "12"}}
    files = {"nodes.json": NODES, "others.json": listed(machine("b"), burstable)}
    ran = numa("top", "b", "--nrt", "nodes.json", "--nodes", "others.json", "-o", "json", files=files)
    cpu = ran.document["nodes"][0]["cells"][0]["resources"]["cpu"]
    assert (cpu["available"], cpu["largest"]) == ("8", "4")


@pytest.mark.req("NS-160")
@pytest.mark.parametrize("asked", ["10e399", "10e9998", "9" * 70])
def test_a_pod_that_asks_for_more_than_there_is_anywhere_is_a_line_like_any_other(numa, asked) -> None:
    """Any user may create it, and the API server takes it: ``top`` of the whole cluster does not end there."""
    files = {"nodes.json": NODES, "others.json": listed(machine("a"), pod("web", node="a", cpu=asked))}
    ran = numa("top", "a", "--nrt", "nodes.json", "--nodes", "others.json", files=files)
    assert (ran.code, ran.err) == (0, "")
    assert [line.split()[4] for line in ran.out.splitlines()[1:3]] == ["2", "8"]


@pytest.mark.req("NS-160")
def test_an_amount_that_no_machine_has_does_not_make_its_column_wide(numa) -> None:
    """As another producer may publish it, of a device that it takes for one without end."""
    nodes = listed(topology("a", zone(0, cpu="10e399", memory="10e399")))
    ran = numa("top", "--nrt", "nodes.json", files={"nodes.json": nodes})
    assert max(map(len, ran.out.splitlines())) <= max(map(len, GOLDEN.splitlines()))
    assert ran.out.splitlines()[1].split()[4] == "9.2P"


@pytest.mark.req("NS-160")
def test_whole_cores_only(numa) -> None:
    attributes = {"cpu-manager-options": "full-pcpus-only=true", "threads-per-core": "2"}
    files = {"nodes.json": topology("a", zone(0, cpu="7"), **attributes)}
    ran = numa("top", "--nrt", "nodes.json", "-o", "json", files=files)
    assert ran.document["nodes"][0]["cells"][0]["resources"]["cpu"]["largest"] == "6"


@pytest.mark.req("NS-160")
def test_marks(numa) -> None:
    scanned = {"annotations": {"numa.polyarch.dev/last-scan": "2026-01-01T10:00:00Z"}}
    old, new = topology("old", zone(0)), topology("new", zone(0))
    odd = topology("odd", zone(0), nodeTopologyPodsFingerprint="pfp0v0011234567812345678")
    old["metadata"] |= scanned
    new["metadata"] |= {"annotations": {"numa.polyarch.dev/last-scan": "2026-01-01T12:00:00Z"}}
    others = listed(machine("bare"), machine("new", cordoned=True), pod("web", node="odd", cpu="1"))
    files = {"nodes.json": listed(old, new, odd), "others.json": others}
    ran = numa("top", "--nrt", "nodes.json", "--nodes", "others.json", "-o", "json", files=files)
    assert {each["node"]: each["marks"] for each in ran.document["nodes"]} == {
        "bare": ["no-nrt"],
        "new": ["cordoned"],
        "odd": ["unexplained"],
        "old": ["stale"],
    }
    assert {each["node"]: each["ageSeconds"] for each in ran.document["nodes"]}["old"] == 7200


@pytest.mark.req("NS-160")
def test_what_no_exporter_wrote_and_cpus_that_nobody_hands_out_are_marked(numa) -> None:
    """Zones of a balloon policy; a kubelet whose CPU manager is off, and whose zones list no memory."""
    balloons = topology("balloons", {**zone(0), "name": "default[0]", "type": "balloon"})
    off = topology("off", zone(0), **{"cpu-manager-policy": "none", "memory-manager-policy": "None"})
    off["zones"][0]["resources"] = [{"name": "cpu", "capacity": "8", "allocatable": "0", "available": "0"}]
    files = {"nodes.json": listed(balloons, off, topology("usual", zone(0)))}
    ran = numa("top", "--nrt", "nodes.json", "--check", files=files)
    marks = {line.split()[0]: line.split()[-1] for line in ran.out.splitlines()[1:4]}
    assert marks == {"balloons": "other-zones", "off": "no-own-cpus", "usual": "-"}
    assert "balloons: 1 of its zones are no NUMA nodes" in ran.out
    assert "off: nothing of memory" not in ran.out


@pytest.mark.req("NS-160")
def test_check_says_what_keeps_pods_from_being_aligned_and_exits_with_1(numa) -> None:
    reserved = zone(0)
    for each in reserved["resources"]:
        each["capacity"] = "64Gi" if each["name"] == "memory" else "10"
    fine = topology("fine", reserved, **{"cpu-manager-policy": "static", "memory-manager-policy": "Static"})
    poor = topology("poor", zone(0), policy="none", **{"cpu-manager-policy": "none", "memory-manager-policy": "None"})
    files = {"nodes.json": listed(fine, poor), "others.json": listed(machine("bare"))}
    ran = numa("top", "--check", "--nrt", "nodes.json", "--nodes", "others.json", files=files)
    assert ran.code == 1
    told = [line for line in ran.out.splitlines() if ": " in line]
    assert [line.split(":")[0] for line in told] == ["bare", *["poor"] * 5]
    assert all(word in "\n".join(told) for word in ("CPU manager", "memory manager", "reserved", "policy is none"))
    assert numa("top", "fine", "--check", "--nrt", "nodes.json").code == 0


@pytest.fixture
def on_terminal(numa, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What somebody sees who looks at a terminal of 100 columns."""

    def run(*words: str, files: Any) -> str:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        ran = numa(*words, files=files)
        assert (ran.code, ran.err) == (0, "")
        return str(ran.out)

    return run


@pytest.mark.req("NS-160")
def test_a_terminal_shows_bars_that_read_without_colour(on_terminal) -> None:
    files = {"nodes.json": NODES, "others.json": listed(machine("a"), pod("web", node="a", cpu="2"))}
    shown = on_terminal("top", "a", "--nrt", "nodes.json", "--nodes", "others.json", files=files)
    assert shown == (
        "NODE  CELL  CPU              MEMORY                 LARGEST POD          POLICY                      AGE"
        "  MARKS\n"
        "a     0     ██████▒▒ 0 of 8  █████··· 11Gi of 32Gi  0 cpu + 11Gi memory  single-numa-node/container\n"
        "      1     ········ 8 of 8  ········ 32Gi of 32Gi  8 cpu + 32Gi memory\n"
        "\n"
        "1 node, 2 cells\n"
        "  cpu: 8 of 16 free (2 are reserved), at most 8 on one cell\n"
        "  memory: 43Gi of 64Gi free (1Gi are reserved), at most 32Gi on one cell\n"
        "\n"
        "█ used  ▒ reserved  · free\n"
    )


@pytest.mark.req("NS-160")
def test_many_cells_are_a_heat_map(on_terminal) -> None:
    nodes = [topology(f"n{each:03}", *(zone(cell, cpu=str(cell)) for cell in range(8))) for each in range(20)]
    lines = on_terminal("top", "--nrt", "nodes.json", files={"nodes.json": listed(*nodes)}).splitlines()
    assert len(lines) == 1 + 20 + 1 + 3 + 2
    assert lines[1].split()[:3] == ["n000", "██▇▆▅▄▃▂", "28"]


@pytest.mark.req("NS-160")
def test_a_cluster_is_watched_and_files_are_not(numa) -> None:
    ran = numa("top", "--watch", "--nrt", "nodes.json", files={"nodes.json": NODES})
    assert ran.code == 2
    assert "--watch" in ran.err


@pytest.mark.req("NS-160")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("c",), "there is no node 'c'; there are a, b"),
        (("--resource", "example.com/nic"), "no cell lists it; they list cpu, example.com/gpu, memory"),
        (("--nodes", "nodes.json", "--kubeconfig", "k"), "--nrt reads files"),
    ],
)
def test_what_cannot_be_shown_is_told(numa, words: Any, said: str) -> None:
    ran = numa("top", "--nrt", "nodes.json", *words, files={"nodes.json": NODES})
    assert ran.code == 2
    assert said in " ".join(ran.err.split())


@pytest.mark.req("NS-160")
def test_yaml_and_json_say_the_same(numa) -> None:
    import yaml

    as_json = numa("top", "--nrt", "nodes.json", "-o", "json", files={"nodes.json": NODES})
    as_yaml = numa("top", "--nrt", "nodes.json", "-o", "yaml")
    assert yaml.safe_load(as_yaml.out) == json.loads(as_json.out)
