"""Pull secrets are read by name, once, and what is wrong with one is told without its content."""

import asyncio
import tracemalloc

import msgspec
import pytest
from manual_clock import ManualClock
from placement_world import FakeSecrets

from polyarch.images.pull_secrets import (
    AT_ONCE,
    BYTES,
    IN_LINE,
    GlobalPullSecret,
    PullSecretNames,
    PullSecrets,
    credentials_in,
    document_of,
)
from polyarch.kube.errors import ConnectionFailed, Forbidden
from polyarch.kube.store import ObjectChange
from polyarch.objects import DOCKER_CONFIG, DOCKER_CONFIG_JSON, ObjectKey, Pod, Secret
from polyarch.oci.auth.credential_plugins import HelperOutput, Provider, ProviderConfiguration, ProviderCredentials
from polyarch.oci.auth.credentials import Credential, Document
from polyarch.oci.pull_sources import Configuration, sources
from polyarch.oci.reference import parse

IMAGE = parse("registry.example/team/app:1")
(REGISTRY,) = sources(IMAGE, Configuration())
PULL = PullSecretNames("team", ("pull",))
MARKER = "m4rk3r-of-a-secret"


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def api():
    return FakeSecrets()


@pytest.fixture
def secrets(api, clock):
    return PullSecrets(api, clock)


def passwords(credentials: list[Credential]) -> list[str]:
    return [each.password for each in credentials if not each.is_anonymous]


async def candidates(credentials) -> list[str]:
    return passwords(await credentials.store.candidates(IMAGE, REGISTRY))


@pytest.mark.req("PL-421")
async def test_a_secret_is_read_once_and_kept_for_ten_minutes(secrets, api, clock):
    api.put("team", "pull", password="one")
    assert await candidates(await secrets.get(PULL)) == ["one"]
    clock.advance(599)
    await secrets.get(PULL)
    assert api.gets["team", "pull"] == 1
    clock.advance(1)
    api.put("team", "pull", password="two")
    assert await candidates(await secrets.get(PULL)) == ["two"]
    assert api.gets["team", "pull"] == 2


@pytest.mark.req("PL-421")
async def test_an_absent_secret_is_asked_for_again_after_thirty_seconds(secrets, api, clock):
    assert (await secrets.get(PULL)).problems == ("pull secret team/pull does not exist",)
    clock.advance(29)
    await secrets.get(PULL)
    assert api.gets["team", "pull"] == 1
    clock.advance(1)
    api.put("team", "pull")
    assert await candidates(await secrets.get(PULL)) == ["s3cr3t"]


@pytest.mark.req("PL-421")
async def test_pods_that_come_together_share_one_request(secrets, api, clock):
    api.put("team", "pull")
    api.wait = asyncio.Event()
    waiting = [asyncio.create_task(secrets.get(PULL)) for _ in range(50)]
    await clock.settle()
    waiting[0].cancel()
    api.wait.set()
    await asyncio.wait(waiting)
    assert api.gets["team", "pull"] == 1
    assert await candidates(waiting[1].result()) == ["s3cr3t"]


@pytest.mark.req("PL-421")
async def test_with_secret_access_none_no_secret_is_read_and_the_pod_is_told_so(secrets, api):
    api.put("team", "pull")
    await secrets.get(PULL)
    secrets.allow(False)
    credentials = await secrets.get(PULL)
    assert await candidates(credentials) == []
    assert credentials.problems == ("pull secrets are not read (images.secretAccess: none)",)
    assert api.gets["team", "pull"] == 1


@pytest.mark.req("PL-421")
async def test_a_secret_read_after_the_refusal_is_not_read_again(secrets, api, clock):
    api.put("team", "pull")
    await secrets.get(PULL)
    read_at = clock.monotonic()
    clock.advance(10)
    await secrets.get(PULL, since=read_at)
    assert api.gets["team", "pull"] == 1
    await secrets.get(PULL, since=clock.monotonic())
    assert api.gets["team", "pull"] == 2


@pytest.mark.req("PL-422")
@pytest.mark.parametrize(
    ("failure", "problem"),
    [
        (Forbidden(403, reason="Forbidden", message=MARKER), "pull secret team/pull may not be read by polyarch"),
        (ConnectionFailed("reset", verb="get", resource="secrets"), "pull secret team/pull could not be read"),
    ],
    ids=["no right to read it", "API server away"],
)
async def test_a_secret_that_cannot_be_read_is_skipped_and_named(secrets, api, clock, failure, problem):
    api.content["team", "pull"] = failure
    api.put("team", "second", password="other")
    credentials = await secrets.get(PullSecretNames("team", ("pull", "second")))
    assert credentials.problems == (problem,)
    assert await candidates(credentials) == ["other"]


@pytest.mark.req("PL-301", "PL-421")
async def test_a_secret_counts_on_while_the_api_server_cannot_say_whether_it_changed(secrets, api, clock):
    """Else a registry's refusal for want of it would end the waiting early."""
    source = PullSecretNames("team", ("pull",))
    api.put("team", "pull", password="kept")
    before = await secrets.get(source)
    clock.advance(601)
    api.content["team", "pull"] = ConnectionFailed("reset", verb="get", resource="secrets")
    during = await secrets.get(source)
    assert (await candidates(during), during.fingerprint) == (["kept"], before.fingerprint)
    clock.advance(6)
    del api.content["team", "pull"]
    assert await candidates(await secrets.get(source)) == []


@pytest.mark.req("PL-854")
async def test_a_pod_that_names_thousands_of_secrets_does_not_take_the_client_from_others(secrets, api):
    """Leases are renewed over the same connections."""
    api.wait = asyncio.Event()
    reading = asyncio.create_task(secrets.get(PullSecretNames("team", tuple(f"s{number}" for number in range(200)))))
    for _ in range(10):
        await asyncio.sleep(0)
    assert api.gets.total() == AT_ONCE
    api.wait.set()
    await reading
    assert api.gets.total() == 200


@pytest.mark.req("PL-851")
async def test_namespaces_take_turns_at_the_api_server(secrets, api):
    """One with hundreds of secrets delays another's one by a request."""
    api.wait = asyncio.Event()
    greedy = asyncio.create_task(secrets.get(PullSecretNames("greedy", tuple(f"s{number}" for number in range(200)))))
    for _ in range(10):
        await asyncio.sleep(0)
    modest = asyncio.create_task(secrets.get(PullSecretNames("modest", ("pull",))))
    for _ in range(10):
        await asyncio.sleep(0)
    api.wait.set()
    await modest
    assert list(api.gets).index(("modest", "pull")) <= AT_ONCE + 1
    await greedy


@pytest.mark.req("PL-854")
async def test_the_line_of_a_namespace_has_an_end(secrets, api, clock):
    """Who stands in none is told so, and may try again in a moment."""
    api.wait = asyncio.Event()
    pods = [PullSecretNames("greedy", tuple(f"s{pod}-{at}" for at in range(32))) for pod in range(40)]
    reading = [asyncio.create_task(secrets.get(each)) for each in pods]
    for _ in range(10):
        await asyncio.sleep(0)
    last = reading[-1]
    api.wait.set()
    said = (await last).problems
    assert "pull secret greedy/s39-31 could not be read: too many reads of its namespace are queued" in said
    await asyncio.gather(*reading)
    assert api.gets.total() == AT_ONCE + IN_LINE
    clock.advance(5)
    assert (await secrets.get(PullSecretNames("greedy", ("s39-31",)))).problems == (
        "pull secret greedy/s39-31 does not exist",
    )


@pytest.mark.req("PL-810")
async def test_secrets_in_memory_are_bounded_in_bytes(clock):
    """A secret holds up to a megabyte, and a namespace may have thousands."""

    async def large(namespace: str, name: str) -> Secret:
        auths = {"registry.example": {"username": "user", "password": name * 100_000}}
        return Secret(type=DOCKER_CONFIG_JSON, data={".dockerconfigjson": msgspec.json.encode({"auths": auths})})

    secrets = PullSecrets(large, clock)
    tracemalloc.start()
    try:
        for number in range(100):
            await secrets.get(PullSecretNames("team", (f"secret-{number}",)))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0 < len(secrets) < 100
    assert kept < 3 * BYTES


@pytest.mark.req("PL-422")
@pytest.mark.parametrize(
    ("secret", "problem"),
    [
        (
            Secret(type="Opaque", data={"password": MARKER.encode()}),
            f"has type Opaque; expected {DOCKER_CONFIG_JSON} or {DOCKER_CONFIG}",
        ),
        (Secret(type=DOCKER_CONFIG_JSON, data={"other": MARKER.encode()}), "has no .dockerconfigjson"),
        (Secret(type=DOCKER_CONFIG, data=None), "has no .dockercfg"),
    ],
    ids=["foreign type", "wrong key", "empty"],
)
def test_what_is_wrong_with_a_secret_is_said_without_its_content(secret, problem):
    document, said = document_of(secret, "team/pull")
    assert document is None
    assert said == f"pull secret team/pull {problem}"


@pytest.mark.req("PL-422")
async def test_a_secret_that_is_not_json_is_named_without_its_content(secrets, api):
    broken = Secret(type=DOCKER_CONFIG_JSON, data={".dockerconfigjson": f"{{{MARKER}".encode()})
    api.content["team", "pull"] = broken
    credentials = await secrets.get(PULL)
    (problem,) = credentials.problems
    assert "team/pull" in problem
    assert MARKER not in problem


@pytest.mark.req("PL-850")
def test_no_text_of_a_secret_shows_its_content():
    secret = Secret(type=DOCKER_CONFIG_JSON, data={".dockerconfigjson": MARKER.encode()})
    document, _ = document_of(secret, "team/pull")
    assert MARKER not in f"{secret!r} {document!r} {document}"


@pytest.mark.req("PL-422")
async def test_a_lazy_store_reads_the_secret_only_when_a_registry_wants_credentials(secrets, api):
    api.put("team", "pull")
    store = secrets.lazy(PULL)
    assert store.cached_candidates(IMAGE, REGISTRY) is None
    assert api.gets.total() == 0
    assert passwords(await store.candidates(IMAGE, REGISTRY)) == ["s3cr3t"]
    assert api.gets["team", "pull"] == 1
    assert passwords(store.cached_candidates(IMAGE, REGISTRY)) == ["s3cr3t"]


@pytest.mark.req("PL-420")
async def test_the_pods_own_secrets_come_before_the_global_one_and_anonymous_is_last(secrets, api):
    api.put("team", "pull", password="own")
    body = {"auths": {"registry.example": {"username": "user", "password": "global"}}}
    secrets.set_global([Document("secret openshift-config/pull-secret", msgspec.json.encode(body))])
    store = (await secrets.get(PULL)).store
    found = await store.candidates(IMAGE, REGISTRY)
    assert passwords(found) == ["own", "global"]
    assert found[-1].is_anonymous


@pytest.mark.req("PL-420", "PL-900")
@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ({"auth": "dXNlcjpwdw=="}, "password"),
        ({"username": "user", "password": "pw"}, "password"),
        ({"identitytoken": "it"}, "identity_token"),
        ({"registrytoken": "rt"}, "registry_token"),
    ],
    ids=["auth", "username and password", "identity token", "registry token"],
)
async def test_every_kind_of_entry_works(secrets, api, entry, what):
    body = msgspec.json.encode({"auths": {"registry.example": entry}})
    api.content["team", "pull"] = Secret(type=DOCKER_CONFIG_JSON, data={".dockerconfigjson": body})
    first, *_ = await (await secrets.get(PULL)).store.candidates(IMAGE, REGISTRY)
    assert getattr(first, what)


@pytest.mark.req("PL-423", "PL-900")
async def test_a_deleted_global_secret_is_gone_at_once(secrets):
    body = {"auths": {"registry.example": {"username": "user", "password": "global"}}}
    nothing = PullSecretNames("team", ())
    secrets.set_global([Document("secret ns/global", msgspec.json.encode(body))])
    assert await candidates(await secrets.get(nothing)) == ["global"]
    secrets.set_global([])
    assert await candidates(await secrets.get(nothing)) == []


class SlowPlugin:
    """A credential plugin that says in which order it was run."""

    def __init__(self):
        self.images = []

    async def run(self, program, arguments, *, stdin, environ, timeout):
        self.images.append(msgspec.json.decode(stdin)["image"])
        await asyncio.sleep(0)
        body = {"kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1"}
        return HelperOutput(0, msgspec.json.encode({**body, "cacheKeyType": "Image", "auth": {}}))


@pytest.mark.req("PL-851")
async def test_namespaces_take_turns_at_the_kubelets_plugins(api, clock):
    """Each run may take 30 s, and pod authors choose for how many images there is one."""
    configuration = ProviderConfiguration((Provider("cloud", ("registry.example",), 600.0),), "/plugins", "file")
    plugin = SlowPlugin()
    secrets = PullSecrets(api, clock, providers=ProviderCredentials(configuration, helper=plugin, clock=clock))

    async def ask(namespace, name):
        store = (await secrets.get(PullSecretNames(namespace, ()))).store
        image = parse(f"registry.example/{name}:1")
        await store.candidates(image, *sources(image, Configuration()))

    await asyncio.gather(*(ask("busy", f"busy{number}") for number in range(20)), ask("calm", "calm"))
    assert len(plugin.images) == 21
    assert plugin.images.index("registry.example/calm") <= 2


@pytest.mark.req("PL-331", "PL-852")
async def test_the_same_bytes_in_another_type_of_secret_are_other_credentials(secrets, api):
    """Pods shared look-ups with credentials that were not theirs."""
    body = msgspec.json.encode({"registry.example": {"username": "user", "password": "one"}})
    api.content["one", "pull"] = Secret(type=DOCKER_CONFIG, data={".dockercfg": body})
    api.content["two", "pull"] = Secret(type=DOCKER_CONFIG_JSON, data={".dockerconfigjson": body})
    one, two = [await secrets.get(PullSecretNames(each, ("pull",))) for each in ("one", "two")]
    assert (await candidates(one), await candidates(two)) == (["one"], [])
    assert one.fingerprint != two.fingerprint


@pytest.mark.req("PL-421")
async def test_a_secret_that_is_made_anew_with_another_type_counts_by_it(secrets, api, clock):
    """The type of a secret cannot be changed, so whoever mistook it makes it anew with the same content."""
    body = msgspec.json.encode({"registry.example": {"username": "user", "password": "one"}})
    api.content["team", "pull"] = Secret(type=DOCKER_CONFIG_JSON, data={".dockerconfigjson": body})
    assert await candidates(await secrets.get(PULL)) == []
    api.content["team", "pull"] = Secret(type=DOCKER_CONFIG, data={".dockercfg": body})
    clock.advance(600)
    assert await candidates(await secrets.get(PULL)) == ["one"]


@pytest.mark.req("PL-331")
async def test_pods_with_equal_secrets_share_and_others_do_not(secrets, api):
    api.put("one", "pull", password="same")
    api.put("two", "pull", password="same")
    api.put("three", "pull", password="different")
    one, two, three = [await secrets.get(PullSecretNames(each, ("pull",))) for each in ("one", "two", "three")]
    none = await secrets.get(PullSecretNames("four", ()))
    missing = await secrets.get(PullSecretNames("five", ("pull",)))
    assert one.fingerprint == two.fingerprint
    assert len({one.fingerprint, three.fingerprint, none.fingerprint}) == 3
    assert missing.fingerprint == none.fingerprint == ""


@pytest.mark.req("PL-420")
def test_the_names_of_a_pod_in_order_without_repetition():
    pod = msgspec.convert(
        {"metadata": {}, "spec": {"imagePullSecrets": [{"name": "b"}, {"name": "a"}, {"name": "b"}, {}]}}, Pod
    )
    assert PullSecretNames.of(pod, "team") == PullSecretNames("team", ("b", "a"))


async def test_memory_is_bounded_by_forgetting_what_was_not_used_for_longest(api, clock):
    secrets = PullSecrets(api, clock, capacity=2)
    for name in ("a", "b", "c"):
        api.put("team", name)
        await secrets.get(PullSecretNames("team", (name,)))
    assert len(secrets) == 2
    assert secrets.cached(PullSecretNames("team", ("a",))) is None
    assert secrets.cached(PullSecretNames("team", ("c",))) is not None


class Watched:
    """What the informer of the global pull secret tells."""

    def __init__(self, secrets: PullSecrets) -> None:
        self.gone: list[str] = []
        self.credentials = GlobalPullSecret(
            secrets, "config/pull-secret", lambda gone: self.gone.extend(each.password for each in gone)
        )
        self._known: Secret | None = None

    def show(self, password: str | None, **options: str) -> None:
        new = None
        if password is not None:
            entry = {"username": "user", "password": password}
            body = msgspec.json.encode({"auths": {"registry.example": entry}})
            new = Secret(type=options.get("type", DOCKER_CONFIG_JSON), data={".dockerconfigjson": body})
        key = ObjectKey("config", "pull-secret")
        kind = "delete" if new is None else "apply"
        self.credentials.observe(ObjectChange(kind, key, self._known, new))
        self._known = new


@pytest.mark.req("PL-423", "PL-900")
async def test_the_global_secret_follows_its_object(secrets):
    """Created, replaced, deleted; what the old one proved can be forgotten each time."""
    watched = Watched(secrets)
    nobody = PullSecretNames("team", ())
    watched.show("one")
    assert await candidates(await secrets.get(nobody)) == ["one"]
    watched.show("one")
    assert watched.gone == [], "an update that changes nothing drops no proofs"
    watched.show("two")
    assert await candidates(await secrets.get(nobody)) == ["two"]
    watched.show(None)
    assert await candidates(await secrets.get(nobody)) == []
    assert watched.gone == ["one", "two"]


@pytest.mark.req("PL-422", "PL-423", "PL-850")
async def test_a_global_secret_of_a_foreign_type_counts_as_none(secrets, capsys):
    watched = Watched(secrets)
    watched.show(MARKER, type="Opaque")
    assert await candidates(await secrets.get(PullSecretNames("team", ()))) == []
    output = capsys.readouterr().out
    assert "config/pull-secret" in output
    assert MARKER not in output


@pytest.mark.req("PL-422")
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"auths": 3}', b'{"auths": {"a": 3, "b": {}}}'])
def test_a_document_that_makes_no_sense_has_no_credentials(body):
    assert credentials_in(Document("x", body)) == []


@pytest.mark.req("PL-422", "PL-850")
async def test_what_is_wrong_with_the_global_secret_is_not_told_to_those_who_have_no_part_in_it(secrets, capsys):
    """Events on a tenant's pod named the administrator's Secret and registries that stand in it; it is
    for the log."""
    auths = {"vault.internal/project-x": {"auth": "?"}, "registry.example": {"username": "user", "password": "one"}}
    body = msgspec.json.encode({"auths": auths})
    found = Secret(type=DOCKER_CONFIG_JSON, data={".dockerconfigjson": body})
    GlobalPullSecret(secrets, "openshift-config/pull-secret").observe(
        ObjectChange("apply", ObjectKey("openshift-config", "pull-secret"), None, found, True)
    )
    credentials = await secrets.get(PULL)
    assert await candidates(credentials) == ["one"]
    assert credentials.problems == ("pull secret team/pull does not exist",)
    assert "vault.internal/project-x" in capsys.readouterr().out


@pytest.mark.req("PL-422")
async def test_the_text_says_what_is_the_matter_now(secrets, api, clock):
    """The Secret was missing, and since then it may not be read."""
    await secrets.get(PULL)
    clock.advance(31)
    api.content["team", "pull"] = Forbidden(403, reason="Forbidden", verb="get", resource="secrets", name="pull")
    assert (await secrets.get(PULL)).problems == ("pull secret team/pull may not be read by polyarch",)
