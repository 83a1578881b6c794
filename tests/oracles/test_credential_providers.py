"""Credential plugins as the kubelet uses them: its own code, linked, on random configurations, answers and images.

Patterns are made of the parts that URLs, globs and image names have, right and wrong ones.
"""

import json
import random
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from polyarch.oci.auth.credential_plugins import (
    ImagePattern,
    InvalidProviderConfiguration,
    ProviderConfiguration,
    ProviderCredentials,
)
from polyarch.oci.pull_sources import Configuration, PullSource, sources
from polyarch.oci.reference import Reference, parse

PAIRS = 40_000
CONFIGURATIONS = 120
IMAGES = 12
LABELS = (
    *("a", "b", "ecr", "dkr", "x-y", "A", "*", "a*", "*b", "a*b*", "**", "[ab]", "[a", "a]", "a?", "\\a", "é", "%41"),
    *("%C3%A9", "%zz", "", " ", "a_b", "{a}", "a:b", "u@a", "http", "us-east-1", "amazonaws", "com", "io", "^"),
)
PATHS = (
    *("", "/", "/team", "/team/", "/team/app", "/te", "/v1/", "/v2/team", "//team", "/%74eam", "/team%2Fapp", "/a b"),
    *("/%", "/*", "/team?x", "/team#f", "/team#%", "?", "#", "/t\x01", "/TEAM"),
)
PORTS = ("", "", "", "", ":5000", ":", ":443", ":x", ":*", ":5000:5000")
HOSTS = ("a", "a.b", "a.b.io", "ecr.a.com", "b.dkr.ecr.us-east-1.amazonaws.com", "[::1]", "[2001:db8::1]", "10.0.0.1")
REGISTRIES = ("a.b.io", "x-y.io", "ecr.a.com:5000", "b.dkr.ecr.us-east-1.amazonaws.com", "docker.io", "[::1]:5000")


def pattern(random: random.Random) -> str:
    host = random.choice(
        (*HOSTS, ".".join(random.choices(LABELS, k=random.randint(1, 5))), "*.dkr.ecr.*.amazonaws.com", "[::1", "[a]")
    )
    scheme = random.choice(("", "", "", "", "", "https://", "http://", "HTTPS://", "//"))
    return scheme + host + random.choice(PORTS) + random.choice(PATHS)


def target(random: random.Random) -> str:
    """An image as a kubelet names it."""
    return random.choice((*REGISTRIES, *HOSTS[1:])) + random.choice(("/team/app", "/team", "/x", "/team/app/more"))


@pytest.fixture
def kubelet(peer: Callable[[str], str]) -> str:
    return peer("credential-providers")


def asked(kubelet: str, *arguments: str, lines: Sequence[str]) -> subprocess.CompletedProcess[str]:
    text = "".join(f"{line}\n" for line in lines)
    return subprocess.run([kubelet, *arguments], input=text, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.req("RG-086")
def test_patterns_match_what_a_kubelet_matches(kubelet: str) -> None:
    chance = random.Random(4412)
    pairs = [(pattern(chance), target(chance)) for _ in range(PAIRS)]
    pairs += [(text.replace(".b.", ".*."), text) for _, text in pairs[:2000]]
    said = asked(kubelet, "match", lines=[json.dumps(pair) for pair in pairs])
    assert said.returncode == 0, said.stderr
    theirs = [json.loads(line) for line in said.stdout.splitlines()]
    assert len(theirs) == len(pairs)
    ours = [matches(*pair) for pair in pairs]
    assert [(*pair, one, other) for pair, one, other in zip(pairs, theirs, ours, strict=True) if one != other] == []
    assert min(theirs.count(each) for each in (True, False, None)) > PAIRS // 100


def matches(text: str, image: str) -> bool | None:
    """Whether the pattern matches; None: there is no such pattern."""
    found = ImagePattern.of(text)
    named = ImagePattern.of(image)
    if found is None or named is None:
        return None
    host, _, repository = image.partition("/")
    return found.matches(host, repository)


KEYS = ("Image", "Registry", "Global")
VERSIONS = ("v1", "v1", "v1", "v1beta1", "v1alpha1", "v2", "")


def configuration(random: random.Random) -> dict[str, Any]:
    """Of one to three plugins, sometimes with a mistake."""
    providers = []
    for number in range(random.randint(1, 3)):
        provider: dict[str, Any] = {
            "name": f"plugin-{number}",
            "matchImages": random.choices((*REGISTRIES, "*.io", "*.*.io", "*.a.com:5000", "a.b.io/team"), k=6),
            "defaultCacheDuration": random.choice(("0s", "1h", "10m", "1h30m")),
            "apiVersion": f"credentialprovider.kubelet.k8s.io/{random.choice(VERSIONS[:5])}",
            "args": random.choice((None, [], ["get-credentials"])),
        }
        if random.random() < 0.1:
            name, value = random.choice(
                (
                    ("name", ".."), ("name", "a/b"), ("name", "a b"), ("matchImages", []), ("matchImages", ["a b"]),
                    ("defaultCacheDuration", "-1s"), ("defaultCacheDuration", "soon"), ("defaultCacheDuration", None),
                    ("apiVersion", ""), ("apiVersion", "credentialprovider.kubelet.k8s.io/v2"), ("env", None),
                    ("tokenAttributes", {"serviceAccountTokenAudience": "a", "cacheType": "Token"}),
                    ("tokenAttributes", {"serviceAccountTokenAudience": "a", "requireServiceAccount": True}),
                    ("tokenAttributes", {"cacheType": "Token", "requireServiceAccount": True}),
                )
            )  # fmt: skip
            provider[name] = value
        providers.append(provider)
    if random.random() < 0.05:
        providers.append(providers[0])
    version = random.choice(("v1", "v1", "v1", "v1beta1", "v1alpha1"))
    return {
        "apiVersion": f"kubelet.config.k8s.io/{version}",
        "kind": random.choice(("CredentialProviderConfig",) * 19 + ("KubeletConfiguration",)),
        "providers": providers if random.random() < 0.97 else [],
    }


def answer(random: random.Random, number: int) -> dict[str, Any]:
    keys = random.choices(
        (*REGISTRIES, "*.io", "*.*.io", "a.b.io/team", "a.b.io/team/app", "https://a.b.io/v1/", "http://a.b.io/v2/team",
         "index.docker.io", "https://index.docker.io/v1/", "docker.io/library", "a b", "%zz", "[ab].b.io", "*"),
        k=random.randint(0, 12),
    )  # fmt: skip
    # Of two keys of one place a kubelet takes either first, by chance.
    keys = list({key.rpartition("//")[2].replace("/v1/", "").replace("/v2", ""): key for key in keys}.values())
    return {
        "kind": "CredentialProviderResponse",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": random.choice(KEYS),
        "auth": {key: {"username": f"{number} {key}", "password": "p"} for key in keys} or None,
    } | random.choice(({}, {"cacheDuration": "0s"}, {"cacheDuration": "5m"}))


def broken(random: random.Random, given: Mapping[str, Any]) -> str:
    """An answer that is none, or one that is."""
    change: Mapping[str, Any] = random.choice(
        (*({},) * 20, {"kind": "Pod"}, {"cacheKeyType": "Node"}, {"apiVersion": "v1"}, {"auth": []},
         {"cacheDuration": "soon"}, {"apiVersion": "credentialprovider.kubelet.k8s.io/v1beta1"})
    )  # fmt: skip
    return random.choice((json.dumps({**given, **change}),) * 30 + ("", "{", "null", "[]"))


@pytest.mark.req("RG-086")
async def test_a_configuration_gives_the_credentials_that_it_gives_a_kubelet(kubelet: str, tmp_path: Path) -> None:
    """Which configurations are refused, which plugins run, how answers are read, which credentials in which order."""
    chance = random.Random(86)
    refused = found = 0
    for case in range(CONFIGURATIONS):
        folder = tmp_path / str(case)
        folder.mkdir()
        data = configuration(chance)
        (folder / "config.json").write_text(json.dumps(data))
        for number in range(3):
            text = broken(chance, answer(chance, number))
            (folder / f"plugin-{number}.json").write_text(text)
            plugin = folder / f"plugin-{number}"
            plugin.write_text(
                f'#!/bin/sh\ncat "{folder}/plugin-{number}.json"\nexit {chance.choice((0,) * 15 + (1,))}\n'
            )
            plugin.chmod(0o755)
        images = [
            f"{chance.choice(REGISTRIES)}/{chance.choice(('team/app', 'team/x', 'x/y', 'library/x'))}"
            for _ in range(IMAGES)
        ]
        said = asked(kubelet, "lookup", str(folder / "config.json"), str(folder), lines=images)
        assert said.returncode in (0, 3), said.stderr
        ours = read(data, str(folder))
        assert (ours is None) == (said.returncode == 3), (data, said.stderr)
        if ours is None:
            refused += 1
            continue
        theirs = [[user for user, _ in json.loads(line)] for line in said.stdout.splitlines()]
        for image, expected in zip(images, theirs, strict=True):
            # Each by itself: after a failure plugins rest for a while, which a kubelet does not do.
            given = await ProviderCredentials(ours, environ={"PATH": "/usr/bin:/bin"}).candidates(*source_of(image))
            assert [each.username for each in given[:-1]] == list(dict.fromkeys(expected)), (case, image, data)
            found += bool(expected)
    assert refused > CONFIGURATIONS // 20
    assert found > CONFIGURATIONS


def read(data: object, directory: str) -> ProviderConfiguration | None:
    try:
        return ProviderConfiguration.from_mapping(data, directory=directory, origin="x")
    except InvalidProviderConfiguration:
        return None


def source_of(image: str) -> tuple[Reference, PullSource]:
    reference = parse(image)
    return reference, sources(reference, Configuration())[0]
