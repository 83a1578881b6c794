"""``fake:///dir``, and which URLs there are at all."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from podresources_server import Counted

from polyarch.numa.exporter.scan import open_podresources
from polyarch.numa.facts import Allocatable, Container, Devices, ListedPod, MemoryBlock
from polyarch.numa.host.podresources import PodResources, PodResourcesError

PROTO_NAMES = {
    "pod_resources": [
        {
            "name": "web",
            "namespace": "shop",
            "containers": [
                {
                    "name": "main",
                    "cpu_ids": [2, "3"],
                    "memory": [{"memory_type": "memory", "size": "18446744073709551615", "topology": {"nodes": [{}]}}],
                    "devices": [
                        {
                            "resource_name": "example.com/nic",
                            "device_ids": ["eth0"],
                            "topology": {"nodes": [{"ID": -1}, {"ID": "2"}]},
                        }
                    ],
                    "dynamic_resources": [{"claim_name": "gpu"}],
                }
            ],
        }
    ]
}
WORDS = ("pod_resources", "name", "namespace", "containers", "cpu_ids", "memory", "memory_type", "size", "topology")
LOWER_CAMEL = json.loads(
    json.dumps(PROTO_NAMES)
    .replace("pod_resources", "podResources")
    .replace("cpu_ids", "cpuIds")
    .replace("memory_type", "memoryType")
    .replace("resource_name", "resourceName")
    .replace("device_ids", "deviceIds")
    .replace("dynamic_resources", "dynamicResources")
    .replace("claim_name", "claimName")
)
FACTS = ListedPod(
    "shop",
    "web",
    (
        Container(
            name="main",
            cpus=(2, 3),
            memory=(MemoryBlock("memory", 2**64 - 1, (0,)),),
            devices=(Devices("example.com/nic", ("eth0",), (-1, 2)),),
        ),
    ),
)


def saved(folder: Path, counted: Counted | None = None, **answers: Any) -> PodResources:
    for name, answer in answers.items():
        (folder / f"{name}.json").write_text(answer if isinstance(answer, str) else json.dumps(answer))
    return open_podresources(f"fake://{folder}", metrics=counted)


@pytest.mark.req("NE-051")
@pytest.mark.parametrize("answer", [PROTO_NAMES, LOWER_CAMEL], ids=["proto", "lowerCamel"])
async def test_answers_are_read_with_either_spelling(tmp_path: Path, answer: Any) -> None:
    """Files of answers stand in for a kubelet."""
    assert await saved(tmp_path, list=answer).list() == [FACTS]


@pytest.mark.req("NE-051")
async def test_allocatable_has_a_file_of_its_own(tmp_path: Path) -> None:
    client = saved(tmp_path, get_allocatable_resources={"cpu_ids": [0, 1], "memory": [], "devices": None})
    await client.until_ready()
    assert await client.allocatable() == Allocatable(cpus=(0, 1))
    await client.close()


@pytest.mark.req("NE-051")
async def test_get_is_get_json_or_out_of_the_list(tmp_path: Path) -> None:
    client = saved(tmp_path, list=PROTO_NAMES)
    assert await client.get("shop", "web") == FACTS
    saved(tmp_path, get={"pod_resources": {"name": "db", "namespace": "shop"}})
    assert await client.get("shop", "db") == ListedPod("shop", "db")
    with pytest.raises(PodResourcesError, match="has no pod shop/web"):
        await client.get("shop", "web")


@pytest.mark.req("NE-051")
async def test_a_file_that_changed_is_read_again(tmp_path: Path) -> None:
    client = saved(tmp_path, list={})
    assert await client.list() == []
    saved(tmp_path, list=PROTO_NAMES)
    assert await client.list() == [FACTS]


@pytest.mark.req("NE-051")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "list.json"),
        ("[]", "list.json"),
        ('{"pod_resources": [{"name": 5}]}', "list.json"),
        ('{"pod_resources": [{"containers": [{"cpu_ids": ["two"]}]}]}', "list.json"),
        ('{"pod_resources": ' + "[" * 5000, "list.json"),
        ("\udcff".encode("utf-8", "surrogateescape").decode("latin-1"), "list.json"),
    ],
    ids=["empty", "list", "type", "number", "deep", "latin"],
)
async def test_bad_json_is_a_failed_call_that_names_the_file(tmp_path: Path, text: str, words: str) -> None:
    counted = Counted()
    with pytest.raises(PodResourcesError, match=words):
        await saved(tmp_path, counted, list=text).list()
    assert counted.failed == ["list"]


@pytest.mark.req("NE-051")
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*WORDS, "nodes", "ID"]), inner, max_size=3)
        ),
        max_leaves=12,
    )
)
async def test_any_json_is_an_answer_or_a_failed_call(tmp_path_factory: pytest.TempPathFactory, answer: Any) -> None:
    folder = tmp_path_factory.mktemp("any")
    with contextlib.suppress(PodResourcesError):
        await saved(folder, list=json.dumps({"pod_resources": answer})).list()
    with contextlib.suppress(PodResourcesError):
        await saved(folder, list=json.dumps(answer)).list()


@pytest.mark.req("NE-051")
async def test_bytes_that_are_no_text_are_a_failed_call(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_bytes(b'{"pod_resources": [{"name": "\xff"}]}')
    with pytest.raises(PodResourcesError, match=r"list\.json"):
        await saved(tmp_path).list()


@pytest.mark.req("NE-051")
async def test_a_missing_file_is_a_failed_call_that_names_the_file(tmp_path: Path) -> None:
    counted = Counted()
    client = saved(tmp_path / "nowhere", counted)
    with pytest.raises(PodResourcesError, match=r"nowhere/get_allocatable_resources.json: No such file"):
        await client.allocatable()
    assert counted.failed == ["get_allocatable_resources"]


@pytest.mark.req("NE-050")
async def test_the_limit_holds_for_files_too(tmp_path: Path) -> None:
    with pytest.raises(PodResourcesError, match=r"list\.json: more than 16 MiB"):
        await saved(tmp_path, list=" " * (16 * 1024 * 1024 + 1)).list()


@pytest.mark.req("NE-057")
async def test_unknown_fields_are_ignored_and_pods_without_names_counted(tmp_path: Path) -> None:
    counted = Counted()
    answer = {"pod_resources": [*PROTO_NAMES["pod_resources"], {"namespace": "shop", "future": {}}], "more": 1}
    assert await saved(tmp_path, counted, list=answer).list() == [FACTS]
    assert counted.unnamed == 1


@pytest.mark.req("NE-050")
@pytest.mark.parametrize(
    "url", ["", "kubelet.sock", "/kubelet.sock", "unix://kubelet.sock", "tcp://127.0.0.1:1", "fake://"]
)
def test_another_url_is_refused_with_those_there_are(url: str) -> None:
    with pytest.raises(ValueError, match=r"write unix:///path/of/kubelet.sock or fake:///directory"):
        open_podresources(url)


def run(program: str, **environment: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.req("NE-154")
def test_saved_answers_need_no_grpc(tmp_path: Path) -> None:
    """A command that only reads files starts without an HTTP/2 stack."""
    saved(tmp_path, list=PROTO_NAMES)
    assert (
        run(
            "import asyncio, sys\n"
            "from polyarch.numa.exporter.scan import open_podresources\n"
            f"pods = asyncio.run(open_podresources('fake://{tmp_path}').list())\n"
            "print(len(pods), sorted({'grpclib', 'h2', 'aiohttp', 'prometheus_client'} & sys.modules.keys()))"
        )
        == "1 []\n"
    )


@pytest.mark.req("NE-050")
def test_the_client_works_without_compiled_messages(tmp_path: Path) -> None:
    """protobuf in pure Python, as on machines that have no wheel of it."""
    program = """
import asyncio
from google.protobuf.internal import api_implementation
from podresources_server import Answers, serving
from pathlib import Path
from polyarch.numa.exporter.scan import open_podresources
from polyarch.numa.host import podresources_pb2 as api

async def main(socket):
    answers = Answers()
    pod = answers.pods.pod_resources.add(name="web", namespace="shop")
    container = pod.containers.add(name="main", cpu_ids=[1, 2])
    container.memory.add(memory_type="memory", size=2**64 - 1).topology.nodes.add(ID=-1)
    async with serving(answers, socket):
        client = open_podresources(f"unix://{socket}")
        print(api_implementation.Type(), (await client.list())[0])
        await client.close()

asyncio.run(main(Path(%r)))
"""
    server = Path(__file__).parents[3] / "support"
    printed = run(
        program % str(tmp_path / "k.sock"),
        PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python",
        PYTHONPATH=os.pathsep.join([str(server), os.environ.get("PYTHONPATH", "")]),
    )
    container = Container(name="main", cpus=(1, 2), memory=(MemoryBlock("memory", 2**64 - 1, (-1,)),))
    assert printed == f"python {ListedPod('shop', 'web', (container,))}\n"
