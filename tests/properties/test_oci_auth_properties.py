"""Challenges, credentials, addresses and redirects on any input."""

import ipaddress
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from yarl import URL

from polyarch.oci.auth.challenges import Challenge, parse_challenges
from polyarch.oci.auth.credentials import Credential, CredentialWarning, Document, Keyring, read_entry
from polyarch.oci.transport.addresses import (
    NAMED,
    AddressClass,
    AddressPolicy,
    Redirect,
    RedirectRequest,
    RegistryServer,
    UrlRejected,
    check_realm,
    check_redirect,
    classify,
    embedded,
    literal,
)

TOKEN = st.text("abcXYZ019-._~!#", min_size=1, max_size=8)
NAME = st.text("abcxyz-", min_size=1, max_size=6)
CHALLENGE = st.builds(
    Challenge, st.text("abcxyz019-", min_size=1, max_size=8), st.dictionaries(NAME, st.text(max_size=12), max_size=4)
)
RELAXED = settings(deadline=None)  # the machine may be busy
HEADERISH = st.text(' \t,="\\abB68/+~\x00é', max_size=60)


@st.composite
def written(draw: st.DrawFn, challenge: Challenge) -> str:
    """One of the many spellings of a challenge."""
    space = st.sampled_from(["", " ", "\t", "  "])
    parameters = []
    for name, value in challenge.parameters.items():
        quoted = "".join(
            draw(st.sampled_from(["\\", ""])) + each if each not in '"\\' else "\\" + each for each in value
        )
        parameters.append(f'{name.upper() if draw(st.booleans()) else name}{draw(space)}={draw(space)}"{quoted}"')
    comma = st.sampled_from([",", ", ", " , ", ",,", "\t,\t"])
    text = ""
    for place, parameter in enumerate(parameters):
        text += (draw(comma) if place else " ") + parameter
    return challenge.scheme + text


@pytest.mark.req("RG-070", "RG-163")
@given(st.lists(st.one_of(st.text(max_size=80), HEADERISH), max_size=3))
@RELAXED
@example(['Bearer realm="\\'])
@example(["a=" * 30])
def test_no_text_makes_the_parser_fail(values: list[str]) -> None:
    for challenge in parse_challenges(values):
        assert challenge.scheme
        assert challenge.scheme == challenge.scheme.lower()
        assert all(name == name.lower() for name in challenge.parameters)


@pytest.mark.req("RG-070")
@given(st.lists(CHALLENGE, max_size=4), st.data())
@RELAXED
def test_written_challenges_are_read_back(challenges: list[Challenge], data: st.DataObject) -> None:
    """Quoting, spaces and commas as the grammar allows them."""
    texts = [data.draw(written(challenge)) for challenge in challenges]
    assert parse_challenges([", ".join(texts)]) == challenges
    assert parse_challenges(texts) == challenges


@pytest.mark.req("RG-070")
@given(
    st.lists(CHALLENGE, max_size=3),
    st.sampled_from(['Bearer realm="https://x', 'Bearer a=b c="d"', 'Bearer realm="x\\', "Bearer a=b, c=@", "@"]),
    st.data(),
)
@RELAXED
def test_a_broken_tail_costs_only_itself(challenges: list[Challenge], tail: str, data: st.DataObject) -> None:
    texts = [data.draw(written(challenge)) for challenge in challenges]
    assert parse_challenges([", ".join([*texts, tail])]) == challenges


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
MEMBERS = st.sampled_from(["auth", "username", "password", "identitytoken", "registrytoken", "email"])
ENTRY = st.one_of(JSON, st.dictionaries(MEMBERS, st.one_of(st.text(max_size=12), JSON), max_size=5))
KEY = st.one_of(st.text(max_size=20), st.text("r.example*?[]:/@hps12v-", max_size=24))


@pytest.mark.req("RG-082")
@given(ENTRY, KEY)
@RELAXED
def test_no_entry_makes_the_reader_fail(entry: Any, key: str) -> None:
    """A credential that can be sent, a warning, or nothing."""
    found = read_entry(entry, source="file", key=key)
    assert found is None or isinstance(found, Credential | CredentialWarning)
    if isinstance(found, Credential):
        assert not found.is_anonymous
        assert found.basic is None or found.basic.isascii()
        assert found.fingerprint(b"k")


@pytest.mark.req("RG-085")
@given(
    st.one_of(
        st.binary(max_size=40), st.dictionaries(KEY, ENTRY, max_size=4).map(lambda x: json.dumps({"auths": x}).encode())
    )
)
@RELAXED
@example(b"[" * 100_000)
@example(b'{"auths": {"\\ud800": {}}}')
def test_no_secret_document_makes_the_keyring_fail(body: bytes) -> None:
    for legacy in (False, True):
        ring = Keyring([Document("secret a/b", body, legacy)])
        ring.lookup("r.example:5000", "team/x")
        assert all(problem.startswith("secret a/b") for problem in ring.problems)


LABEL = st.text("ab*", min_size=1, max_size=3)


def as_kubelet(key: str, image: str) -> bool:
    """URLsMatch of the kubelet's credentialprovider, without ports: filepath.Match with ``*`` only, then a prefix."""
    key_host, _, key_path = key.partition("/")
    host, _, path = image.partition("/")
    globs, labels = key_host.split("."), host.split(".")
    if len(globs) != len(labels) or not path.startswith(key_path):
        return False
    return all(glob_matches(glob, label) for glob, label in zip(globs, labels, strict=True))


def glob_matches(glob: str, label: str) -> bool:
    if not glob:
        return not label
    if glob[0] == "*":
        return any(glob_matches(glob[1:], label[cut:]) for cut in range(len(label) + 1))
    return label[:1] == glob[0] and glob_matches(glob[1:], label[1:])


@pytest.mark.req("RG-085")
@given(
    st.lists(LABEL, min_size=1, max_size=3).map(".".join),
    st.text("ab/", max_size=4),
    st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3).map(".".join),
    st.lists(st.text("ab", min_size=1, max_size=2), min_size=1, max_size=3).map("/".join),
)
@RELAXED
def test_keys_match_as_in_a_kubelet(glob: str, prefix: str, host: str, repository: str) -> None:
    key = f"{glob}/{prefix.lstrip('/')}"
    ring = Keyring([Document("s", {"auths": {key: {"username": "u"}}})])
    assert bool(ring.lookup(host, repository)) is as_kubelet(key, f"{host}/{repository}")


@pytest.mark.req("RG-102")
@given(st.ip_addresses())
@RELAXED
def test_every_address_has_a_class(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    assert classify(address) in AddressClass
    assert classify(str(address)) is classify(address)


@pytest.mark.req("RG-102")
@given(st.ip_addresses(v=4))
@RELAXED
def test_wrapping_an_address_does_not_change_its_class(address: ipaddress.IPv4Address) -> None:
    """Mapped, NAT64 and 6to4 forms; and every way to write the number."""
    expected = classify(address)
    for prefix in ("::ffff:", "64:ff9b::"):
        wrapped = ipaddress.IPv6Address(f"{prefix}{address}")
        assert classify(wrapped) is expected
        assert embedded(wrapped) == (address,)
    assert classify(ipaddress.IPv6Address(b"\x20\x02" + address.packed + b"\0" * 10)) is expected
    for text in (str(address), str(int(address)), hex(int(address)), f"{address}."):
        assert literal(text) == address


REGISTRY = RegistryServer("https://r.example/v2/", AddressClass.PUBLIC)
POLICY = AddressPolicy.of("cli")
URLISH = st.one_of(
    st.text(max_size=40),
    st.builds(
        "{}://{}{}".format,
        st.sampled_from(["https", "HTTPS", "http", "ftp", ""]),
        st.text("r.example@:\\/#?[]%10-_é \t", max_size=20),
        st.text("/?#\\%a", max_size=6),
    ),
)


@pytest.mark.req("RG-104", "RG-105")
@given(URLISH)
@settings(RELAXED, max_examples=300)
@example("https://r.example\\@10.0.0.1/")
@example("https://r.example#@10.0.0.1/")
@example("//10.0.0.1")
def test_an_accepted_url_has_one_reading(text: str) -> None:
    """What was judged is what the HTTP library connects to."""
    redirect = check_redirect(text, RedirectRequest("https://r.example/v2/x"), REGISTRY, POLICY)
    if isinstance(redirect, Redirect):
        assert URL(redirect.url, encoded=True).scheme == "https"
        host = URL(redirect.url, encoded=True).raw_host or ""
        port = URL(redirect.url, encoded=True).port
        assert POLICY.check_host(host, provenance=redirect.provenance) is None
        own = (host.lower().rstrip("."), port) == ("r.example", 443)
        assert redirect.keep_authorization is own
        assert (redirect.provenance == NAMED) is own
    else:
        assert redirect.code in ("refused-redirect", "refused-address")
    realm = check_realm(text, REGISTRY, POLICY)
    assert isinstance(realm, UrlRejected) or URL(text, encoded=True).scheme.lower() == "https"
