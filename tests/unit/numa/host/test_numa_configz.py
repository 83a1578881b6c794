"""``/configz`` at the kubelet's own port."""

import ssl
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
from manual_clock import ManualClock
from scripted_server import ScriptedServer, document, serving, status

from polyarch.kube.settings import Configuration, PemSource, TlsSettings, User
from polyarch.numa.exporter.cluster import KubeletPort
from polyarch.numa.facts import HostSettings
from polyarch.numa.host.kubelet import ConfigzUnavailable, KubeletSettingsSource
from polyarch.numa.host.machine import HostRoot

ANSWER = {"kubeletconfig": {"topologyManagerPolicy": "restricted"}}


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


def port(api: ScriptedServer, authority: trustme.CA | None, **settings: object) -> KubeletPort:
    """The kubelet that ``api`` plays, for a pod whose API server is somewhere else."""
    ca = (
        PemSource(path="in-cluster", field="ca.crt", data=authority.cert_pem.bytes()) if authority is not None else None
    )
    configuration = Configuration(
        server="https://api.example:6443",
        tls=TlsSettings(ca=ca, server_name="api.example", skip_verify=True),
        user=User(token="pod-token"),
    )
    made = KubeletPort(configuration, clock=ManualClock(), **settings)  # type: ignore[arg-type]
    place = urlsplit(api.url)
    made.is_at(place.hostname or "", place.port or 0)
    return made


@pytest.mark.req("NE-101")
async def test_it_is_asked_at_the_nodes_address_with_the_pods_token(authority: trustme.CA):
    async with serving(server_context(authority)) as api:
        api.otherwise = document(ANSWER)
        assert b"restricted" in await port(api, authority).get()
    assert (api.last.method, api.last.path) == ("GET", "/configz")
    assert api.last.headers["Authorization"] == "Bearer pod-token"


@pytest.mark.req("NE-101")
@pytest.mark.parametrize(("code", "refused"), [(401, True), (403, True), (404, True), (429, False), (503, False)])
async def test_refusals_are_told_from_failures(authority: trustme.CA, code: int, refused: bool):
    async with serving(server_context(authority)) as api:
        api.otherwise = status(code, "No", "said the kubelet")
        with pytest.raises(ConfigzUnavailable, match="said the kubelet") as raised:
            await port(api, authority).get()
    assert raised.value.refused is refused
    assert len(api.requests) in {1, 2}  # a 401 is answered once with a fresh token


@pytest.mark.req("NE-101")
async def test_no_token_goes_to_a_server_that_is_not_known(authority: trustme.CA):
    """The API server's skip_verify is not the kubelet's."""
    async with serving(server_context(trustme.CA())) as api:
        with pytest.raises(ConfigzUnavailable, match="its certificate is not accepted") as raised:
            await port(api, authority).get()
    assert raised.value.refused
    assert "--kubelet-ca" in str(raised.value)
    assert api.requests == []


@pytest.mark.req("NE-101")
async def test_kubelets_may_have_an_authority_of_their_own(authority: trustme.CA, tmp_path: Path):
    (tmp_path / "ca.crt").write_bytes(authority.cert_pem.bytes())
    async with serving(server_context(authority)) as api:
        api.otherwise = document(ANSWER)
        assert await port(api, trustme.CA(), ca=str(tmp_path / "ca.crt")).get()


@pytest.mark.req("NE-101")
async def test_an_authority_that_cannot_be_read_is_a_failure_by_name(authority: trustme.CA, tmp_path: Path):
    async with serving(server_context(authority)) as api:
        with pytest.raises(ConfigzUnavailable, match=r"--kubelet-ca: cannot read .*missing\.crt") as raised:
            await port(api, authority, ca=str(tmp_path / "missing.crt")).get()
    assert not raised.value.refused


@pytest.mark.req("NE-101")
async def test_who_chooses_so_takes_any_certificate(authority: trustme.CA):
    async with serving(server_context(trustme.CA())) as api:
        api.otherwise = document(ANSWER)
        assert await port(api, authority, insecure=True).get()


@pytest.mark.req("NE-101")
async def test_nobody_listens(authority: trustme.CA):
    async with serving(server_context(authority)) as api:
        gone = port(api, authority)
    with pytest.raises(ConfigzUnavailable) as raised:
        await gone.get()
    assert not raised.value.refused


@pytest.mark.req("NE-101")
async def test_until_the_address_is_known_nobody_is_asked(authority: trustme.CA):
    async with serving(server_context(authority)) as api:
        early = port(api, authority)
        early.is_at("")
        with pytest.raises(ConfigzUnavailable, match="InternalIP of the node is not known yet"):
            await early.get()
    assert api.requests == []


@pytest.mark.req("NE-101")
async def test_a_node_with_an_address_of_ipv6(authority: trustme.CA):
    early = port(ScriptedServer(), authority)
    early.is_at("fd00::1")
    with pytest.raises(ConfigzUnavailable, match=r"\[fd00::1\]:10250"):
        await early.get()


@pytest.mark.req("NE-101")
async def test_its_answer_makes_settings(authority: trustme.CA, tmp_path: Path):
    async with serving(server_context(authority)) as api:
        api.otherwise = document(ANSWER)
        source = KubeletSettingsSource(
            HostSettings(), HostRoot(str(tmp_path)), clock=ManualClock(), configz=port(api, authority)
        )
        found = await source.current()
    assert (found.origin, found.kubelet.policy) == ("configz", "restricted")
