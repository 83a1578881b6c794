"""What a process in a cluster is told of registries: files, OpenShift's objects, and changes of both (PL-424)."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
import structlog
from aiohttp import web
from aiohttp.test_utils import TestServer

from polyarch.kube.clock import SystemClock
from polyarch.kube.metrics import Metrics
from polyarch.oci.mirrors.sources import Blocked, Configuration, sources
from polyarch.oci.mirrors.toml_files import InvalidConfiguration
from polyarch.oci.reference import parse
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.run.logs import Verbosity, configure
from polyarch.run.openshift import registry_rules
from polyarch.run.registries import open_registries

DIGEST = "@sha256:" + "a" * 64


def digest_mirrors(source: str, *mirrors: str, name: str = "one", policy: str = "") -> dict:
    entry = {"source": source, "mirrors": list(mirrors), **({"mirrorSourcePolicy": policy} if policy else {})}
    return {"kind": "ImageDigestMirrorSet", "metadata": {"name": name}, "spec": {"imageDigestMirrors": [entry]}}


def hosts(image: str, *mirrors: dict, **registry_sources: list[str]) -> list[tuple[str, bool]]:
    """The places that are asked for an image, and whether they may be insecure."""
    rules = registry_rules(mirrors, {"registrySources": registry_sources} if registry_sources else {})
    return [(source.host, source.insecure) for source in sources(parse(image), Configuration(registries=rules))]


def test_mirrors_are_asked_first():
    """PL-424, RG-095."""
    mirror = digest_mirrors("quay.io/team", "mirror.example/team")
    assert hosts(f"quay.io/team/app{DIGEST}", mirror) == [("mirror.example", False), ("quay.io", False)]
    assert hosts("quay.io/team/app:1", mirror) == [("quay.io", False)], "digest mirrors serve digests"


def test_insecure_registries_may_be_asked_without_tls_mirrors_too():
    """PL-424."""
    mirror = digest_mirrors("quay.io/team", "mirror.example/team")
    assert hosts("plain.example/app:1", insecureRegistries=["plain.example"]) == [("plain.example", True)]
    assert hosts(f"quay.io/team/app{DIGEST}", mirror, insecureRegistries=["mirror.example"]) == [
        ("mirror.example", True),
        ("quay.io", False),
    ]
    assert hosts("a.lab.example/app:1", insecureRegistries=["*.lab.example"]) == [("a.lab.example", True)]


def test_blocked_registries_are_not_asked():
    """PL-424."""
    rules = registry_rules([], {"registrySources": {"blockedRegistries": ["bad.example"]}})
    with pytest.raises(Blocked, match=r"bad\.example"):
        sources(parse("bad.example/app:1"), Configuration(registries=rules))
    assert [source.host for source in sources(parse("good.example/app:1"), Configuration(registries=rules))] == [
        "good.example"
    ]


def test_an_object_that_makes_no_sense_is_left_out_and_the_others_count(capsys):
    """PL-424, PL-750."""
    structlog.reset_defaults()
    broken = digest_mirrors("not a registry!", "mirror.example", name="broken")
    good = digest_mirrors("quay.io/team", "mirror.example/team")
    assert hosts(f"quay.io/team/app{DIGEST}", broken, good)[0] == ("mirror.example", False)
    assert "broken" in capsys.readouterr().out


async def test_rules_of_the_cluster_come_into_force_while_the_process_runs():
    """PL-424: what was known stays known."""
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


async def test_a_former_configuration_is_kept_only_as_long_as_somebody_waits_for_its_answer():
    """PL-424, PL-811: a cluster whose mirrors change every minute for a day costs no more than one."""
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


async def test_rg_061_a_pause_that_a_registry_asked_for_outlives_a_change_of_the_mirrors(tmp_path):
    """RG-061, PL-424: the new rules are no reason to ask again at once."""
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


async def test_who_stops_waiting_for_a_former_configuration_does_not_keep_it():
    """PL-113, PL-811: an admission whose budget is spent."""
    async with opened() as registries:
        credentials = Slow()
        waiting = asyncio.create_task(registries.inspect(parse("127.0.0.1:1/app:1"), credentials=credentials))
        await credentials.asked.wait()
        registries.use(())
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert registries.former() == 0


async def test_who_waits_is_told_that_the_configuration_changed():
    """PL-424: so that what failed can be asked for again at once."""
    told = []
    async with opened() as registries:
        registries.on_change(lambda: told.append(registries.peek(parse("blocked.example/app:1"))))
        registries.use(registry_rules([], BLOCKED))
        registries.trust("")
        assert len(told) == 2
        with pytest.raises(InvalidSetting):
            registries.trust("no certificate")
        assert len(told) == 2


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"allow_addresses": ("10.0.0.0/99",)}, InvalidSetting),
        ({"ca": ("/nonexistent/ca.pem",)}, InvalidSetting),
        ({"registries_conf": "/nonexistent/registries.conf"}, InvalidConfiguration),
    ],
    ids=["range", "certificates", "registries.conf"],
)
async def test_settings_that_cannot_be_used_are_refused_at_the_start(options, error):
    """PL-751."""
    given = {"registries_conf": None, "ca": (), "allow_addresses": ()} | options
    with pytest.raises(error):
        async with open_registries(**given, clock=SystemClock(), metrics=Metrics()):
            pass


def test_the_log_level_follows_the_configuration(capsys):
    """PL-010: Normal, Debug, and back, without a restart; stdout stays free for programs."""
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


@pytest.mark.parametrize("format", ["json", "console"])
def test_a_traceback_shows_no_local_variables(capsys, format):
    """PL-850: they hold credentials where those are used."""
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


def test_warnings_are_written_at_every_level():
    """PL-010."""
    verbosity = Verbosity()
    assert verbosity(None, "warning", {"event": "x"}) == {"event": "x"}
    assert verbosity(None, "error", {"event": "x"}) == {"event": "x"}
    with pytest.raises(structlog.DropEvent):
        verbosity(None, "debug", {"event": "x"})
