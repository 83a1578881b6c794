"""The fingerprint is the one that schedulers of others compute, to the byte."""

import time

import pytest

from polyarch.numa.facts import Container, Devices, ListedPod, MemoryBlock
from polyarch.numa.fingerprint import check_fingerprint, fingerprint, has_exclusive_resources

FIVE = [("ns1", "n1"), ("ns1", "n2"), ("ns2", "n1"), ("ns3", "n1"), ("ns3", "n2")]
VECTORS = [
    ([], "pfp0v001ef46db3751d8e999"),
    ([("default", "test-pod-0")], "pfp0v001fe53c4dbd2c5f4a0"),
    (FIVE, "pfp0v001b92008c14168b3a6"),
    (FIVE[::-1], "pfp0v001b92008c14168b3a6"),
]


@pytest.mark.req("NE-080", "NE-081")
@pytest.mark.parametrize(("pods", "text"), VECTORS, ids=["no-pods", "one", "five", "five-backwards"])
def test_vectors(pods: list[tuple[str, str]], text: str) -> None:
    assert fingerprint(pods) == text


@pytest.mark.req("NE-080")
def test_a_pod_listed_twice_counts_twice() -> None:
    assert fingerprint([("a", "b"), ("a", "b")]) != fingerprint([("a", "b")])


@pytest.mark.req("NE-082")
@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("pfp0v001b92008c14168b3a6", "ok"),
        ("pfp0v001b92008c14168b3a7", "mismatch"),
        ("pfp0v001B92008C14168B3A6", "mismatch"),
        ("pfp0v001b92008c14168b3a6 ", "mismatch"),
        ("pfp0v001b92008c1", "mismatch"),
        ("pfp0v002b92008c14168b3a6", "incompatible-version"),
        ("pfp1v001b92008c14168b3a6", "malformed"),
        ("PFP0v001b92008c14168b3a6", "malformed"),
        ("pfp0v001b92008c", "malformed"),
        ("", "malformed"),
    ],
)
def test_verdict_about_a_text(text: str, verdict: str) -> None:
    assert check_fingerprint(text, FIVE) == verdict


@pytest.mark.req("NE-066", "NE-083")
@pytest.mark.parametrize(
    ("container", "counts"),
    [
        (Container(name="a"), False),
        (Container(name="a", cpus=(3,)), True),
        (Container(name="a", memory=(MemoryBlock("memory", 1, (0,)),)), True),
        (Container(name="a", memory=(MemoryBlock("memory", 1),)), False),
        (Container(name="a", memory=(MemoryBlock("memory", 1, (-1,)),)), False),
        (Container(name="a", devices=(Devices("r", ("x",), (1,)),)), True),
        (Container(name="a", devices=(Devices("r", (), (1,)),)), False),
        (Container(name="a", devices=(Devices("r", ("x",), (-1,)),)), False),
        (Container(name="a", devices=(Devices("r", ("x",)),)), False),
    ],
    ids=[
        "nothing",
        "cpu",
        "memory",
        "cell-less-memory",
        "cell-minus-1",
        "device",
        "no-ids",
        "device-minus-1",
        "unbound",
    ],
)
def test_what_counts_as_exclusive(container: Container, *, counts: bool) -> None:
    """What the kubelet lists decides, never a class of quality of service."""
    assert has_exclusive_resources(ListedPod("ns", "pod", (Container(name="idle"), container))) is counts


@pytest.mark.req("NE-084")
def test_300_pods_take_at_most_5_ms() -> None:
    """CPU time, the best of many rounds, since the machine does other things meanwhile."""
    pods = [(f"namespace-of-team-{number % 20}", f"deployment-{number}-6f7c9d8b5d-abcde") for number in range(300)]
    rounds = []
    for _ in range(30):
        began = time.process_time()
        fingerprint(pods)
        rounds.append(time.process_time() - began)
    assert min(rounds) <= 0.005
