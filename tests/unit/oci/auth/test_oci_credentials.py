"""Credential files of container tools, and what a credential shows of itself."""

import base64
import copy
import io
import json
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.pretty import Pretty

from polyarch.oci.auth.credential_plugins import HelperFailure, HelperOutput
from polyarch.oci.auth.credential_stores import FileCredentials, InvalidCredentialFile, NoCredentials
from polyarch.oci.auth.credentials import ANONYMOUS, Credential, read_entry
from polyarch.oci.pull_sources import Configuration, PullSource, sources
from polyarch.oci.reference import Reference, parse

MARKER = "s3cr3t-marker"


class Helpers:
    """Programs by name with what they answer; remembers what was asked."""

    def __init__(self, answers: Mapping[str, HelperOutput | str] | None = None) -> None:
        self.answers = dict(answers or {})
        self.asked: list[tuple[str, str]] = []

    async def run(
        self, program: str, arguments: Sequence[str], *, stdin: bytes, environ: Mapping[str, str], timeout: float
    ) -> HelperOutput:
        assert list(arguments) == ["get"]
        self.asked.append((program, stdin.decode()))
        answer = self.answers.get(program.removeprefix("docker-credential-"), HelperOutput(1, b""))
        if isinstance(answer, str):
            raise HelperFailure(answer)
        return answer


def held(username: str, secret: str = MARKER) -> HelperOutput:
    return HelperOutput(0, json.dumps({"ServerURL": "x", "Username": username, "Secret": secret}).encode())


def auth(user: str, password: str = MARKER) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


def write(path: Path, content: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def asked(image: str) -> tuple[Reference, PullSource]:
    reference = parse(image)
    return reference, sources(reference, Configuration())[0]


async def user_for(store: FileCredentials, image: str) -> str:
    found = await store.candidates(*asked(image))
    assert found[-1] is ANONYMOUS
    assert len(found) <= 2
    return found[0].username or found[0].identity_token or found[0].registry_token


def in_one_file(tmp_path: Path, content: object, helpers: Helpers | None = None) -> FileCredentials:
    return FileCredentials.load(write(tmp_path / "auth.json", content), environ={}, helper=helpers or Helpers())


# --- which file


def everywhere(home: Path) -> dict[str, str]:
    """An environment in which every place has an entry for r.example, each with a user named after it."""
    write(home / "run/containers/auth.json", {"auths": {"r.example": auth("runtime")}})
    write(home / "config/containers/auth.json", {"auths": {"r.example": auth("config")}})
    write(home / "docker/config.json", {"auths": {"r.example": auth("docker")}})
    write(home / ".dockercfg", {"https://r.example": auth("dockercfg")})
    return {
        "HOME": str(home),
        "DOCKER_AUTH_CONFIG": json.dumps({"auths": {"r.example": auth("inline")}}),
        "XDG_RUNTIME_DIR": str(home / "run"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "DOCKER_CONFIG": str(home / "docker"),
    }


@pytest.mark.req("RG-080")
async def test_the_first_place_with_an_entry_wins(tmp_path: Path) -> None:
    """Inline, runtime directory, configuration, Docker, .dockercfg."""
    environ = everywhere(tmp_path)
    winners = []
    for gone in (None, "DOCKER_AUTH_CONFIG", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DOCKER_CONFIG"):
        if gone is not None:
            del environ[gone]
        winners.append(await user_for(FileCredentials.load(environ=environ, helper=Helpers()), "r.example/x"))
    assert winners == ["inline", "runtime", "config", "docker", "dockercfg"]


@pytest.mark.req("RG-080")
async def test_a_place_without_an_entry_for_the_image_leaves_it_to_the_next(tmp_path: Path) -> None:
    environ = everywhere(tmp_path)
    write(tmp_path / "docker/config.json", {"auths": {"other.example": auth("other")}})
    assert await user_for(FileCredentials.load(environ=environ, helper=Helpers()), "other.example/x") == "other"


@pytest.mark.req("RG-080")
async def test_the_defaults_are_below_the_home_directory(tmp_path: Path) -> None:
    write(tmp_path / ".config/containers/auth.json", {"auths": {"a.example": auth("podman")}})
    write(tmp_path / ".docker/config.json", {"auths": {"a.example": auth("no"), "b.example": auth("docker")}})
    store = FileCredentials.load(environ={"HOME": str(tmp_path)}, helper=Helpers())
    assert [await user_for(store, image) for image in ("a.example/x", "b.example/x")] == ["podman", "docker"]
    assert store.origins == (f"{tmp_path}/.config/containers/auth.json", f"{tmp_path}/.docker/config.json")


@pytest.mark.req("RG-080")
@pytest.mark.parametrize("way", ["option", "variable"])
async def test_a_named_file_is_the_only_one(tmp_path: Path, way: str) -> None:
    """--authfile or REGISTRY_AUTH_FILE."""
    environ = everywhere(tmp_path)
    named = write(tmp_path / "named.json", {"auths": {"other.example": auth("named")}})
    if way == "variable":
        environ["REGISTRY_AUTH_FILE"] = str(named)
    store = FileCredentials.load(named if way == "option" else None, environ=environ, helper=Helpers())
    assert await user_for(store, "other.example/x") == "named"
    assert await user_for(store, "r.example/x") == ""


@pytest.mark.req("RG-080")
async def test_the_option_goes_before_the_variable(tmp_path: Path) -> None:
    named = write(tmp_path / "named.json", {"auths": {"r.example": auth("option")}})
    environ = {"REGISTRY_AUTH_FILE": str(tmp_path / "missing.json")}
    assert await user_for(FileCredentials.load(named, environ=environ, helper=Helpers()), "r.example/x") == "option"


@pytest.mark.req("RG-080")
def test_a_named_file_that_is_missing_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidCredentialFile, match=r"missing\.json: there is no such file; name the file"):
        FileCredentials.load(tmp_path / "missing.json", environ={}, helper=Helpers())


UNUSABLE = {
    "not JSON": ('{\n  "auths": {"r.example": ' + MARKER + "}\n}", "it is not JSON at line 2, column 26"),
    "not an object": ("[]", "it is not a JSON object"),
    "empty": ("", "it is not JSON at line 1, column 1"),
    "auths of another shape": ('{"auths": "x"}', "'auths' is not an object"),
    "a helper that is no name": ('{"credHelpers": {"r.example": 1}}', "'credHelpers' has a value that is not a string"),
    "a store that is no name": ('{"credsStore": {}}', "'credsStore' is not a string"),
}


@pytest.mark.req("RG-080", "RG-087")
@pytest.mark.parametrize(
    ("place", "content", "problem"),
    [
        pytest.param(place, content, problem, id=f"{place}: {name}")
        for name, (content, problem) in UNUSABLE.items()
        for place in ("named", "default", "inline")
        if content or place != "inline"  # an empty variable is an unset one
    ],
)
def test_a_file_that_cannot_be_read_is_a_usage_error_with_its_name(
    tmp_path: Path, place: str, content: str, problem: str
) -> None:
    """Named or default; the position, never the content."""
    environ = {"HOME": str(tmp_path)}
    path = tmp_path / ".docker/config.json"
    if place == "inline":
        environ["DOCKER_AUTH_CONFIG"] = content
    else:
        write(path, content)
    with pytest.raises(InvalidCredentialFile) as caught:
        FileCredentials.load(path if place == "named" else None, environ=environ, helper=Helpers())
    assert str(caught.value).startswith(f"{'DOCKER_AUTH_CONFIG' if place == 'inline' else path}: {problem}")
    assert MARKER not in "".join(traceback.format_exception(caught.value))


def test_a_file_that_is_a_directory_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / ".docker/config.json").mkdir(parents=True)
    with pytest.raises(InvalidCredentialFile, match="cannot be read: Is a directory"):
        FileCredentials.load(environ={"HOME": str(tmp_path)}, helper=Helpers())


async def test_without_any_file_everything_is_asked_anonymously(tmp_path: Path) -> None:
    store = FileCredentials.load(environ={"HOME": str(tmp_path)}, helper=Helpers())
    assert await store.candidates(*asked("r.example/x")) == [ANONYMOUS]
    assert await FileCredentials.load(environ={}, helper=Helpers()).candidates(*asked("r.example/x")) == [ANONYMOUS]


# --- which entry in a file

ENTRIES = {
    "the full repository": (["host.example/a/b/c"], "host.example/a/b/c"),
    "a path above": (["host.example/a/b"], "host.example/a/b"),
    "the first component": (["host.example/a"], "host.example/a"),
    "the host": (["host.example"], "host.example"),
    "the longest path wins": (["host.example", "host.example/a", "host.example/a/b"], "host.example/a/b"),
    "a path matches whole components only": (["host.example/a/b/cc", "host.example/a/bb"], ""),
    "a key with a scheme": (["https://host.example"], "https://host.example"),
    "http, /v1/ and a slash": (["http://host.example/v1/"], "http://host.example/v1/"),
    "/v2/ without a scheme": (["host.example/v2/"], "host.example/v2/"),
    "a trailing slash": (["host.example/"], "host.example/"),
    "the plain host goes before its other spellings": (["https://host.example", "host.example"], "host.example"),
    "a path goes before a host with a scheme": (["https://host.example", "host.example/a"], "host.example/a"),
    "upper case in the host": (["HOST.example/a"], "HOST.example/a"),
    "a key with a tag": (["host.example/a/b/c:1"], ""),
    "a key with a tag and a scheme": (["https://host.example/a/b/c:1"], ""),
    "a key with a digest": (["host.example/a/b/c@sha256:" + "0" * 64], ""),
    "another port": (["host.example:5000"], ""),
    "no glob in files": (["*.example"], ""),
}


@pytest.mark.req("RG-081")
@pytest.mark.parametrize(("keys", "winner"), ENTRIES.values(), ids=ENTRIES.keys())
async def test_the_most_specific_entry_is_used(tmp_path: Path, keys: list[str], winner: str) -> None:
    content = {"auths": {key: {"username": key, "password": MARKER} for key in keys}}
    assert await user_for(in_one_file(tmp_path, content), "host.example/a/b/c:tag") == winner


@pytest.mark.req("RG-081")
@pytest.mark.parametrize(
    "key", ["docker.io", "index.docker.io", "registry-1.docker.io", "https://index.docker.io/v1/", "docker.io/library"]
)
async def test_the_names_of_docker_hub_are_one(tmp_path: Path, key: str) -> None:
    assert await user_for(in_one_file(tmp_path, {"auths": {key: auth("hub")}}), "nginx") == "hub"


@pytest.mark.req("RG-081")
async def test_a_file_of_the_oldest_format_has_host_keys_only(tmp_path: Path) -> None:
    """.dockercfg."""
    content = {"https://index.docker.io/v1/": auth("hub"), "r.example/team": auth("host")}
    store = FileCredentials.load(write(tmp_path / ".dockercfg", content), environ={}, helper=Helpers())
    assert [await user_for(store, image) for image in ("nginx", "r.example/other/x")] == ["hub", "host"]


# --- helpers


@pytest.mark.req("RG-081")
async def test_a_helper_for_the_registry_goes_before_entries_and_the_store_after_them(tmp_path: Path) -> None:
    helpers = Helpers({"one": held("from helper"), "all": held("from store")})
    content = {
        "credHelpers": {"helped.example": "one"},
        "auths": {"helped.example": auth("entry"), "entry.example": auth("entry")},
        "credsStore": "all",
    }
    store = in_one_file(tmp_path, content, helpers)
    images = ("helped.example/x", "entry.example/x", "other.example/x")
    assert [await user_for(store, image) for image in images] == ["from helper", "entry", "from store"]
    assert helpers.asked == [
        ("docker-credential-one", "helped.example"),
        ("docker-credential-all", "other.example"),
    ]


@pytest.mark.req("RG-082")
async def test_an_empty_entry_is_a_helpers_marker(tmp_path: Path) -> None:
    """{} means that the store has it."""
    helpers = Helpers({"all": held("from store")})
    store = in_one_file(tmp_path, {"auths": {"r.example": {}}, "credsStore": "all"}, helpers)
    assert await user_for(store, "r.example/x") == "from store"
    assert store.warnings(asked("r.example/x")[1]) == ()


@pytest.mark.req("RG-083")
@pytest.mark.parametrize("key", ["docker.io", "index.docker.io", "https://index.docker.io/v1/"])
async def test_a_helper_is_asked_for_docker_hub_by_its_old_address(tmp_path: Path, key: str) -> None:
    helpers = Helpers({"one": held("hub")})
    assert await user_for(in_one_file(tmp_path, {"credHelpers": {key: "one"}}, helpers), "nginx") == "hub"
    assert helpers.asked == [("docker-credential-one", "https://index.docker.io/v1/")]


@pytest.mark.req("RG-083")
async def test_a_helpers_token_is_an_identity_token(tmp_path: Path) -> None:
    store = in_one_file(tmp_path, {"credsStore": "s"}, Helpers({"s": held("<token>", "identity")}))
    found = (await store.candidates(*asked("r.example/x")))[0]
    assert (found.username, found.password, found.identity_token) == ("", "", "identity")
    assert (found.source, found.key) == ("credential helper s", "r.example")


@pytest.mark.req("RG-083")
async def test_a_helper_without_the_credential_is_no_warning(tmp_path: Path) -> None:
    """ "credentials not found" means none."""
    answer = HelperOutput(1, b"credentials not found in native keychain\n")
    store = in_one_file(tmp_path, {"credsStore": "s"}, Helpers({"s": answer}))
    assert await store.candidates(*asked("r.example/x")) == [ANONYMOUS]
    assert store.warnings(asked("r.example/x")[1]) == ()


FAILURES = {
    "it fails": (HelperOutput(3, MARKER.encode()), "docker-credential-s ended with status 3 for r.example"),
    "it prints no JSON": (HelperOutput(0, MARKER.encode()), "docker-credential-s did not answer with JSON"),
    "its JSON lacks the secret": (HelperOutput(0, b'{"Username": "u"}'), "did not answer with JSON"),
    "it takes too long": ("docker-credential-s did not answer within 10 s", "did not answer within 10 s"),
}


@pytest.mark.req("RG-083", "RG-087")
@pytest.mark.parametrize(("answer", "problem"), FAILURES.values(), ids=FAILURES.keys())
async def test_a_failing_helper_is_a_warning_and_the_next_place_is_tried(
    tmp_path: Path, answer: HelperOutput | str, problem: str
) -> None:
    """Naming helper and cause, never showing its output."""
    content = {"credHelpers": {"r.example": "s"}, "auths": {"r.example": auth("entry")}}
    helpers = Helpers({"s": answer})
    store = in_one_file(tmp_path, content, helpers)
    assert await user_for(store, "r.example/x") == "entry"
    assert await user_for(store, "r.example/y") == "entry"
    (warning,) = store.warnings(asked("r.example/x")[1])
    assert warning.code == "credential-helper"
    assert problem in warning.message
    assert MARKER not in warning.message
    assert len(helpers.asked) == 1, "a helper is asked once per host"


@pytest.mark.req("RG-083")
@pytest.mark.parametrize("name", ["../evil", "a b", "x;rm", "ä", "a/b"])
async def test_a_helper_with_a_strange_name_is_not_run(tmp_path: Path, name: str) -> None:
    helpers = Helpers()
    store = in_one_file(tmp_path, {"credsStore": name}, helpers)
    assert await store.candidates(*asked("r.example/x")) == [ANONYMOUS]
    assert "a name has letters, digits" in store.warnings(asked("r.example/x")[1])[0].message
    assert helpers.asked == []


@pytest.mark.req("RG-115")
async def test_memory_answers_for_entries_at_once_and_for_helpers_after_the_first_time(tmp_path: Path) -> None:
    """A look-up without I/O."""
    content = {"auths": {"entry.example": auth("entry")}, "credsStore": "s"}
    store = in_one_file(tmp_path, content, Helpers({"s": held("from store")}))
    entry, helped = asked("entry.example/x"), asked("helped.example/x")
    assert [c.username for c in store.cached_candidates(*entry) or []] == ["entry", ""]
    assert store.cached_candidates(*helped) is None
    await store.candidates(*helped)
    assert [c.username for c in store.cached_candidates(*helped) or []] == ["from store", ""]


# --- entries

READ = {
    "auth": ({"auth": base64.b64encode(b"u:p").decode()}, ("u", "p", "", "")),
    "auth split at the first colon": ({"auth": base64.b64encode(b"u:p:q").decode()}, ("u", "p:q", "", "")),
    "auth with trailing NULs": ({"auth": base64.b64encode(b"u:p\0\0").decode()}, ("u", "p", "", "")),
    "auth without padding": ({"auth": "dTpw"}, ("u", "p", "", "")),
    "auth without its padding": ({"auth": base64.b64encode(b"us:p").decode().rstrip("=")}, ("us", "p", "", "")),
    "auth broken over lines": ({"auth": "dT\r\npw \n"}, ("u", "p", "", "")),
    "auth with an empty password": ({"auth": base64.b64encode(b"u:").decode()}, ("u", "", "", "")),
    "auth goes before username and password": ({"auth": "dTpw", "username": "x", "password": "y"}, ("u", "p", "", "")),
    "username and password": ({"username": "u", "password": "p"}, ("u", "p", "", "")),
    "an identity token": ({"identitytoken": "i"}, ("", "", "i", "")),
    "an identity token with a password beside it": ({"auth": "dTpw", "identitytoken": "i"}, ("u", "p", "i", "")),
    "an identity token with a useless auth": ({"auth": "!!", "identitytoken": "i"}, ("", "", "i", "")),
    "a registry token goes before all": (
        {"auth": "dTpw", "identitytoken": "i", "registrytoken": "t"},
        ("", "", "", "t"),
    ),
    "other members do not matter": ({"auth": "dTpw", "email": 7}, ("u", "p", "", "")),
}


@pytest.mark.req("RG-082")
@pytest.mark.parametrize(("entry", "expected"), READ.values(), ids=READ.keys())
def test_an_entry_is_read(entry: dict[str, Any], expected: tuple[str, str, str, str]) -> None:
    found = read_entry(entry, source="f", key="k")
    assert isinstance(found, Credential)
    assert found.secret == expected
    assert (found.source, found.key) == ("f", "k")


@pytest.mark.req("RG-082")
@pytest.mark.parametrize("entry", [{}, None, {"auth": ""}, {"username": "", "password": ""}, {"auth": "Og=="}])
def test_an_empty_entry_is_none(entry: object) -> None:
    assert read_entry(entry, source="f", key="k") is None


@pytest.mark.req("RG-082")
@pytest.mark.parametrize("text", ["dXA=", "!!!!", "dTpw=x", "ü", "d"])
async def test_an_auth_that_does_not_decode_is_a_warning_with_file_and_key_only(tmp_path: Path, text: str) -> None:
    """No base64, or no colon in it; the next entry is tried."""
    content = {"auths": {"r.example/team": {"auth": text}, "r.example": auth("host")}}
    store = in_one_file(tmp_path, content)
    assert await user_for(store, "r.example/team/x") == "host"
    (warning,) = store.warnings(asked("r.example/team/x")[1])
    assert warning.message == (
        f"{tmp_path}/auth.json: the entry 'r.example/team' is ignored: 'auth' is not the base64 of user:password"
    )
    assert await user_for(store, "r.example/other") == "host"


@pytest.mark.req("RG-082")
def test_bytes_that_are_no_text_survive_on_their_way_to_the_registry() -> None:
    """A password need not be UTF-8."""
    raw = base64.b64encode(b"u:\xff\xfe").decode()
    found = read_entry({"auth": raw}, source="f", key="k")
    assert isinstance(found, Credential)
    assert found.basic == f"Basic {raw}"


# --- what a credential shows


@pytest.mark.req("RG-087")
def test_a_credential_shows_source_and_key_only() -> None:
    found = Credential(MARKER, MARKER, MARKER, MARKER, "file.json", "r.example")
    assert repr(found) == str(found) == "Credential(source='file.json', key='r.example')"
    assert found.origin == "file.json (r.example)"
    assert ANONYMOUS.origin == "anonymous"
    shown = io.StringIO()
    Console(file=shown, width=500).print(Pretty([found], expand_all=True))
    assert MARKER not in shown.getvalue()
    assert "r.example" in shown.getvalue()


@pytest.mark.req("RG-087")
def test_a_key_with_a_password_in_it_does_not_show_it() -> None:
    """https://user:password@host as a key."""
    found = read_entry({"username": "u"}, source="f", key=f"https://u:{MARKER}@r.example/v1/")
    assert isinstance(found, Credential)
    assert found.key == "https://r.example/v1/"


@pytest.mark.req("RG-087")
async def test_no_secret_is_in_any_warning_repr_or_error(tmp_path: Path) -> None:
    """A marker in every member of every kind of entry."""
    encoded = base64.b64encode(f"{MARKER}:{MARKER}".encode()).decode()
    entries: list[object] = [
        {"auth": encoded + "!"},
        {"auth": MARKER},
        {"auth": encoded, "identitytoken": f"{MARKER} x"},
        {"registrytoken": f"{MARKER}\r\nx"},
        {"username": {"x": MARKER}},
        {"password": [MARKER], "username": MARKER},
        MARKER,
        [MARKER],
    ]
    paths = ["r.example"] + ["r.example/" + "/".join("abcdefg"[:count]) for count in range(1, 8)]
    store = in_one_file(tmp_path, {"auths": dict(zip(paths, entries, strict=True))})
    place = asked("r.example/a/b/c/d/e/f/g")
    found = await store.candidates(*place)
    assert found == [ANONYMOUS]
    assert len(store.warnings(place[1])) == len(entries)
    shown = repr(store.warnings(place[1])) + repr(vars(store)) + repr([vars(file) for file in store._files])
    assert MARKER not in shown
    assert encoded not in shown


@pytest.mark.req("RG-110")
def test_fingerprints_tell_secrets_apart_and_nothing_else() -> None:
    """Keyed; equal for equal secrets wherever they were found; empty for anonymous."""
    one = Credential("u", "p", source="a", key="b")
    assert one.fingerprint(b"k") == Credential("u", "p", source="c", key="d").fingerprint(b"k")
    assert one.fingerprint(b"k") != one.fingerprint(b"other key")
    different = [
        Credential("u", "p"),
        Credential("up"),
        Credential("", "up"),
        Credential("", "", "up"),
        Credential("", "", "", "up"),
        Credential("u", "", "p"),
    ]
    assert len({credential.fingerprint(b"k") for credential in different}) == len(different)
    assert ANONYMOUS.fingerprint(b"k") == ""
    assert copy.copy(one) == one


@pytest.mark.req("RG-002")
async def test_no_credentials_is_anonymous() -> None:
    """Anonymous is always last, also when it is all there is."""
    place = asked("r.example/x")
    assert await NoCredentials().candidates(*place) == NoCredentials().cached_candidates(*place) == [ANONYMOUS]
