"""Kubelet credential-provider plugins."""

import asyncio
import base64
import gc
import json
import sys
import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from polyarch.clock import SystemClock
from polyarch.images import resolver
from polyarch.oci.auth import credential_plugins
from polyarch.oci.auth.credential_plugins import (
    FAILURE_REST,
    PROVIDER_QUEUE_TIMEOUT,
    PROVIDER_TIMEOUT,
    HelperFailure,
    HelperOutput,
    HelperTimeout,
    InvalidProviderConfiguration,
    ProviderConfiguration,
    ProviderCredentials,
    parse_duration,
)
from polyarch.oci.auth.credentials import ANONYMOUS
from polyarch.oci.pull_sources import Configuration, PullSource, sources
from polyarch.oci.reference import Reference, parse

MARKER = "s3cr3t-marker"


def configuration(*providers: Mapping[str, Any]) -> ProviderConfiguration:
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1",
        "kind": "CredentialProviderConfig",
        "providers": [
            {
                "name": "cloud",
                "matchImages": ["*.cloud.example"],
                "defaultCacheDuration": "10m",
                "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
                **provider,
            }
            for provider in providers
        ],
    }
    return ProviderConfiguration.from_mapping(document, directory="/plugins", origin="providers.yaml")


def answer(key_type: str = "Image", duration: str | None = None, **auth: str) -> HelperOutput:
    body: dict[str, Any] = {
        "kind": "CredentialProviderResponse",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": key_type,
        "auth": {key: {"username": user, "password": MARKER} for key, user in auth.items()},
    }
    if duration is not None:
        body["cacheDuration"] = duration
    return HelperOutput(0, json.dumps(body).encode())


class HandClock(SystemClock):
    """Moves when told to."""

    __slots__ = ("seconds",)

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


class Plugins:
    """Answers by program; remembers the calls."""

    def __init__(self, **answers: HelperOutput | HelperFailure | str) -> None:
        self.answers = answers
        self.calls: list[dict[str, Any]] = []

    async def run(
        self, program: str, arguments: Sequence[str], *, stdin: bytes, environ: Mapping[str, str], timeout: float
    ) -> HelperOutput:
        self.calls.append(
            {"program": program, "arguments": list(arguments), "request": json.loads(stdin), "environ": dict(environ)}
        )
        await asyncio.sleep(0)
        found = self.answers[program.rpartition("/")[2]]
        if isinstance(found, str):
            raise HelperFailure(found)
        if isinstance(found, HelperFailure):
            raise found
        return found

    @property
    def images(self) -> list[str]:
        return [call["request"]["image"] for call in self.calls]


def store(
    plugins: Plugins, *providers: Mapping[str, Any], clock: HandClock | None = None, **environ: str
) -> ProviderCredentials:
    return ProviderCredentials(
        configuration(*(providers or ({},))), helper=plugins, environ=environ, clock=clock or HandClock()
    )


def asked(image: str) -> tuple[Reference, PullSource]:
    reference = parse(image)
    return reference, sources(reference, Configuration())[0]


async def users(credentials: ProviderCredentials, image: str) -> list[str]:
    found = await credentials.candidates(*asked(image))
    assert found[-1] is ANONYMOUS
    return [credential.username for credential in found[:-1]]


@pytest.mark.req("RG-086")
async def test_a_plugin_is_asked_as_a_kubelet_asks_it() -> None:
    """Request kind, the image without tag, arguments, and the environment that the configuration names."""
    plugins = Plugins(cloud=answer(**{"*.cloud.example": "u"}))
    provider = {"args": ["get-credentials", "-v"], "env": [{"name": "AWS_PROFILE", "value": "team"}]}
    credentials = store(plugins, provider, PATH="/bin", AWS_PROFILE="other")
    assert await users(credentials, "r.cloud.example/team/x:1") == ["u"]
    assert plugins.calls == [
        {
            "program": "/plugins/cloud",
            "arguments": ["get-credentials", "-v"],
            "request": {
                "kind": "CredentialProviderRequest",
                "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
                "image": "r.cloud.example/team/x",
            },
            "environ": {"PATH": "/bin", "AWS_PROFILE": "team"},
        }
    ]


@pytest.mark.req("RG-086")
async def test_an_image_that_no_plugin_matches_runs_nothing() -> None:
    """matchImages by the rules of pull secrets: as many labels, path prefix, port."""
    plugins = Plugins(cloud=answer())
    credentials = store(plugins, {"matchImages": ["*.cloud.example/team", "r.example:5000"]})
    for image in ("cloud.example/team/x", "a.b.cloud.example/team/x", "r.cloud.example/other", "r.example/x", "nginx"):
        assert await users(credentials, image) == []
    assert plugins.calls == []
    await users(credentials, "r.cloud.example/team/x")
    await users(credentials, "r.example:5000/x")
    assert len(plugins.calls) == 2


@pytest.mark.req("RG-086")
async def test_the_answer_is_matched_against_the_image_most_specific_first() -> None:
    auth = {
        "*.cloud.example": "glob",
        "r.cloud.example": "host",
        "r.cloud.example/team": "path",
        "other.cloud.example": "other",
    }
    credentials = store(Plugins(cloud=answer(**auth)))
    assert await users(credentials, "r.cloud.example/team/x") == ["path", "host", "glob"]


@pytest.mark.req("RG-086")
async def test_all_matching_plugins_are_asked_in_their_order() -> None:
    plugins = Plugins(cloud=answer(**{"r.cloud.example": "first"}), second=answer(**{"r.cloud.example": "second"}))
    credentials = store(plugins, {}, {"name": "second"})
    assert await users(credentials, "r.cloud.example/x") == ["first", "second"]


CACHE_KEYS = {
    "Image": ["r.cloud.example/x", "r.cloud.example/y", "s.cloud.example/x"],
    "Registry": ["r.cloud.example/x", "s.cloud.example/x"],
    "Global": ["r.cloud.example/x"],
}


@pytest.mark.req("RG-086")
@pytest.mark.parametrize(("key_type", "runs"), CACHE_KEYS.items(), ids=CACHE_KEYS.keys())
async def test_an_answer_is_used_again_as_far_as_its_key_type_says(key_type: str, runs: list[str]) -> None:
    """cacheKeyType."""
    plugins = Plugins(cloud=answer(key_type, **{"*.cloud.example": "u"}))
    credentials = store(plugins)
    for image in ("r.cloud.example/x", "r.cloud.example/x", "r.cloud.example/y", "s.cloud.example/x"):
        assert await users(credentials, image) == ["u"]
    assert plugins.images == runs


@pytest.mark.req("RG-086")
@pytest.mark.parametrize(
    ("duration", "seconds"), [("30s", 30), (None, 600), ("1h30m", 5400)], ids=["its own", "the default", "composed"]
)
async def test_an_answer_is_used_again_as_long_as_it_says(duration: str | None, seconds: float) -> None:
    """cacheDuration, else defaultCacheDuration."""
    clock = HandClock()
    plugins = Plugins(cloud=answer(duration=duration, **{"*.cloud.example": "u"}))
    credentials = store(plugins, clock=clock)
    await users(credentials, "r.cloud.example/x")
    clock.advance(seconds - 0.1)
    assert credentials.cached_candidates(*asked("r.cloud.example/x")) is not None
    await users(credentials, "r.cloud.example/x")
    assert len(plugins.calls) == 1
    clock.advance(0.1)
    assert credentials.cached_candidates(*asked("r.cloud.example/x")) is None
    await users(credentials, "r.cloud.example/x")
    assert len(plugins.calls) == 2


@pytest.mark.req("RG-086")
async def test_an_answer_for_no_time_is_not_kept() -> None:
    plugins = Plugins(cloud=answer(duration="0s", **{"*.cloud.example": "u"}))
    credentials = store(plugins)
    assert await users(credentials, "r.cloud.example/x") == await users(credentials, "r.cloud.example/x") == ["u"]
    assert len(plugins.calls) == 2


@pytest.mark.req("RG-086")
async def test_many_callers_cause_one_run() -> None:
    """A plugin is asked once for what its answer covers."""
    plugins = Plugins(cloud=answer("Global", **{"*.cloud.example": "u"}))
    credentials = store(plugins)
    found = await asyncio.gather(*(users(credentials, f"r{number}.cloud.example/x") for number in range(20)))
    assert found == [["u"]] * 20
    assert len(plugins.calls) == 1


@pytest.mark.req("PL-851")
async def test_tenants_take_turns_at_a_plugin() -> None:
    """A namespace with one image waited until the plugin had run for all images of another."""
    plugins = Plugins(cloud=answer("Image", **{"*.cloud.example": "u"}))
    credentials = store(plugins)
    images = [("busy", f"r.cloud.example/busy{number}") for number in range(20)] + [("calm", "r.cloud.example/calm")]
    found = await asyncio.gather(*(credentials.of(tenant).candidates(*asked(image)) for tenant, image in images))
    assert all(each[0].username == "u" for each in found)
    assert plugins.images.index("r.cloud.example/calm") <= 2


@pytest.mark.req("PL-851")
async def test_a_tenant_whose_images_make_a_plugin_fail_or_hang_delays_no_other() -> None:
    """Hosts that match its patterns and do not exist: whoever names an image chooses them."""

    class Hanging(Plugins):
        async def run(self, program: str, arguments: Sequence[str], *, stdin: bytes, **options: Any) -> HelperOutput:
            if "evil" in (request := json.loads(stdin))["image"]:
                self.calls.append({"request": request})
                await asyncio.sleep(3600)
            return await super().run(program, arguments, stdin=stdin, **options)

    for kind in (Plugins, Hanging):
        plugins = kind(cloud=HelperOutput(1, b""))
        credentials = store(plugins)
        evil = [
            asyncio.create_task(credentials.of(f"evil{tenant}").candidates(*asked(f"evil{number}.cloud.example/x")))
            for number in range(10)
            for tenant in range(3)
        ]
        await asyncio.sleep(0.01)
        assert len(plugins.calls) <= (30 if kind is Plugins else 3)
        plugins.answers["cloud"] = answer(**{"*.cloud.example": "u"})
        async with asyncio.timeout(5):
            found = await credentials.of("modest").candidates(*asked("r.cloud.example/x"))
        assert found[0].username == "u"
        for each in evil:
            each.cancel()
        await asyncio.wait(evil)
        assert credentials.of("evil0").cached_candidates(*asked("other.cloud.example/x")) is None


FAILURES = {
    "it fails": (HelperOutput(1, MARKER.encode()), "credential provider cloud ended with status 1; run it by hand"),
    "it takes too long": ("cloud did not answer within 15 s", "did not answer within 15 s"),
    "no JSON": (HelperOutput(0, MARKER.encode()), "did not answer with a CredentialProviderResponse"),
    "another kind": (
        HelperOutput(0, json.dumps({"kind": MARKER, "apiVersion": "v1", "cacheKeyType": "Image"}).encode()),
        "answered with another kind",
    ),
    "an unknown key type": (answer("Somehow"), "did not answer with a CredentialProviderResponse"),
    "a duration that is none": (answer(duration=MARKER), "a cacheDuration that is no duration"),
}


@pytest.mark.req("RG-086", "RG-087")
@pytest.mark.parametrize(("output", "problem"), FAILURES.values(), ids=FAILURES.keys())
async def test_a_failing_plugin_is_a_warning_and_the_next_one_is_asked(
    output: HelperOutput | str, problem: str
) -> None:
    """Naming the plugin, never its output."""
    plugins = Plugins(cloud=output, second=answer(**{"*.cloud.example": "second"}))
    credentials = store(plugins, {}, {"name": "second"})
    assert await users(credentials, "r.cloud.example/x") == ["second"]
    (warning,) = credentials.warnings(asked("r.cloud.example/x")[1])
    assert warning.code == "credential-helper"
    assert problem in warning.message
    assert MARKER not in warning.message


async def test_a_failing_plugin_rests_before_it_is_run_again() -> None:
    """A plugin that fails slowly must not hold up every image of a run."""
    clock = HandClock()
    plugins = Plugins(cloud=HelperOutput(1, b""))
    credentials = store(plugins, clock=clock)
    for name in "abc":
        assert await users(credentials, f"r.cloud.example/{name}") == []
    assert credentials.cached_candidates(*asked("r.cloud.example/d")) == [ANONYMOUS]
    assert len(plugins.calls) == 1
    clock.advance(30)
    plugins.answers["cloud"] = answer(**{"*.cloud.example": "u"})
    assert await users(credentials, "r.cloud.example/a") == ["u"]


INVALID = {
    "not a mapping": ([], "providers.yaml: Expected `object`, got `array`"),
    "another kind": ({"kind": "Config"}, "providers.yaml: kind: expected kind CredentialProviderConfig"),
    "another group": ({"apiVersion": "v1"}, "expected kind CredentialProviderConfig of kubelet.config.k8s.io/v1"),
    "providers of another shape": ({"providers": {}}, "Expected `array`, got `object` - at `$.providers`"),
}


@pytest.mark.req("RG-086")
@pytest.mark.parametrize(("change", "problem"), INVALID.values(), ids=INVALID.keys())
def test_a_configuration_that_is_none_is_refused_with_its_file(change: Any, problem: str) -> None:
    document = {"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": []}
    data = {**document, **change} if isinstance(change, dict) else change
    with pytest.raises(InvalidProviderConfiguration) as caught:
        ProviderConfiguration.from_mapping(data, directory="/plugins", origin="providers.yaml")
    assert problem in str(caught.value)


TOKEN = {"serviceAccountTokenAudience": "cloud", "requireServiceAccount": True, "cacheType": "ServiceAccount"}
INVALID_PROVIDERS = {
    "a path as name": ({"name": "../evil"}, "providers[0].name: it is not the name of a program"),
    "two dots as name": ({"name": ".."}, "providers[0].name"),
    "a version to come": (
        {"apiVersion": "credentialprovider.kubelet.k8s.io/v2"},
        "providers[0].apiVersion: 'credentialprovider.kubelet.k8s.io/v2' is not known",
    ),
    "a pattern that is no image's": ({"matchImages": ["a b.example"]}, "matchImages: 'a b.example' is not a pattern"),
    "a pattern of several hosts": ({"matchImages": ["[ab].example"]}, "matchImages: '[ab].example' is not a pattern"),
    "a duration that is none": ({"defaultCacheDuration": "soon"}, "'soon' is not a duration such as 12h"),
    "nothing to match": ({"matchImages": []}, "providers[0].matchImages: it is empty"),
    "tokens without audience": (
        {"tokenAttributes": TOKEN | {"serviceAccountTokenAudience": ""}},
        "providers[0].tokenAttributes: it has no serviceAccountTokenAudience",
    ),
    "tokens of nothing": ({"tokenAttributes": {"x": 1}}, "serviceAccountTokenAudience"),
    "tokens of an old version": (
        {"tokenAttributes": TOKEN, "apiVersion": "credentialprovider.kubelet.k8s.io/v1beta1"},
        "providers[0].tokenAttributes: only credentialprovider.kubelet.k8s.io/v1 has it",
    ),
    "tokens by annotations of no account": (
        {
            "tokenAttributes": TOKEN
            | {"requireServiceAccount": False, "requiredServiceAccountAnnotationKeys": ["example.com/role"]}
        },
        "requiredServiceAccountAnnotationKeys need requireServiceAccount: true",
    ),
    "a number as argument": ({"args": [1]}, "$.providers[0].args[0]"),
    "no name": ({"name": None}, "$.providers[0].name"),
}


@pytest.mark.req("RG-086")
@pytest.mark.parametrize(("change", "problem"), INVALID_PROVIDERS.values(), ids=INVALID_PROVIDERS.keys())
def test_a_provider_that_cannot_be_used_is_refused_with_its_member(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidProviderConfiguration) as caught:
        configuration(change)
    assert str(caught.value).startswith("providers.yaml: ")
    assert problem in str(caught.value)


def test_one_name_twice_is_refused() -> None:
    with pytest.raises(InvalidProviderConfiguration, match="the name 'cloud' is there twice"):
        configuration({}, {})


@pytest.mark.req("RG-087")
def test_the_environment_of_a_provider_is_not_shown() -> None:
    (provider,) = configuration({"env": [{"name": "KEY", "value": MARKER}]}).providers
    assert MARKER not in repr(provider) + repr(provider.__rich_repr__())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("0s", 0), ("90s", 90), ("1h30m", 5400), ("1.5h", 5400), ("250ms", 0.25), ("1m0.5s", 60.5)],
)
def test_durations_are_read_as_go_writes_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "10", "-1s", "1d", "s", "1h 30m", "1hx", "٣s", "1" * 40_000, "1h" * 40_000, "1" * 40_000 + "h", "9" * 60 + "h",
     "9" * 400 + "s", "1.h.5", ".s", "+", "0" * 64 + "s", "2562048h", "infs", "1e3s"],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_other_texts_are_no_durations(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.req("RG-086")
async def test_a_real_plugin_is_run(tmp_path: Path) -> None:
    """The program in the directory, with request and response as JSON."""
    plugin = tmp_path / "cloud"
    plugin.write_text(
        f"#!{sys.executable}\n"
        "import base64, json, os, sys\n"
        "request = json.load(sys.stdin)\n"
        "user = base64.b64encode(request['image'].encode()).decode() + os.environ['SUFFIX']\n"
        "print(json.dumps({'kind': 'CredentialProviderResponse', 'apiVersion': request['apiVersion'],\n"
        "    'cacheKeyType': 'Image', 'auth': {'*.cloud.example': {'username': user, 'password': 'p'}}}))\n"
    )
    plugin.chmod(0o755)
    parts = configuration({"env": [{"name": "SUFFIX", "value": "!"}]})
    credentials = ProviderCredentials(ProviderConfiguration(parts.providers, str(tmp_path)), environ={})
    expected = base64.b64encode(b"r.cloud.example/team/x").decode() + "!"
    assert await users(credentials, "r.cloud.example/team/x:1") == [expected]


@pytest.mark.req("RG-088")
async def test_a_provider_that_needs_the_pods_token_is_never_run_and_says_so() -> None:
    """Only where the registry refuses the image without it is the reason seen."""
    plugins = Plugins(cloud=answer(**{"*.cloud.example": "u"}))
    credentials = store(plugins, {"tokenAttributes": TOKEN})
    assert await users(credentials, "r.cloud.example/x") == []
    assert plugins.calls == []
    reference, source = asked("r.cloud.example/x")
    (warning,) = credentials.warnings(source)
    assert warning.message.startswith("credential provider cloud wants a token of the pod's service account")
    assert credentials.cached_candidates(reference, source) == [ANONYMOUS], "what is in memory needs no lookup"


@pytest.mark.req("RG-088")
async def test_a_provider_that_takes_a_token_if_there_is_one_is_run_without() -> None:
    """As kubelets run it for pods without a service account."""
    plugins = Plugins(cloud=answer(**{"*.cloud.example": "u"}))
    credentials = store(plugins, {"tokenAttributes": TOKEN | {"requireServiceAccount": False}})
    assert await users(credentials, "r.cloud.example/x") == ["u"]
    assert set(plugins.calls[0]["request"]) == {"kind", "apiVersion", "image"}


@pytest.mark.req("RG-086")
async def test_an_older_version_of_the_protocol_is_spoken() -> None:
    version = "credentialprovider.kubelet.k8s.io/v1beta1"
    said = answer(**{"*.cloud.example": "u"})
    plugins = Plugins(cloud=HelperOutput(0, said.output.replace(b"k8s.io/v1", b"k8s.io/v1beta1")), newer=said)
    assert await users(store(plugins, {"apiVersion": version}), "r.cloud.example/x") == ["u"]
    assert plugins.calls[0]["request"]["apiVersion"] == version
    assert await users(store(plugins, {"apiVersion": version, "name": "newer"}), "r.cloud.example/x") == []


@pytest.mark.req("RG-086")
async def test_answers_of_several_plugins_make_one_keyring() -> None:
    """The longer key first, whichever plugin it is from."""
    plugins = Plugins(
        cloud=answer(**{"r.cloud.example": "host"}), second=answer(**{"r.cloud.example/team": "team", "*": "none"})
    )
    assert await users(store(plugins, {}, {"name": "second"}), "r.cloud.example/team/x") == ["team", "host"]


@pytest.mark.req("RG-086")
@pytest.mark.parametrize(
    ("keys", "found"),
    [({"index.docker.io": "hub"}, ["hub"]), ({"https://index.docker.io/v1/": "hub"}, ["hub"]),
     ({"index.docker.io": "hub", "docker.io": "other"}, ["other"]), ({"index.docker.io/library": "hub"}, [])],
)  # fmt: skip
async def test_docker_hub_has_another_name_that_counts_last(keys: dict[str, str], found: list[str]) -> None:
    plugins = Plugins(cloud=answer(**keys))
    assert await users(store(plugins, {"matchImages": ["docker.io"]}), "nginx") == found


async def test_a_pattern_of_many_stars_costs_no_more_than_its_length() -> None:
    """Keys are the plugin's, and a host may be long."""
    host = f"{'a' * 60}b.example"
    plugins = Plugins(cloud=answer(**{"*a" * 60 + "*c.example": "u"}))
    assert await users(store(plugins, {"matchImages": ["*.example"]}), f"{host}/x") == []


@pytest.mark.req("RG-086")
async def test_an_answer_of_very_many_keys_is_none() -> None:
    """Each would be compared with every image."""
    plugins = Plugins(cloud=answer(**{f"r{at}.cloud.example": "u" for at in range(1001)}))
    credentials = store(plugins)
    reference, source = asked("r1.cloud.example/x")
    assert await credentials.candidates(reference, source) == [ANONYMOUS]
    (warning,) = credentials.warnings(source)
    assert warning.message == "credential provider cloud answered with more than 1000 keys"


@pytest.mark.req("RG-086")
async def test_what_is_kept_of_large_answers_is_bounded() -> None:
    """One answer for each image, and each nearly as large as a plugin may print."""
    plugins = Plugins(cloud=answer("Image", "12h", **{"*.cloud.example": "u" * 900_000}))
    credentials = store(plugins)
    for at in range(20):
        await credentials.candidates(*asked(f"r.cloud.example/x{at}"))
    kept = [credentials.cached_candidates(*asked(f"r.cloud.example/x{at}")) is not None for at in range(20)]
    assert 1 <= sum(kept) <= 9
    assert kept[-1]


@pytest.mark.req("RG-086")
async def test_a_failure_that_is_over_explains_no_later_refusal() -> None:
    clock = HandClock()
    plugins = Plugins(cloud="it could not be started")
    credentials = store(plugins, clock=clock)
    reference, source = asked("r.cloud.example/x")
    await credentials.candidates(reference, source)
    assert [each.message for each in credentials.warnings(source)] == ["it could not be started"]
    await credentials.candidates(reference, source)
    assert len(credentials.warnings(source)) == 1, "it rests, and the reason is known"
    plugins.answers["cloud"] = answer(**{"*.cloud.example": "u"})
    clock.advance(31)
    await credentials.candidates(reference, source)
    assert credentials.warnings(source) == ()


class HangingPlugins(Plugins):
    """Hangs for the images of some hosts until it is cancelled, as a real plugin without an end to its time."""

    async def run(
        self, program: str, arguments: Sequence[str], *, stdin: bytes, environ: Mapping[str, str], timeout: float
    ) -> HelperOutput:
        if "hangs" in json.loads(stdin)["image"]:
            self.calls.append({"request": json.loads(stdin)})
            await asyncio.sleep(3600)
        return await super().run(program, arguments, stdin=stdin, environ=environ, timeout=timeout)


def test_an_admission_waits_for_the_end_of_a_hanging_plugin() -> None:
    """Otherwise its lookup is cancelled first, and nobody learns that the plugin hangs."""
    ended = PROVIDER_QUEUE_TIMEOUT + PROVIDER_TIMEOUT + credential_plugins._KILL_WAIT
    assert ended < resolver.LOOKUP_TIMEOUT


@pytest.mark.req("RG-086")
@pytest.mark.parametrize(
    ("seconds", "runs"), [(PROVIDER_TIMEOUT, 1), (PROVIDER_TIMEOUT - 1, 3)], ids=["had", "had not"]
)
async def test_a_plugin_rests_whose_run_was_cancelled_after_its_time(seconds: float, runs: int) -> None:
    """As by a lookup that ended for other reasons; one that is cancelled early proves nothing."""
    clock = HandClock()
    plugins = HangingPlugins(cloud=answer(**{"*.cloud.example": "u"}))
    credentials = store(plugins, clock=clock)
    for number in range(3):
        lookup = asyncio.create_task(credentials.candidates(*asked(f"hangs{number}.cloud.example/x")))
        await asyncio.sleep(0.01)
        clock.advance(seconds if not lookup.done() else 0)
        lookup.cancel()
        await asyncio.wait([lookup])
    assert len(plugins.calls) == runs
    warnings = credentials.warnings(asked("hangs0.cloud.example/x")[1])
    assert [each.message for each in warnings] == ["credential provider cloud did not answer within 15 s"][: runs == 1]


@pytest.mark.req("RG-086", "PL-851")
async def test_a_plugin_that_hangs_rests_for_all_images_of_its_tenant_and_of_no_other() -> None:
    """Authors of pods choose the hosts: with a rest for each, one tenant would hang at one host after another."""
    clock = HandClock()
    plugins = Plugins(cloud=HelperTimeout("cloud did not answer within 15 s"))
    credentials = store(plugins, clock=clock)
    for number in range(5):
        assert (await credentials.of("a").candidates(*asked(f"r{number}.cloud.example/x"))) == [ANONYMOUS]
        (warning,) = credentials.of("a").warnings(asked(f"r{number}.cloud.example/x")[1])
        assert "did not answer within 15 s" in warning.message
    assert len(plugins.calls) == 1
    plugins.answers["cloud"] = answer(**{"*.cloud.example": "u"})
    assert len(await credentials.of("b").candidates(*asked("other.cloud.example/x"))) == 2
    clock.advance(FAILURE_REST)
    assert len(await credentials.of("a").candidates(*asked("r1.cloud.example/x"))) == 2
    assert credentials.of("a").warnings(asked("r0.cloud.example/x")[1]) == ()


@pytest.mark.req("PL-851")
async def test_nobody_waits_long_for_a_plugin_that_hangs_for_many_tenants(monkeypatch: pytest.MonkeyPatch) -> None:
    """The image goes on without its credentials and says why; nothing rests for that."""
    monkeypatch.setattr(credential_plugins, "PROVIDER_QUEUE_TIMEOUT", 0.05)
    plugins = HangingPlugins(cloud=answer(**{"*.cloud.example": "u"}))
    credentials = store(plugins)
    hanging = [
        asyncio.create_task(credentials.of(f"evil{number}").candidates(*asked("hangs.cloud.example/x")))
        for number in range(12)
    ]
    await asyncio.sleep(0)
    modest = credentials.of("modest")
    reference, source = asked("r.cloud.example/x")
    async with asyncio.timeout(5):
        assert await modest.candidates(reference, source) == [ANONYMOUS]
    (warning,) = modest.warnings(source)
    assert warning.message == "credential provider cloud is busy with other images; a later attempt asks it again"
    assert modest.cached_candidates(reference, source) is None
    for each in hanging:
        each.cancel()
    await asyncio.wait(hanging)
    assert len(await modest.candidates(reference, source)) == 2
    assert modest.warnings(source) == ()


@pytest.mark.req("PL-851")
async def test_a_tenant_that_a_plugin_hung_for_asks_it_after_the_others() -> None:
    clock = HandClock()
    plugins = Plugins(cloud=HelperTimeout("cloud did not answer within 15 s"))
    credentials = store(plugins, clock=clock)
    evil = [f"evil{number}" for number in range(8)]
    for tenant in evil:
        await credentials.of(tenant).candidates(*asked(f"{tenant}.cloud.example/x"))
    clock.advance(FAILURE_REST)
    plugins.calls.clear()
    names = [*evil, "modest"]
    await asyncio.gather(*(credentials.of(name).candidates(*asked(f"{name}.cloud.example/x")) for name in names))
    assert plugins.images.index("modest.cloud.example/x") <= 4, "the four that began at once, then it"


@pytest.mark.req("RG-087", "PL-851")
async def test_a_failure_is_told_to_the_tenant_alone_whose_image_met_it() -> None:
    """And to that one only until the plugin has answered."""
    clock = HandClock()
    plugins = Plugins(cloud=HelperOutput(1, b""))
    credentials = store(plugins, clock=clock)
    reference, source = asked("r.cloud.example/x")
    await credentials.of("a").candidates(reference, source)
    assert len(credentials.of("a").warnings(source)) == 1
    assert credentials.of("b").warnings(source) == ()
    plugins.answers["cloud"] = answer("Registry", "1m", **{"*.cloud.example": "u"})
    await credentials.of("b").candidates(reference, source)
    assert credentials.of("b").warnings(source) == credentials.of("a").warnings(source) == ()
    plugins.answers["cloud"] = answer(duration="0s")
    clock.advance(61)
    await credentials.of("a").candidates(reference, source)
    assert credentials.of("a").warnings(source) == (), "an answer without keys is one"


@pytest.mark.req("RG-086")
async def test_what_is_kept_of_answers_counts_what_each_key_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short keys take fifty times the bytes that are printed for them."""
    monkeypatch.setattr(credential_plugins, "MAX_CACHED_BYTES", limit := 512 * 1024)
    plugins = Plugins(cloud=answer("Image", "12h", **{f"r{at}": "" for at in range(100)}))
    credentials = store(plugins)
    gc.collect()
    tracemalloc.start()
    try:
        for at in range(40):
            await credentials.candidates(*asked(f"r.cloud.example/x{at}"))
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert limit / 4 < taken < limit * 1.2


@pytest.mark.req("RG-086", "PL-851")
@pytest.mark.parametrize("keys", [1, 100], ids=["many answers", "large answers"])
async def test_no_tenant_evicts_the_answers_of_another(keys: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who names images chooses how many hosts there are."""
    monkeypatch.setattr(credential_plugins, "MAX_CACHED", 100)
    plugins = Plugins(cloud=answer("Registry", "12h", **{f"*.cloud.example/{at}": "u" * 40 for at in range(keys)}))
    monkeypatch.setattr(credential_plugins, "MAX_CACHED_BYTES", 4_000_000)
    credentials = store(plugins)
    await credentials.of("modest").candidates(*asked("r.cloud.example/x"))
    for number in range(150):
        await credentials.of("busy").candidates(*asked(f"h{number}.cloud.example/x"))
    assert credentials.of("modest").cached_candidates(*asked("r.cloud.example/x")) is not None
    assert credentials.of("busy").cached_candidates(*asked("h0.cloud.example/x")) is None
    assert credentials.of("busy").cached_candidates(*asked("h149.cloud.example/x")) is not None
    plugins.answers["cloud"] = HelperOutput(1, b"")
    await credentials.of("modest").candidates(*asked("fails.cloud.example/x"))
    for number in range(150):
        await credentials.of("busy").candidates(*asked(f"f{number}.cloud.example/x"))
    assert credentials.of("modest").cached_candidates(*asked("fails.cloud.example/x")) is not None
