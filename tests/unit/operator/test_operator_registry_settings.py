"""What a role would refuse as it starts is found before it starts."""

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from polyarch.clock import SystemClock
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import CONFIGMAPS
from polyarch.objects import ObjectKey, Unstructured
from polyarch.oci.mirror_files import InvalidMirrorConfiguration
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.operator.cluster import OperatorNamespace
from polyarch.operator.registry_settings import wrong_authorities, wrong_configuration, wrong_range, wrong_ranges
from polyarch.operator.settings import OperatorSettings
from polyarch.run.registries import open_registries

CA = trustme.CA().cert_pem.bytes()
RANGES = ["10.0.0.0/8", " 10.0.0.0/8", "10.0.0.1/8", "1.2.3.4", "fd00::/8", "10.0.0/8", "10.0.0.0/33", "lan", ""]
CONFIGURATIONS = {
    "mirrors": b'[[registry]]\nprefix = "quay.io"\nlocation = "mirror.example/quay"\n',
    "empty": b"",
    "not TOML": b"[[registry]\n",
    "not UTF-8": b"\xff",
    "version 1": b'[registries.search]\nregistries = ["quay.io"]\n',
    "a registry without a name": b"[[registry]]\n",
    "a scheme": b'[[registry]]\nprefix = "quay.io"\nlocation = "https://mirror.example"\n',
    "the same place with and without TLS": b'[[registry]]\nlocation = "a.example"\n'
    b'[[registry]]\nprefix = "b.example"\nlocation = "a.example"\ninsecure = true\n',
}
AUTHORITIES = {
    "one": CA,
    "several, with words between them": CA + "\n# für unsere Registry\n".encode() + trustme.CA().cert_pem.bytes(),
    "empty": b"",
    "words": b"none yet\n",
    "damaged": CA[:200] + b"*" + CA[201:],
}


async def refuses(**given: Any) -> bool:
    """Whether a role with these settings ends at once."""
    usual: Any = {"registries_conf": None, "ca": (), "allow_addresses": ()}
    try:
        async with open_registries(**usual | given, clock=SystemClock(), metrics=Metrics()):
            return False
    except (InvalidMirrorConfiguration, InvalidSetting):
        return True


@pytest.mark.req("IN-030", "RG-103")
@pytest.mark.parametrize("text", RANGES)
async def test_a_range_is_wrong_if_a_role_would_refuse_it(text: str) -> None:
    assert bool(wrong_range(text)) == await refuses(allow_addresses=(text,)) == await refuses(deny_addresses=(text,))


@pytest.mark.req("IN-030", "PL-424")
@pytest.mark.parametrize("content", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
async def test_a_configuration_is_wrong_if_a_role_would_refuse_it(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "registries.conf").write_bytes(content)
    assert bool(wrong_configuration(content, "x")) == await refuses(registries_conf=str(tmp_path / "registries.conf"))


@pytest.mark.req("IN-030", "PL-424")
@pytest.mark.parametrize("content", AUTHORITIES.values(), ids=AUTHORITIES)
async def test_authorities_are_wrong_if_a_role_would_refuse_them(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_bytes(content)
    assert bool(wrong_authorities(content, "x")) == await refuses(ca=(str(tmp_path / "ca.crt"),))


@pytest.mark.req("IN-030")
def test_people_are_told_where_what_and_what_is_expected() -> None:
    assert wrong_ranges(("10.0.0.0/8", "10.0.0/8")) == (
        "registries.allowAddresses (flag --allow-address): '10.0.0/8' is not an address range such as 10.0.0.0/8",
    )
    assert wrong_configuration(b"[[registry]]", "ConfigMap a/b: registries.conf").startswith(
        "ConfigMap a/b: registries.conf: registry 1: "
    )


class Cached:
    """The informers of the operator's namespace: what is in them is said by the test."""

    def __init__(self) -> None:
        self.stores: dict[Any, dict[ObjectKey, Unstructured]] = {}

    def informer(self, resource: Any, *_: Any, **selected: Any) -> Any:
        return SimpleNamespace(store=self.stores.setdefault(resource, {}))


def home(cached: Cached, **settings: Any) -> OperatorNamespace:
    process: Any = cached
    return OperatorNamespace(process, OperatorSettings(namespace="ns", **settings))


@pytest.mark.req("PL-424", "PL-751")
def test_the_operator_finds_a_wrong_configmap_and_sees_it_corrected() -> None:
    """Texts as well as binary data; each change is looked at."""
    cached = Cached()
    found = home(cached, registries_configmap="mirrors", allow_addresses=("10.0.0/8",))
    (of_flag,) = found.problems
    assert "'10.0.0/8'" in of_flag

    def put(**content: Any) -> None:
        document = {"metadata": {"name": "mirrors", "namespace": "ns"}, **content}
        cached.stores[CONFIGMAPS][ObjectKey("ns", "mirrors")] = Unstructured(document)

    put(data={"registries.conf": "[[registry]"}, binaryData={"ca.crt": base64.b64encode(b"none").decode()})
    several = found.problems
    assert several[0] == of_flag
    assert [each.partition(": ")[2].partition(": ")[0] for each in several[1:]] == ["registries.conf", "ca.crt"]
    assert all(each.startswith("ConfigMap ns/mirrors: ") for each in several[1:])
    put(data={"registries.conf": "", "ca.crt": CA.decode(), "notes": "[["})
    assert found.problems == (of_flag,)


@pytest.mark.req("PL-751")
def test_usual_settings_have_no_problems() -> None:
    assert home(Cached()).problems == ()
