"""Where the API server's connections lead."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from polyarch.kube.store import Store
from polyarch.kube.watch import Apply
from polyarch.sandbox.egress import ConnectionRejected, EndpointSlice, Route, Routes, Service, ToKubelet, ToPod

READY = {"ready": True, "serving": True, "terminating": False}
NOT_READY = {"ready": False, "serving": False, "terminating": False}
ENDING = {"ready": False, "serving": True, "terminating": True}
UNSAID: dict[str, bool] = {}


def service(ports: Sequence[Mapping[str, Any]] = ({"port": 443},), *, name: str = "hook") -> Service:
    document = {
        "metadata": {"name": name, "namespace": "n", "resourceVersion": "1"},
        "spec": {"clusterIP": "10.96.4.1", "ports": list(ports)},
    }
    return msgspec.convert(document, Service)


def slice_of(
    endpoints: Mapping[str, Mapping[str, bool]],
    ports: Sequence[Mapping[str, Any]] = ({"name": "", "port": 9443},),
    *,
    name: str = "hook-1",
    of: str = "hook",
    address_type: str = "IPv4",
) -> EndpointSlice:
    document = {
        "metadata": {
            "name": name,
            "namespace": "n",
            "resourceVersion": "1",
            "labels": {"kubernetes.io/service-name": of},
        },
        "addressType": address_type,
        "endpoints": [{"addresses": [address], "conditions": state} for address, state in endpoints.items()],
        "ports": list(ports),
    }
    return msgspec.convert(document, EndpointSlice)


def routes(services: Sequence[Service], *slices: EndpointSlice) -> Routes:
    known: Store[Service] = Store()
    found: Store[EndpointSlice] = Store()
    table = Routes(known, found, pod_network=244)
    for each in services:
        known.take(Apply(each))
    for one in slices:
        found.take(Apply(one))
    return table


@pytest.mark.req("SB-012")
def test_endpoints_of_a_service_take_turns_at_their_target_port() -> None:
    table = routes([service()], slice_of({"10.244.0.1": READY}), slice_of({"10.244.0.2": UNSAID}, name="hook-2"))
    found = [table.route("10.96.4.1:443") for _ in range(3)]
    assert found == [ToPod("10.244.0.1", 9443), ToPod("10.244.0.2", 9443), ToPod("10.244.0.1", 9443)]


@pytest.mark.req("SB-012")
def test_services_take_turns_each_on_its_own() -> None:
    ports = [{"name": "a", "port": 443}, {"name": "b", "port": 8443}]
    pods = slice_of({"10.244.0.1": READY, "10.244.0.2": READY}, [{"name": "a", "port": 1}, {"name": "b", "port": 2}])
    table = routes([service(ports)], pods)
    assert table.route("10.96.4.1:443") == ToPod("10.244.0.1", 1)
    assert table.route("10.96.4.1:8443") == ToPod("10.244.0.1", 2)
    assert table.route("10.96.4.1:443") == ToPod("10.244.0.2", 1)


@pytest.mark.req("SB-012")
@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        pytest.param([slice_of({"10.244.0.1": NOT_READY, "10.244.0.2": READY})], "10.244.0.2", id="not ready"),
        pytest.param(
            [slice_of({"10.244.0.1": ENDING, "10.244.0.2": READY})], "10.244.0.2", id="one ends, one is ready"
        ),
        pytest.param([slice_of({"10.244.0.1": ENDING, "10.244.0.2": NOT_READY})], "10.244.0.1", id="all end"),
        pytest.param([slice_of({"10.244.0.1": NOT_READY})], 503, id="none ready"),
        pytest.param([slice_of({})], 503, id="no endpoint"),
        pytest.param([], 503, id="no slice"),
        pytest.param([slice_of({"10.244.0.1": READY}, of="other")], 503, id="of another service"),
        pytest.param([slice_of({"10.244.0.1": READY}, [{"name": "other", "port": 1}])], 503, id="of another port"),
        pytest.param([slice_of({"fd00::1": READY}, address_type="IPv6")], 503, id="IPv6"),
        pytest.param([slice_of({"192.168.0.1": READY})], 403, id="outside of the machine"),
        pytest.param([slice_of({"10.245.0.1": READY})], 403, id="of another sandbox"),
    ],
)
def test_only_endpoints_that_serve_are_used(slices: list[EndpointSlice], expected: str | int) -> None:
    found = routes([service()], *slices).route("10.96.4.1:443")
    assert summary(found) == (f"{expected}:9443" if isinstance(expected, str) else expected)


@pytest.mark.req("SB-012")
@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("10.244.0.7:8081", "10.244.0.7:8081"),
        ("10.250.0.1:10250", "kubelet"),
        ("10.250.0.1:22", 403),
        ("10.245.0.7:8081", 403),
        ("10.96.4.1:444", 403),
        ("10.96.4.2:443", 403),
        ("10.96.4.1:", 403),
        ("10.96.4.1:0443", "10.244.0.1:9443"),
        ("10.96.4.1:999999", 403),
        ("127.0.0.1:22", 403),
        ("127.244.0.7:8081", 403),
        ("192.168.0.1:443", 403),
        ("169.254.169.254:80", 403),
        ("registry.example.com:443", 403),
        ("[::1]:443", 403),
        ("nonsense", 403),
        ("", 403),
    ],
)
def test_every_other_target_is_refused(target: str, expected: str | int) -> None:
    found = routes([service()], slice_of({"10.244.0.1": READY})).route(target)
    assert summary(found) == expected


@pytest.mark.req("SB-012")
def test_a_service_without_an_address_of_its_own_is_never_the_target() -> None:
    headless = msgspec.convert({"metadata": {"name": "hook", "namespace": "n"}, "spec": {"clusterIP": "None"}}, Service)
    assert summary(routes([headless]).route("None:443")) == 403


@pytest.mark.req("SB-012")
def test_a_udp_port_of_a_service_is_not_its_tcp_port() -> None:
    dns = service([{"port": 53, "protocol": "UDP"}])
    assert summary(routes([dns], slice_of({"10.244.0.1": READY})).route("10.96.4.1:53")) == 403


def summary(route: Route) -> str | int:
    if isinstance(route, ConnectionRejected):
        return route.status
    return "kubelet" if isinstance(route, ToKubelet) else f"{route.pod}:{route.port}"
