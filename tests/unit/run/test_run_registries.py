"""What a process in a cluster is told of registries: files, OpenShift's objects, and changes of both."""

import asyncio
import hashlib
import json
import ssl
from contextlib import asynccontextmanager

import pytest
import structlog
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer

from polyarch.clock import SystemClock
from polyarch.kube.metrics import Metrics
from polyarch.oci.mirror_files import InvalidMirrorConfiguration
from polyarch.oci.pull_sources import Blocked, Configuration, sources
from polyarch.oci.reference import parse, unqualified
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.run.logs import Verbosity, configure
from polyarch.run.registries import host_certificates, open_registries, registry_rules, search_registries

DIGEST = "@sha256:" + "a" * 64


def digest_mirrors(source: str, *mirrors: str, name: str = "one", policy: str = "") -> dict:
    entry = {"source": source, "mirrors": list(mirrors), **({"mirrorSourcePolicy": policy} if policy else {})}
    return {"kind": "ImageDigestMirrorSet", "metadata": {"name": name}, "spec": {"imageDigestMirrors": [entry]}}


def hosts(image: str, *mirrors: dict, **registry_sources: list[str]) -> list[tuple[str, bool]]:
    """The places that are asked for an image, and whether they may be insecure."""
    rules = registry_rules(mirrors, {"registrySources": registry_sources} if registry_sources else {})
    return [(source.host, source.insecure) for source in sources(parse(image), Configuration(registries=rules))]


@pytest.mark.req("PL-424", "RG-095")
def test_mirrors_are_asked_first():
    mirror = digest_mirrors("quay.io/team", "mirror.example/team")
    assert hosts(f"quay.io/team/app{DIGEST}", mirror) == [("mirror.example", False), ("quay.io", False)]
    assert hosts("quay.io/team/app:1", mirror) == [("quay.io", False)], "digest mirrors serve digests"


@pytest.mark.req("PL-424")
def test_insecure_registries_may_be_asked_without_tls_mirrors_too():
    mirror = digest_mirrors("quay.io/team", "mirror.example/team")
    assert hosts("plain.example/app:1", insecureRegistries=["plain.example"]) == [("plain.example", True)]
    assert hosts(f"quay.io/team/app{DIGEST}", mirror, insecureRegistries=["mirror.example"]) == [
        ("mirror.example", True),
        ("quay.io", False),
    ]
    assert hosts("a.lab.example/app:1", insecureRegistries=["*.lab.example"]) == [("a.lab.example", True)]


@pytest.mark.req("PL-424")
def test_blocked_registries_are_not_asked():
    rules = registry_rules([], {"registrySources": {"blockedRegistries": ["bad.example"]}})
    with pytest.raises(Blocked, match=r"bad\.example"):
        sources(parse("bad.example/app:1"), Configuration(registries=rules))
    assert [source.host for source in sources(parse("good.example/app:1"), Configuration(registries=rules))] == [
        "good.example"
    ]


@pytest.mark.req("PL-424")
@pytest.mark.parametrize(
    ("image", "scope", "insecure"),
    [
        ("plain.example:5000/app:1", "plain.example", True),
        ("plain.example:5000/app:1", "plain.example:5000", True),
        ("plain.example:5000/app:1", "plain.example:5001", False),
        ("plain.example/app:1", "plain.example:5000", False),
        ("plain.example:5000/team/app:1", "plain.example/team", False),
        ("plain.example:5000/team/app:1", "plain.example:5000/team", True),
        ("a.lab.example:5000/app:1", "*.lab.example", True),
        ("lab.example:5000/app:1", "*.lab.example", False),
        ("not-plain.example:5000/app:1", "plain.example", False),
    ],
)
def test_a_scope_without_a_port_covers_the_host_on_every_port(image, scope, insecure):
    """As the nodes' runtime takes it; registries of a laboratory are mostly on some port."""
    host = image.partition("/")[0]
    assert hosts(image, insecureRegistries=[scope]) == [(host, insecure)]
    rules = registry_rules([], {"registrySources": {"blockedRegistries": [scope]}})
    if insecure:
        with pytest.raises(Blocked):
            sources(parse(image), Configuration(registries=rules))
    else:
        assert sources(parse(image), Configuration(registries=rules))


@pytest.mark.req("PL-424")
def test_mirrors_of_a_host_serve_its_ports():
    """The port goes along, as it does on the nodes."""
    mirror = digest_mirrors("quay.example", "mirror.example")
    assert hosts(f"quay.example:5000/app{DIGEST}", mirror) == [
        ("mirror.example:5000", False),
        ("quay.example:5000", False),
    ]


@pytest.mark.req("PL-424")
def test_what_is_said_of_a_scope_holds_for_the_rules_inside_it():
    """The runtime looks at the most precise rule alone, so the nodes' configuration passes it on."""
    mirror = digest_mirrors("quay.io/team", "mirror.example/team")
    assert hosts("quay.io/team/app:1", mirror, insecureRegistries=["quay.io"]) == [("quay.io", True)]
    rules = registry_rules([mirror], {"registrySources": {"blockedRegistries": ["quay.io"]}})
    places = sources(parse(f"quay.io/team/app{DIGEST}"), Configuration(registries=rules))
    assert [place.host for place in places] == ["mirror.example"], "the source itself is blocked"


@pytest.mark.req("PL-424", "PL-750")
def test_a_scope_that_names_no_registry_is_left_out(capsys):
    structlog.reset_defaults()
    assert hosts("plain.example/app:1", insecureRegistries=["https://x", "plain.example/"]) == [("plain.example", True)]
    assert "insecureRegistries" in capsys.readouterr().out


@pytest.mark.req("PL-424", "PL-750")
def test_an_object_that_makes_no_sense_is_left_out_and_the_others_count(capsys):
    structlog.reset_defaults()
    broken = digest_mirrors("not a registry!", "mirror.example", name="broken")
    good = digest_mirrors("quay.io/team", "mirror.example/team")
    assert hosts(f"quay.io/team/app{DIGEST}", broken, good)[0] == ("mirror.example", False)
    assert "broken" in capsys.readouterr().out


@pytest.mark.req("PL-424")
def test_where_nodes_look_for_short_names(capsys):
    """In the order of the image configuration; what names no registry is left out."""
    structlog.reset_defaults()
    spec = {"registrySources": {"containerRuntimeSearchRegistries": ["quay.example", "http://x", "docker.io"]}}
    assert search_registries(spec) == ("quay.example", "docker.io")
    assert "containerRuntimeSearchRegistries" in capsys.readouterr().out
    assert search_registries({}) == ()


@pytest.mark.req("PL-424")
def test_certificates_for_single_hosts(capsys):
    """A key of a ConfigMap has no colon; a damaged one does not take the others away."""
    structlog.reset_defaults()
    good = trustme.CA().cert_pem.bytes().decode()
    found = host_certificates({"registry.example..5000": good, "plain.example": good, "broken.example": "no"})
    assert found == {"registry.example:5000": good, "plain.example": good}
    assert "broken.example" in capsys.readouterr().out


def image_of(*architectures: str) -> bytes:
    """An index."""
    entries = [
        {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": "sha256:" + hashlib.sha256(each.encode()).hexdigest(),
            "size": 7,
            "platform": {"os": "linux", "architecture": each},
        }
        for each in architectures
    ]
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()


INDEX = "application/vnd.oci.image.index.v1+json"


def registry_of(images: dict[str, bytes]) -> web.Application:
    """Serves these indexes by ``repository:tag``, to anybody; the rest it does not have."""

    async def manifest(request: web.Request) -> web.Response:
        body = images.get(f"{request.match_info['name']}:{request.match_info['tag']}")
        if body is None:
            return web.Response(status=404)
        digest = "sha256:" + hashlib.sha256(body).hexdigest()
        return web.Response(body=body, headers={"Content-Type": INDEX, "Docker-Content-Digest": digest})

    application = web.Application()
    application.router.add_get("/v2/{name:.+}/manifests/{tag}", manifest)
    return application


@asynccontextmanager
async def serving(images: dict[str, bytes], authority: trustme.CA | None = None):
    """``host:port`` of such a registry."""
    context = None
    if authority is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        authority.issue_cert("127.0.0.1").configure_cert(context)
    server = TestServer(registry_of(images), scheme="http" if context is None else "https")
    await server.start_server(ssl=context)
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        await server.close()


@asynccontextmanager
async def opened_for_loopback():
    async with open_registries(
        registries_conf=None, ca=(), allow_addresses=["127.0.0.1/32"], clock=SystemClock(), metrics=Metrics()
    ) as registries:
        yield registries


def platforms(answer) -> list[str]:
    assert answer.error is None, answer.error
    return [str(each) for each in answer.platforms]


@pytest.mark.req("PL-424")
async def test_a_host_is_trusted_by_its_own_certificates_and_no_other_host_by_them():
    """additionalTrustedCA, in force without a restart."""
    authority = trustme.CA()
    image = {"app:1": image_of("s390x")}
    async with opened_for_loopback() as registries, serving(image, authority) as one, serving(image, authority) as two:
        images = [parse(f"{host}/app:1") for host in (one, two)]
        before = [await registries.inspect(each) for each in images]
        assert [answer.error.code for answer in before] == ["tls", "tls"]
        registries.trust("", hosts={one: authority.cert_pem.bytes().decode()})
        trusted, untrusted = [await registries.inspect(each, fresh=True) for each in images]
        assert platforms(trusted) == ["linux/s390x"]
        assert untrusted.error.code == "tls"


@pytest.mark.req("PL-424")
async def test_a_short_name_is_looked_for_where_the_nodes_look_and_in_their_order():
    """The first registry that has it decides."""
    arm = {"team/app:1": image_of("arm64", "amd64")}
    ibm = {"team/app:1": image_of("s390x", "ppc64le"), "tool:2": image_of("ppc64le", "amd64")}
    async with opened_for_loopback() as registries, serving(arm) as first, serving(ibm) as second:
        rules = registry_rules([], {"registrySources": {"insecureRegistries": [first, second]}})
        registries.use(rules, search=[first, second])
        app, tool, missing = map(unqualified, ("team/app:1", "tool:2", "missing:1"))
        assert registries.peek(app) is None
        assert not registries.host_busy(app)
        assert platforms(await registries.inspect(app)) == ["linux/arm64", "linux/amd64"]
        assert platforms(await registries.inspect(tool)) == ["linux/ppc64le", "linux/amd64"]
        assert platforms(registries.peek(app)) == ["linux/arm64", "linux/amd64"]
        assert platforms(registries.peek(tool)) == ["linux/ppc64le", "linux/amd64"]
        registries.use(rules, search=[second, first])
        assert platforms(await registries.inspect(app)) == ["linux/s390x", "linux/ppc64le"]
        answer = await registries.inspect(missing)
        assert answer.error.code == "not-found"
        assert first in answer.error.message
        assert second in answer.error.message


@pytest.mark.req("PL-424")
async def test_rules_of_the_cluster_come_into_force_while_the_process_runs():
    """What was known stays known."""
    metrics = Metrics()
    async with open_registries(
        registries_conf=None, ca=(), allow_addresses=("127.0.0.0/8",), clock=SystemClock(), metrics=metrics
    ) as registries:
        reference = parse("blocked.example/app:1")
        assert registries.peek(reference) is None
        registries.use(registry_rules([], {"registrySources": {"blockedRegistries": ["blocked.example"]}}))
        answer = await registries.inspect(reference)
        assert answer.error is not None
        assert answer.error.code == "blocked"
        assert registries.readings() == 0
    assert "polyarch_registry_inspections_total" in metrics.render()[0].decode()


class Slow:
    """Credentials that come when the test says so: an answer that is waited for."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.come = asyncio.Event()

    async def candidates(self, reference, source):
        self.asked.set()
        await self.come.wait()
        return []

    def cached_candidates(self, reference, source):
        return None

    def warnings(self, source):
        return ()


BLOCKED = {"registrySources": {"blockedRegistries": ["blocked.example"]}}


@asynccontextmanager
async def opened():
    async with open_registries(
        registries_conf=None, ca=(), allow_addresses=(), clock=SystemClock(), metrics=Metrics()
    ) as registries:
        yield registries


@pytest.mark.req("PL-424", "PL-811")
async def test_a_former_configuration_is_kept_only_as_long_as_somebody_waits_for_its_answer():
    """A cluster whose mirrors change every minute for a day costs no more than one."""
    async with opened() as registries:
        for _ in range(50):
            registries.use(registry_rules([], BLOCKED))
        assert registries.former() == 0
        credentials = Slow()
        waiting = asyncio.create_task(registries.inspect(parse("127.0.0.1:1/app:1"), credentials=credentials))
        await credentials.asked.wait()
        registries.use(())
        registries.use(registry_rules([], BLOCKED))
        assert registries.former() == 1, "it goes on for who asked it"
        credentials.come.set()
        answer = await waiting
        assert answer.error is not None
        assert answer.error.code == "refused-address", "it was asked to the end"
        assert registries.former() == 0
        assert (await registries.inspect(parse("blocked.example/app:1"))).error.code == "blocked"


@pytest.mark.req("PL-424", "RG-061")
async def test_a_pause_that_a_registry_asked_for_outlives_a_change_of_the_mirrors(tmp_path):
    """The new rules are no reason to ask again at once."""
    asked = []

    async def refuse(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=429, headers={"Retry-After": "60"})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", refuse)
    async with TestServer(application) as server:
        address = f"127.0.0.1:{server.port}"
        conf = tmp_path / "registries.conf"
        conf.write_text(f'[[registry]]\nlocation = "{address}"\ninsecure = true\n')
        async with open_registries(
            registries_conf=str(conf),
            ca=(),
            allow_addresses=["127.0.0.1/32"],
            clock=SystemClock(),
            metrics=Metrics(),
        ) as registries:
            first = await registries.inspect(parse(f"{address}/app:1"))
            assert first.error.error_class == "limit"
            before = len(asked)
            assert before
            registries.use(registry_rules([], BLOCKED))
            again = await registries.inspect(parse(f"{address}/other:1"))
            assert again.error.error_class == "limit"
            assert len(asked) == before


@pytest.mark.req("PL-113", "PL-811")
async def test_who_stops_waiting_for_a_former_configuration_does_not_keep_it():
    """An admission whose budget is spent."""
    async with opened() as registries:
        credentials = Slow()
        waiting = asyncio.create_task(registries.inspect(parse("127.0.0.1:1/app:1"), credentials=credentials))
        await credentials.asked.wait()
        registries.use(())
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert registries.former() == 0


@pytest.mark.req("PL-424")
async def test_who_waits_is_told_that_the_configuration_changed():
    """So that what failed can be asked for again at once."""
    told = []
    async with opened() as registries:
        registries.on_change(lambda: told.append(registries.peek(parse("blocked.example/app:1"))))
        registries.use(registry_rules([], BLOCKED))
        registries.trust("")
        assert len(told) == 2
        with pytest.raises(InvalidSetting):
            registries.trust("no certificate")
        assert len(told) == 2


@pytest.mark.req("PL-751")
@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"allow_addresses": ("10.0.0.0/99",)}, InvalidSetting),
        ({"ca": ("/nonexistent/ca.pem",)}, InvalidSetting),
        ({"registries_conf": "/nonexistent/registries.conf"}, InvalidMirrorConfiguration),
    ],
    ids=["range", "certificates", "registries.conf"],
)
async def test_settings_that_cannot_be_used_are_refused_at_the_start(options, error):
    given = {"registries_conf": None, "ca": (), "allow_addresses": ()} | options
    with pytest.raises(error):
        async with open_registries(**given, clock=SystemClock(), metrics=Metrics()):
            pass


@pytest.mark.req("PL-010")
def test_the_log_level_follows_the_configuration(capsys):
    """Normal, Debug, and back, without a restart; stdout stays free for programs."""
    verbosity = configure("json")
    try:
        log = structlog.get_logger("test")
        log.debug("first")
        verbosity.set("Debug")
        log.debug("second", secret="no")
        verbosity.set("Normal")
        log.debug("third")
        log.info("fourth")
        verbosity.set("Nonsense")
        log.info("fifth")
    finally:
        structlog.reset_defaults()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert [json.loads(line)["event"] for line in captured.err.splitlines()] == ["second", "fourth", "fifth"]


@pytest.mark.req("PL-850")
@pytest.mark.parametrize("format", ["json", "console"])
def test_a_traceback_shows_no_local_variables(capsys, format):
    """They hold credentials where those are used."""
    marker = "m4rk3r"
    configure(format)
    try:
        try:
            _fail(marker)
        except RuntimeError:
            structlog.get_logger("test").exception("a bug")
    finally:
        structlog.reset_defaults()
    written = capsys.readouterr().err
    assert "_fail" in written
    assert marker not in written


def _fail(password: str) -> None:
    credential = {"password": password}
    raise RuntimeError(f"bug with {len(credential)} credential")


@pytest.mark.req("PL-010")
def test_warnings_are_written_at_every_level():
    verbosity = Verbosity()
    assert verbosity(None, "warning", {"event": "x"}) == {"event": "x"}
    assert verbosity(None, "error", {"event": "x"}) == {"event": "x"}
    with pytest.raises(structlog.DropEvent):
        verbosity(None, "debug", {"event": "x"})
