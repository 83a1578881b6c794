"""Names, options, ports and folders of sandboxes."""

import asyncio
import socket
from pathlib import Path

import msgspec
import pytest

from polyarch.sandbox import state
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.files import file_lock
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.state import Folder, Settings, State, Taint, choose_ports, parse_nodes, parse_taints
from polyarch.sandbox.versions import KUBERNETES, KUBERNETES_BY_MINOR


@pytest.mark.req("SB-003")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("amd64=3,arm64=2", {"amd64": 3, "arm64": 2}, id="counts"),
        pytest.param("amd64", {"amd64": 1}, id="a word is one node"),
        pytest.param(" amd64=1 , s390x=0", {"amd64": 1, "s390x": 0}, id="spaces and zero"),
        pytest.param("", {}, id="no nodes"),
    ],
)
def test_nodes_are_given_by_architecture(text: str, expected: dict[str, int]) -> None:
    assert parse_nodes(text) == expected


@pytest.mark.req("SB-003")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("amd64=x", "ARCHITECTURE=NUMBER"),
        ("amd64=", "ARCHITECTURE=NUMBER"),
        ("amd64=-1", "ARCHITECTURE=NUMBER"),
        ("amd64=1,amd64=2", "given twice"),
        ("amd46=1", "'amd46' is not a known architecture; expected one of 386, amd64"),
        ("x86_64=1", "'x86_64' is not a known architecture"),
    ],
)
def test_a_nodes_option_that_makes_no_sense_says_what_was_expected(text: str, message: str) -> None:
    with pytest.raises(SandboxError, match=message):
        parse_nodes(text)


@pytest.mark.req("SB-003")
@pytest.mark.parametrize("nodes", [{"Amd64!": 1}, {"amd64": 5001}, {"": 1}])
def test_impossible_fleets_are_refused(nodes: dict[str, int]) -> None:
    with pytest.raises(SandboxError, match="--nodes"):
        Settings(nodes=nodes)


@pytest.mark.req("SB-003")
@pytest.mark.parametrize("name", ["", "-a", "a-", "A", "a/b", "..", "a" * 41, "a b"])
def test_names_that_are_no_folder_or_label_are_refused(name: str) -> None:
    with pytest.raises(SandboxError, match="sandbox name"):
        Settings(name=name)


@pytest.mark.req("SB-003")
def test_numa_and_taints_are_read() -> None:
    assert NumaLayout.parse("2x8") == NumaLayout(2, 8)
    assert NumaLayout.parse(
        "2x8,policy=restricted,scope=pod,memory=32Gi,reserved=2,threads=2,pages=2Mi:512,pages=1Gi:1"
    ) == (NumaLayout(2, 8, "restricted", "pod", 32 << 30, 2, 2, ((2 << 20, 512), (1 << 30, 1))))
    assert NumaLayout.parse("2x8,devices=example.com/nic:2").devices == (("example.com/nic", 2),)
    assert NumaLayout.parse("4x4,sockets=2,cpuless=16Gi,cpuless=8Gi") == (
        NumaLayout(4, 4, sockets=2, cpuless=(16 << 30, 8 << 30))
    )
    assert Taint.parse("arm64:kubernetes.io/arch=arm64:NoSchedule") == Taint(
        "arm64", "kubernetes.io/arch", "arm64", "NoSchedule"
    )
    assert Taint.parse("*:new:NoExecute") == Taint("*", "new", "", "NoExecute")
    for text in ("8", "0x8", "2x", "2x8x1"):
        with pytest.raises(SandboxError, match="CELLSxCPUS"):
            NumaLayout.parse(text)
    for text, problem in (
        ("2x8,policy=strict", "policy=strict: expected one of none, best-effort, restricted, single-numa-node"),
        ("2x8,color=red", "'color=red' is not NAME=VALUE with a NAME of policy"),
        ("2x8,devices=nic:1", "devices=nic:1: expected DOMAIN/NAME:COUNT"),
        ("2x8,memory=16", "memory=16: expected an amount such as"),
        ("2x8,pages=3Mi:1", "pages=3Mi:1: expected SIZE:COUNT"),
        ("16x8", "at most 8 cells"),
        ("8x8,cpuless=1Gi", "at most 8 cells"),
        ("4x4,sockets=3", "4 cells cannot be shared evenly by 3 sockets"),
        ("2x4,sockets=4", "2 cells cannot be shared evenly by 4 sockets"),
        ("4x4,sockets=0", "sockets=0: expected 1 to 8 sockets"),
        ("4x4,cpuless=1", "cpuless=1: expected an amount such as"),
        ("2x7,threads=2", "7 CPUs of a cell are not whole cores of 2 threads"),
        ("1x2,reserved=2", "2 reserved CPUs leave none for pods"),
        ("1x2,memory=2Gi,pages=1Gi:1", "too little memory for its huge pages"),
        ("1x2,reserved=0,full-pcpus-only=true", "at least one reserved CPU"),
    ):
        with pytest.raises(SandboxError, match=problem):
            NumaLayout.parse(text)
    for text in ("arm64", "arm64:a=b", "arm64:a=b:Sometimes"):
        with pytest.raises(SandboxError, match="ARCHITECTURE:KEY"):
            Taint.parse(text)
    with pytest.raises(SandboxError, match="'amr64' is not a known architecture"):
        Taint.parse("amr64:new:NoExecute")


@pytest.mark.req("SB-003")
def test_an_empty_taint_option_removes_the_taints() -> None:
    assert parse_taints([""]) == ()
    assert parse_taints(["*:new:NoExecute", ""]) == (Taint("*", "new", "", "NoExecute"),)


@pytest.mark.req("SB-020")
def test_a_version_is_asked_for_by_its_minor_and_recorded_so_that_a_newer_patch_is_taken_later() -> None:
    assert Settings().kubernetes_version == Settings(kubernetes="1.36").kubernetes_version == KUBERNETES
    assert Settings(kubernetes="1.30").kubernetes_version == KUBERNETES_BY_MINOR["1.30"]
    assert msgspec.json.decode(b'{"nodes": {}}', type=Settings).kubernetes_version == KUBERNETES


@pytest.mark.req("SB-020")
@pytest.mark.parametrize("text", ["1.31", "1.30.14", "v1.33", "1", "1.29", "latest", " 1.30"])
def test_a_version_that_is_not_pinned_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(SandboxError, match=r"--kubernetes .*expected one of 1\.30, 1\.33, 1\.36"):
        _ = Settings(kubernetes=text).kubernetes_version


@pytest.mark.req("SB-020")
async def test_a_sandbox_of_a_version_that_is_no_longer_pinned_can_be_deleted(tmp_path: Path) -> None:
    folder = Folder.of("trial", tmp_path)
    folder.save(State(settings=Settings(name="trial", kubernetes="1.29"), ports=choose_ports()))
    with pytest.raises(SandboxError, match=r"--kubernetes '1\.29'"):
        await Sandbox.start(Settings(name="trial", kubernetes="1.29", polyarch=False), home=tmp_path)
    await Sandbox.attach("trial", home=tmp_path).delete()
    assert not folder.root.exists()


@pytest.mark.req("SB-020")
@pytest.mark.parametrize(("before", "after"), [("", "1.33"), ("1.36", "1.30"), ("1.33", "1.30")])
async def test_an_older_version_is_not_started_on_what_a_newer_one_stored(
    before: str, after: str, tmp_path: Path
) -> None:
    state = State(settings=Settings(name="trial", kubernetes=before), ports=choose_ports())
    Folder.of("trial", tmp_path).save(state)
    with pytest.raises(SandboxError, match=rf"--kubernetes {after}: sandbox trial holds what Kubernetes .* --fresh"):
        await Sandbox.start(Settings(name="trial", kubernetes=after, polyarch=False), home=tmp_path)


@pytest.mark.req("SB-003")
def test_ports_are_free_different_and_never_another_sandboxs() -> None:
    others = choose_ports()
    taken = set(msgspec.structs.astuple(others))
    low = min(taken)
    chosen = msgspec.structs.astuple(choose_ports([others], within=(low, low + 60)))
    assert len(set(chosen)) == len(chosen)
    assert not taken & set(chosen)


@pytest.mark.req("SB-003")
def test_a_port_that_somebody_listens_on_is_not_free() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert not state.is_free(listener.getsockname()[1])


@pytest.mark.req("SB-003")
def test_too_few_ports_are_an_error() -> None:
    with pytest.raises(SandboxError, match="no 7 free ports"):
        choose_ports(within=(20_000, 20_003))


@pytest.mark.req("SB-003")
def test_the_state_survives_and_is_for_its_owner_only(tmp_path: Path) -> None:
    folder = Folder.of("a", tmp_path)
    assert folder.load() is None
    written = State(settings=Settings(name="a", nodes={"s390x": 2}, numa=NumaLayout(2, 4)), ports=choose_ports())
    folder.save(written)
    assert folder.load() == written
    assert folder.state.stat().st_mode & 0o077 == 0
    assert [each.name for each in state.sandboxes(tmp_path)] == ["a"]
    folder.delete()
    assert state.sandboxes(tmp_path) == []


@pytest.mark.req("SB-003")
@pytest.mark.parametrize("content", [b"{", b'{"settings": {"name": "\xff"}}'], ids=["cut short", "not UTF-8"])
def test_a_damaged_state_says_how_to_go_on(content: bytes, tmp_path: Path) -> None:
    folder = Folder.of("a", tmp_path)
    folder.root.mkdir()
    folder.state.write_bytes(content)
    with pytest.raises(SandboxError, match="--fresh"):
        folder.load()


@pytest.mark.req("SB-002")
async def test_a_lock_is_held_by_one_and_told_about_once(tmp_path: Path) -> None:
    order: list[str] = []
    lock = tmp_path / "lock"

    async def second() -> None:
        async with file_lock(lock, waiting=lambda: order.append("waits")):
            order.append("second")

    async with file_lock(lock):
        task = asyncio.create_task(second())
        await asyncio.sleep(0.3)
        order.append("first")
    await task
    assert order == ["waits", "first", "second"]


@pytest.mark.req("SB-003")
async def test_a_lock_that_was_deleted_meanwhile_is_taken_anew(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    held: list[int] = []

    async def hold(number: int, *, remove: bool) -> None:
        async with file_lock(lock, remove=remove):
            held.append(number)
            assert len(held) == 1
            await asyncio.sleep(0.05)
            held.clear()

    await asyncio.gather(*(hold(number, remove=number % 2 == 0) for number in range(6)))
