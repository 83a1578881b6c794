"""A marker secret goes through every error path and comes out nowhere."""

import base64
from functools import partial

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from scripted_registry import BODY

from polyarch.oci.auth.credentials import ANONYMOUS, Credential
from polyarch.oci.cache import Cache
from polyarch.oci.cache_sharing import CacheExporter, drained
from polyarch.oci.inspection import Status
from polyarch.oci.metrics import RegistryMetrics
from polyarch.oci.pull_sources import Configuration
from polyarch.oci.transport.addresses import AddressPolicy

pytestmark = pytest.mark.req("PL-850", "RG-087")

MARKER = "MARKER-5ecret"
INDEX = "application/vnd.oci.image.index.v1+json"
CREDENTIALS = {
    "password": Credential("robot", f"{MARKER}-password", source="secret team/pull", key="r.example"),
    "identity token": Credential(identity_token=f"{MARKER}-identity", source="secret team/pull", key="r.example"),
    "registry token": Credential(registry_token=f"{MARKER}-bearer", source="secret team/pull", key="r.example"),
}


class Holding:
    def __init__(self, credential):
        self.credentials = [credential, ANONYMOUS]

    async def candidates(self, reference, source):
        return list(self.credentials)

    def cached_candidates(self, reference, source):
        return list(self.credentials)

    def warnings(self, source):
        return ()


def echo(status, answer, **headers):
    """An answer that repeats everything it was shown, as a careless proxy does."""

    def play(request):
        shown = request.headers.get("Authorization", "")
        sent = [shown, shown.partition(" ")[2], request[BODY].decode()]
        if shown.startswith("Basic"):
            sent.append(base64.b64decode(sent[1]).decode())
        text = " and ".join(["you sent", *sent])
        body = ('{"errors":[{"code":"ECHO","message":"%s"}]}' % text).encode()  # noqa: UP031 - braces
        return answer(status, body, {**headers, "Warning": f'299 - "{text}"'})

    return play


def paths(registry, answer):
    """Name → what is scripted, for each way in which asking an image can fail."""
    challenge = {"WWW-Authenticate": f'Bearer realm="{registry.url}/token",service="registry"'}
    basic = {"WWW-Authenticate": 'Basic realm="x"'}
    token = answer(200, b'{"token":"%s-token"}' % MARKER.encode())
    rejected = ("GET", "/manifests/", answer(401, headers=challenge))
    granted = ("*", "^token", token)
    return {
        "refused by the token endpoint": [rejected, ("*", "^token", echo(401, answer))],
        "token endpoint broken": [rejected, ("*", "^token", echo(500, answer))],
        "token endpoint limits": [rejected, ("*", "^token", echo(429, answer, **{"Retry-After": "300"}))],
        "token endpoint without a token": [rejected, ("*", "^token", answer(200, f'{{"{MARKER}": 1}}'.encode()))],
        "token endpoint with a bad token": [
            rejected,
            ("*", "^token", answer(200, b'{"token":"%s\\n"}' % MARKER.encode())),
        ],
        "token endpoint redirects": [
            rejected,
            ("*", "^token", answer(302, headers={"Location": f"https://{MARKER}.example/"})),
        ],
        "denied": [rejected, granted, ("GET", "/manifests/", echo(403, answer))],
        "refused by basic": [
            ("GET", "/manifests/", answer(401, headers=basic)),
            ("GET", "/manifests/", echo(401, answer, **basic)),
        ],
        "absent": [rejected, granted, ("GET", "/manifests/", echo(404, answer))],
        "limited": [rejected, granted, ("GET", "/manifests/", echo(429, answer, **{"Retry-After": "300"}))],
        "server error": [rejected, granted, ("GET", "/manifests/", echo(500, answer))],
        "bad request": [rejected, granted, ("GET", "/manifests/", echo(400, answer))],
        "truncated": [rejected, granted, ("GET", "/manifests/", answer(200, b"{", {"Content-Type": INDEX}, drop=True))],
        "redirected nowhere": [
            rejected,
            granted,
            ("GET", "/manifests/", answer(307, headers={"Location": f"https://u:{MARKER}@h.example/?sig={MARKER}"})),
        ],
        "redirected to a forbidden place": [
            rejected,
            granted,
            ("GET", "/manifests/", answer(307, headers={"Location": f"http://169.254.169.254/{MARKER}?sig={MARKER}"})),
        ],
        "redirected to a place that is not there": [
            rejected,
            granted,
            ("GET", "/manifests/", answer(307, headers={"Location": f"http://127.0.0.1:1/{MARKER}?sig={MARKER}"})),
        ],
        "too large": [rejected, granted, ("GET", "/manifests/", answer(200, b" " * (4 * 2**20 + 1)))],
        "compressed": [rejected, granted, ("GET", "/manifests/", answer(200, b"x", {"Content-Encoding": "zstd"}))],
        "malformed": [
            rejected,
            granted,
            ("GET", "/manifests/", answer(200, b'{"manifests":5}', {"Content-Type": INDEX})),
        ],
    }


NAMES = list(paths(type("Nowhere", (), {"url": "http://h"})(), lambda *arguments, **named: None))


@pytest.mark.parametrize("credential", CREDENTIALS)
@pytest.mark.parametrize("name", NAMES)
async def test_no_secret_comes_out(registry, make_inspector, ref, answer, clock, name, credential, capfd, tmp_path):
    for method, pattern, what in paths(registry, answer)[name]:
        registry.script(method, pattern, what)
        last = (method, pattern, what)
    registry.script(*last, forever=True)
    collected, notices = CollectorRegistry(), []
    metrics = RegistryMetrics(*(partial(kind, registry=collected) for kind in (Counter, Gauge, Histogram)))
    cache = Cache(clock)
    credentials = Holding(CREDENTIALS[credential])
    inspector = make_inspector(credentials=credentials, cache=cache, metrics=metrics, notice=notices.append)
    found = await inspector.inspect(ref("team/app:1"))
    assert found.status is Status.ERROR
    shown = [
        repr(found),
        str(found.error),
        *notices,
        generate_latest(collected).decode(),
        repr(inspector.sources(ref("team/app:1"))),
        drained(CacheExporter(cache, clock).steps([CREDENTIALS[credential]])).decode("latin-1"),
        *capfd.readouterr(),
    ]
    assert [text for text in shown if MARKER in text] == []
    sent = " ".join(str(seen.headers) + seen.body.decode() + seen.query for seen in registry.seen)
    if not (name == "refused by basic" and credential == "identity token"):  # which basic has no place for
        assert MARKER in sent or "Basic" in sent, "the secret did not go this way"


@pytest.mark.req("RG-094")
async def test_headers_of_a_configuration_are_secrets_too(registry, make_inspector, ref, tmp_path, answer):
    """RG-094 lets ``hosts.toml`` add headers; their values come out nowhere."""
    folder = tmp_path / registry.host
    folder.mkdir()
    (folder / "hosts.toml").write_text(
        f'[host."http://{registry.host}"]\n[host."http://{registry.host}".header]\nauthorization = "Bearer {MARKER}"\n'
    )
    configuration = Configuration.load(hosts_dirs=[tmp_path], environ={})
    registry.script("GET", "", echo(404, answer), forever=True)
    inspector = make_inspector(configuration=configuration)
    found = await inspector.inspect(ref("team/app:1"))
    assert registry.seen[0].headers["authorization"] == f"Bearer {MARKER}"
    assert MARKER not in found.error.message
    assert MARKER not in repr(inspector.sources(ref("team/app:1")))


async def test_a_refused_address_and_an_unreachable_host_say_nothing_either(make_inspector):
    from polyarch.oci.reference import parse

    inspector = make_inspector(
        credentials=Holding(CREDENTIALS["password"]), policy=AddressPolicy.of("cluster"), insecure_loopback=False
    )
    for text in ("169.254.169.254/a/b:1", "127.0.0.1:1/a/b:1"):
        found = await inspector.inspect(parse(text))
        assert found.error.code == "refused-address"
        assert MARKER not in repr(found)
