"""What names of resources say."""

import pytest

from polyarch.numa.scheduling.facts import amounts


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
def test_ns_002_the_name_tells_what_a_resource_is(resource: str, native: bool, affine: bool, host_level: bool) -> None:
    """NS-002, NS-021."""
    assert amounts.is_native(resource) == native
    assert amounts.is_device(resource) != native
    assert amounts.is_affine(resource) == affine
    assert amounts.is_host_level(resource) == host_level


def test_ns_002_what_asks_for_nothing_is_left_out() -> None:
    """NS-002: a request of 0 is none."""
    assert amounts.positive({"cpu": 0, "memory": 1, "example.com/nic": -1}) == {"memory": 1}
