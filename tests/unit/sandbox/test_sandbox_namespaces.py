"""Lines for ``ip`` that make the networks of real nodes."""

import pytest

from polyarch.sandbox.namespaces import cable_lines, ethernet, gateway_lines


@pytest.mark.req("SB-017")
def test_a_node_that_boots_has_the_hardware_address_that_its_neighbours_know() -> None:
    first, second = (cable_lines(keeper, "10.250.1.2")[0].split() for keeper in (17, 23))
    assert first[first.index("address") + 1] == second[second.index("address") + 1] == "02:00:0a:fa:01:02"


@pytest.mark.req("SB-017")
def test_the_gateways_bridge_has_an_address_of_its_own_that_no_port_changes() -> None:
    made = next(line.split() for line in gateway_lines(244) if "type bridge" in line)
    assert made[made.index("address") + 1] == ethernet("10.250.255.254")
