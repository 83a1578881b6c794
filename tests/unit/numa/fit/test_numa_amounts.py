"""What names of resources say."""

import pytest

from polyarch.numa.fit import facts


@pytest.mark.req("NS-002")
@pytest.mark.parametrize(
    ("resource", "native", "affine", "host_level"),
    [
        ("cpu", True, True, False),
        ("memory", True, True, False),
        ("hugepages-2Mi", True, True, False),
        ("ephemeral-storage", True, False, True),
        ("storage", True, False, True),
        ("pods", True, False, False),
        ("kubernetes.io/x", True, False, False),
        ("requests.kubernetes.io/x", True, False, False),
        ("example.com/nic", False, False, True),
    ],
)
def test_the_name_tells_what_a_resource_is(resource: str, native: bool, affine: bool, host_level: bool) -> None:
    assert facts.is_native(resource) == native
    assert facts.is_device(resource) != native
    assert facts.is_affine(resource) == affine
    assert facts.is_host_level(resource) == host_level


@pytest.mark.req("NS-002")
def test_what_asks_for_nothing_is_left_out() -> None:
    """A request of 0 is none."""
    assert facts.positive({"cpu": 0, "memory": 1, "example.com/nic": -1}) == {"memory": 1}
