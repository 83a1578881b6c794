"""Pull secrets as a kubelet uses them."""

import base64
import json
import time
from typing import Any

import pytest

from polyarch.oci.auth.credential_stores import ChainedCredentials, KeyringCredentials, NoCredentials
from polyarch.oci.auth.credentials import (
    ANONYMOUS,
    MAX_CANDIDATES,
    MAX_ENTRIES,
    MAX_PROBLEMS,
    Credential,
    Document,
    Keyring,
    keyring,
)
from polyarch.oci.pull_sources import Configuration, PullSource, sources
from polyarch.oci.reference import Reference, parse

MARKER = "s3cr3t-marker"


def auth(user: str, password: str = MARKER) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def secret(*keys: str, origin: str = "secret team/pull", **entries: Any) -> Document:
    return Document(origin, json.dumps({"auths": {**{key: auth(key) for key in keys}, **entries}}).encode())


def users(found: list[Credential]) -> list[str]:
    return [credential.username for credential in found]


def primary(image: str) -> tuple[Reference, PullSource]:
    reference = parse(image)
    return reference, sources(reference, Configuration())[0]


MATCHES = {
    "the host alone": ("r.example", "r.example/team/x", True),
    "with a scheme": ("https://r.example", "r.example/team/x", True),
    "with http and /v1/": ("http://r.example/v1/", "r.example/team/x", True),
    "with /v2/ and no scheme": ("r.example/v2/", "r.example/team/x", True),
    "a path prefix": ("r.example/team", "r.example/team/x", True),
    "a path prefix of text, not of components": ("r.example/te", "r.example/team/x", True),
    "the whole repository": ("r.example/team/x", "r.example/team/x", True),
    "a longer path": ("r.example/team/x/y", "r.example/team/x", False),
    "/v2/ with a path behind it": ("https://r.example/v2/team", "r.example/team/x", True),
    "another path": ("r.example/other", "r.example/team/x", False),
    "another host": ("other.example", "r.example/x", False),
    "a glob for one label": ("*.example", "r.example/x", True),
    "a glob does not span labels": ("*.example", "a.r.example/x", False),
    "fewer labels do not match": ("example", "r.example/x", False),
    "a glob in every label": ("*.*.example", "a.r.example/x", True),
    "a glob within a label": ("r*-west.example", "reg-west.example/x", True),
    "one character": ("r?.example", "r1.example/x", True),
    "a set of characters": ("r[0-3].example", "r1.example/x", True),
    "a negated set of characters": ("r[^0-3].example", "r1.example/x", False),
    "the same port": ("r.example:5000", "r.example:5000/x", True),
    "a port that the image lacks": ("r.example:443", "r.example/x", False),
    "a port that the key lacks": ("r.example", "r.example:443/x", False),
    "another port": ("r.example:5000", "r.example:5001/x", False),
    "a glob with a port": ("*.example:5000", "r.example:5000/x", True),
    "upper case in a key's host": ("R.Example", "r.example/x", True),
    "an address in brackets": ("[::1]:5000", "[::1]:5000/x", True),
    "docker.io": ("docker.io", "nginx", True),
    "index.docker.io as tools write it": ("https://index.docker.io/v1/", "nginx", True),
    "registry-1.docker.io": ("registry-1.docker.io", "docker.io/team/x", True),
    "a path on docker.io": ("docker.io/team", "team/x", True),
    "another path on docker.io": ("docker.io/team", "nginx", False),
    "user info in a key is not part of its host": ("https://user@r.example", "r.example/x", True),
    "an empty key": ("", "r.example/x", False),
    "a key that is only a scheme": ("https://", "r.example/x", False),
}


@pytest.mark.req("RG-085")
@pytest.mark.parametrize(("key", "image", "matches"), MATCHES.values(), ids=MATCHES.keys())
def test_a_key_matches_an_image_as_in_a_kubelet(key: str, image: str, matches: bool) -> None:
    assert bool(keyring([secret(key)], image)) is matches


@pytest.mark.req("RG-085")
def test_more_specific_keys_come_first_and_documents_keep_their_order_within_a_key() -> None:
    """Reverse order of keys, stable within a key, over all documents."""
    first = secret("r.example", "*.example", **{"r.example/team": auth("first")})
    second = secret(**{"https://r.example/team": auth("second"), "r.example/team/x": auth("most specific")})
    found = keyring([first, second], "r.example/team/x:1")
    assert users(found) == ["most specific", "first", "second", "r.example", "*.example"]


@pytest.mark.req("RG-085")
def test_a_legacy_document_has_its_entries_at_the_top() -> None:
    """Type kubernetes.io/dockercfg."""
    document = Document("secret team/old", json.dumps({"https://r.example": auth("old")}).encode(), legacy=True)
    assert users(keyring([document], "r.example/x")) == ["old"]


@pytest.mark.req("RG-082", "RG-085")
def test_every_kind_of_entry_works_in_a_cluster_secret() -> None:
    """RG-085 with RG-082: user and password, identity tokens and registry tokens."""
    document = secret(
        **{
            "r.example/a/b/c": {"username": "u", "password": "p"},
            "r.example/a/b": {"identitytoken": "i"},
            "r.example/a": {"registrytoken": "t"},
        }
    )
    found = keyring([document], "r.example/a/b/c")
    assert [(c.username, c.password, c.identity_token, c.registry_token) for c in found] == [
        ("u", "p", "", ""),
        ("", "", "i", ""),
        ("", "", "", "t"),
    ]


def test_a_document_may_be_given_decoded() -> None:
    assert users(keyring([Document("memory", {"auths": {"r.example": auth("u")}})], "r.example/x")) == ["u"]


MALFORMED = {
    "not JSON": (
        b'{"auths": ' + MARKER.encode(),
        "secret team/pull is not usable: it is not JSON at line 1, column 11",
    ),
    "broken in the third line": (b'{\n"auths":\n  }', "it is not JSON at line 3, column 3"),
    "cut off": (b'{"auths": {', "it is not JSON at line 1, column 12"),
    "not UTF-8": (b'{"auths": "\xff"}', "it is not UTF-8 at line 1, column 12"),
    "a list": (b"[]", "it is not a JSON object"),
    "auths is a list": (b'{"auths": []}', "'auths' is not an object"),
    "nested beyond measure": (b'{"auths":' + b"[" * 200_000, "nested too deeply"),
    "a number out of range": (b'{"auths": 1e999}', "out of range"),
    "an entry that is a text": (b'{"auths": {"r.example": "' + MARKER.encode() + b'"}}', "the entry is not an object"),
    "an auth that is a number": (b'{"auths": {"r.example": {"auth": 7}}}', "'auth' is not a string"),
    "an auth that is not base64": (
        b'{"auths": {"r.example": {"auth": "' + MARKER.encode() + b'!"}}}',
        "secret team/pull: the entry 'r.example' is ignored: 'auth' is not the base64 of user:password",
    ),
    "a token that cannot be in a header": (
        b'{"auths": {"r.example": {"registrytoken": "a\\r\\n' + MARKER.encode() + b'"}}}',
        "'registrytoken' has characters that a token cannot have",
    ),
    "a key of unreasonable length": (json.dumps({"auths": {"r" * 3000: auth("u")}}).encode(), "its key names no"),
}


@pytest.mark.req("PL-422", "RG-085", "RG-087")
@pytest.mark.parametrize(("body", "problem"), MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_document_is_named_and_the_others_still_count(body: bytes, problem: str) -> None:
    """Its content is in no message."""
    store = KeyringCredentials([Document("secret team/pull", body), secret("r.example")])
    reference, source = primary("r.example/x")
    assert users(store.cached_candidates(reference, source)) == ["r.example", ""]
    assert len(store.problems) == 1
    assert problem in store.problems[0]
    assert MARKER not in repr(store.problems) + repr(store.warnings(source))
    assert store.warnings(source)[0].code == "credential-document"


def test_an_absent_or_empty_auths_is_no_problem() -> None:
    store = KeyringCredentials(
        [Document("a", b"{}"), Document("b", b'{"auths": null}'), Document("c", b'{"auths": {}}')]
    )
    assert store.problems == ()


@pytest.mark.req("RG-002", "RG-085")
async def test_anonymous_is_last_and_the_same_secret_is_tried_once() -> None:
    """Trying a refused secret again under another key would only cost requests."""
    same = {"r.example/team": auth("u"), "r.example": auth("u")}
    reference, source = primary("r.example/team/x")
    found = await KeyringCredentials([secret(**same), secret("r.example")]).candidates(reference, source)
    assert users(found) == ["u", "r.example", ""]
    assert found[-1] is ANONYMOUS
    assert found[0].key == "r.example/team"


async def test_the_returned_list_is_the_callers_own() -> None:
    """A caller that edits its list must not change what the next one gets."""
    store = KeyringCredentials([secret("r.example")])
    reference, source = primary("r.example/x")
    (await store.candidates(reference, source)).clear()
    assert len(await store.candidates(reference, source)) == 2


@pytest.mark.req("RG-084")
async def test_a_mirror_is_looked_up_by_its_own_name() -> None:
    """The primary's credential is never shown to a mirror, nor the reverse."""
    store = KeyringCredentials([secret("r.example", "mirror.example/cache")])
    reference, source = primary("r.example/team/x")
    at_mirror = primary("mirror.example/cache/x")[1]
    assert users(await store.candidates(reference, source)) == ["r.example", ""]
    assert users(await store.candidates(reference, at_mirror)) == ["mirror.example/cache", ""]


@pytest.mark.req("RG-085")
async def test_docker_hub_is_found_under_the_host_that_requests_go_to() -> None:
    """The source's host is registry-1.docker.io."""
    store = KeyringCredentials([secret(**{"https://index.docker.io/v1/": auth("hub")})])
    reference, source = primary("nginx")
    assert source.host == "registry-1.docker.io"
    assert users(await store.candidates(reference, source)) == ["hub", ""]


@pytest.mark.req("PL-420")
async def test_a_chain_gives_each_store_its_turn_and_anonymous_once() -> None:
    """Pod secrets, then the global one, then anonymous."""
    chain = ChainedCredentials(
        [KeyringCredentials([secret("r.example")]), NoCredentials(), KeyringCredentials([secret("*.example", "{")])]
    )
    reference, source = primary("r.example/x")
    assert users(await chain.candidates(reference, source)) == ["r.example", "*.example", ""]
    assert chain.cached_candidates(reference, source) == await chain.candidates(reference, source)


async def test_a_chain_has_no_answer_from_memory_unless_every_store_has_one() -> None:
    class Unasked(NoCredentials):
        def cached_candidates(self, reference: Reference, source: PullSource) -> list[Credential] | None:
            return None

    reference, source = primary("r.example/x")
    assert ChainedCredentials([NoCredentials(), Unasked()]).cached_candidates(reference, source) is None


def test_a_chain_passes_on_the_warnings_of_its_stores() -> None:
    chain = ChainedCredentials([KeyringCredentials([Document("secret a/b", b"[]")]), NoCredentials()])
    assert [warning.message for warning in chain.warnings(primary("r.example/x")[1])] == [
        "secret a/b is not usable: it is not a JSON object"
    ]


@pytest.mark.req("RG-085")
def test_hostile_globs_take_no_time() -> None:
    """Keys are written by whoever may create a secret."""
    key = "*a" * 500 + "b.example"
    assert keyring([secret(key, "[" * 300 + ".example", "[z-a]*.example")], "a" * 60 + ".example/x") == []


HOSTILE = {
    "entries that are none": {f"{number:x}": 0 for number in range(100_000)},
    "empty entries": {f"{number:x}": {} for number in range(80_000)},
    "entries that are good": {f"r.example/{number}": {"auth": "dTpw"} for number in range(20_000)},
    "keys of nothing but globs": {
        ".".join(f"*{number}{label}" for label in range(100)): {"auth": "dTpw"} for number in range(1000)
    },
    "globs that all match": {".".join(["*a" + "*" * number] * 60): {"auth": "dTpw"} for number in range(100)},
}


@pytest.mark.req("PL-854", "RG-085")
@pytest.mark.parametrize("entries", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_secret_of_a_megabyte_takes_no_time(entries: dict[str, Any]) -> None:
    """The event loop of a webhook that serves every namespace waits for this."""
    body = json.dumps({"auths": entries}, separators=(",", ":")).encode()
    assert len(body) < 1024 * 1024
    began = time.process_time()
    found = Keyring([Document("secret team/huge", body), secret("r.example")])
    found.lookup(".".join(["a" * 3] * 60), "team/x")
    assert time.process_time() - began < 0.5
    assert len(found.problems) <= MAX_PROBLEMS + 1


def test_entries_beyond_the_bound_are_told_of_and_the_first_ones_count() -> None:
    entries = {f"r.example/{number:05}": auth(f"user-{number}") for number in range(MAX_ENTRIES + 500)}
    found = Keyring([secret(**entries), secret("r.example")])
    assert users(found.lookup("r.example", "00007")) == ["user-7"]
    assert found.lookup("r.example", f"{MAX_ENTRIES:05}") == []
    assert [problem for problem in found.problems if "501 more" in problem or "500 more" in problem]


@pytest.mark.req("PL-854")
def test_of_very_many_keys_for_an_image_the_most_specific_count() -> None:
    """Each credential is a turn at the registry."""
    repository = "a" * 150
    found = Keyring([secret(*(f"r.example/{repository[:length]}" for length in range(150)))])
    candidates = found.lookup("r.example", repository)
    assert len(candidates) == MAX_CANDIDATES
    assert candidates[0].key == f"r.example/{repository[:149]}"


def test_documents_beyond_the_bound_are_told_of() -> None:
    long = {f"r.example/{number}": auth("u" * 5000) for number in range(100)}
    found = Keyring([secret(origin="secret a/1", **long), secret(origin="secret a/2", **long), secret("r.example")])
    assert [problem.partition(" is not")[0] for problem in found.problems] == ["secret a/2"]
    assert users(found.lookup("r.example", "none")) == ["r.example"]


def test_problems_beyond_the_bound_are_counted() -> None:
    found = Keyring([secret(**{f"r.example/{number}": 0 for number in range(100)})])
    assert len(found.problems) == MAX_PROBLEMS + 1
    assert found.problems[-1] == f"{100 - MAX_PROBLEMS} more problems with pull secrets are not listed"


@pytest.mark.req("RG-087")
def test_documents_show_no_content() -> None:
    document = secret("r.example")
    assert repr(document) == "Document(origin='secret team/pull', legacy=False)"
    assert MARKER not in repr(document) + repr(document.__rich_repr__())
