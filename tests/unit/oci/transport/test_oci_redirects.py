"""Realms and redirects: where a server may send us."""

import pytest

from polyarch.oci.transport.addresses import (
    NAMED,
    AddressClass,
    AddressPolicy,
    HostProvenance,
    Origin,
    Redirect,
    RedirectRequest,
    RegistryServer,
    UrlRejected,
    check_realm,
    check_redirect,
    origin_of,
    provenance_of,
)

PUBLIC = RegistryServer("https://r.example/v2/", AddressClass.PUBLIC)
PLAIN = RegistryServer("http://r.example:5000/v2/", AddressClass.PRIVATE)
POLICY = AddressPolicy.of("cli")
BY_PUBLIC = HostProvenance(named=False, registry=AddressClass.PUBLIC)


@pytest.mark.req("RG-103", "RG-104")
@pytest.mark.parametrize(
    ("realm", "registry", "provenance"),
    [
        ("https://auth.example/token?a=b", PUBLIC, BY_PUBLIC),
        ("https://r.example/token", PUBLIC, NAMED),
        ("https://R.Example:443/token", PUBLIC, NAMED),
        ("https://r.example:8443/token", PUBLIC, BY_PUBLIC),
        ("http://auth.example/token", PLAIN, HostProvenance(named=False, registry=AddressClass.PRIVATE)),
        ("http://r.example:5000/token", PLAIN, NAMED),
        ("https://auth.example/token", PLAIN, HostProvenance(named=False, registry=AddressClass.PRIVATE)),
        ("https://1.1.1.1/token", PUBLIC, BY_PUBLIC),
    ],
)
def test_a_realm_may_be_asked_on_the_word_of(realm: str, registry: RegistryServer, provenance: HostProvenance) -> None:
    """The user's word for the registry's own host and port, else the server's."""
    assert check_realm(realm, registry, POLICY) == provenance


UNUSABLE = {
    "plain http to an https registry": "http://auth.example/token",
    "another scheme": "ftp://auth.example/token",
    "a file": "file:///etc/passwd",
    "no scheme": "auth.example/token",
    "a path": "/token",
    "empty": "",
    "user info": "https://user:password@auth.example/token",
    "a user": "https://user@auth.example/token",
    "a fragment": "https://auth.example/token#x",
    "an empty fragment": "https://auth.example/token#",
    "no host": "https:///token",
    "a space": "https://auth.example/to ken",
    "a line break": "https://auth.example/\r\nx",
    "another script": "https://auth.exämple/token",
    "a backslash, which some parsers take for a slash": "https://auth.example\\@10.0.0.1/",
    "a port out of range": "https://auth.example:65536/",
    "port zero": "https://auth.example:0/",
    "a port that is none": "https://auth.example:x/",
    "a broken address": "https://[::1/",
    "a percent sign in the host": "https://auth%2eexample/",
}


@pytest.mark.req("RG-104")
@pytest.mark.parametrize("realm", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_an_unusable_realm_counts_as_absent(realm: str) -> None:
    refused = check_realm(realm, PUBLIC, POLICY)
    assert isinstance(refused, UrlRejected)
    assert refused.code == "unusable-realm"


@pytest.mark.req("RG-104")
@pytest.mark.parametrize("host", ["10.0.0.1", "[::1]", "127.1", "169.254.169.254", "[::ffff:10.0.0.1]"])
def test_a_realm_at_a_forbidden_address_is_refused(host: str) -> None:
    refused = check_realm(f"https://{host}/token", PUBLIC, POLICY)
    assert isinstance(refused, UrlRejected)
    assert refused.code == "refused-address"
    assert host in refused.message


@pytest.mark.req("RG-103")
def test_a_realm_at_a_private_address_is_for_private_registries() -> None:
    assert isinstance(check_realm("https://10.0.0.2/t", PLAIN, POLICY), HostProvenance)
    registry = RegistryServer("https://10.0.0.1:5000", AddressClass.PRIVATE)
    assert check_realm("https://10.0.0.1:5000/t", registry, POLICY) == NAMED


HERE = RedirectRequest("https://r.example/v2/x/blobs/sha256:1")


@pytest.mark.req("RG-105")
@pytest.mark.parametrize(
    ("location", "url", "provenance", "keeps"),
    [
        ("https://cdn.example/blob?sig=a%2Fb%3D", "https://cdn.example/blob?sig=a%2Fb%3D", BY_PUBLIC, False),
        ("/other", "https://r.example/other", NAMED, True),
        ("other?x=1", "https://r.example/v2/x/blobs/other?x=1", NAMED, True),
        ("//cdn.example/x", "https://cdn.example/x", BY_PUBLIC, False),
        ("https://r.example:443/x", "https://r.example:443/x", NAMED, True),
        ("https://R.EXAMPLE/x", "https://R.EXAMPLE/x", NAMED, True),
        ("https://r.example:8443/x", "https://r.example:8443/x", BY_PUBLIC, False),
        (" /x#fragment", "https://r.example/x", NAMED, True),
        ("/a b|ü", "https://r.example/a%20b%7C%C3%BC", NAMED, True),
    ],
)
def test_a_redirect_is_followed(location: str, url: str, provenance: HostProvenance, keeps: bool) -> None:
    """The URL as the server wrote it, without Authorization at another origin."""
    assert check_redirect(location, HERE, PUBLIC, POLICY) == Redirect(url, provenance, keeps)


@pytest.mark.req("RG-105")
def test_from_http_to_https_is_another_origin() -> None:
    """Allowed, and the header stays behind."""
    asked = RedirectRequest("http://r.example:5000/v2/x")
    found = check_redirect("https://r.example:5000/v2/x", asked, PLAIN, POLICY)
    assert isinstance(found, Redirect)
    assert found.keep_authorization is False


REFUSED = {
    "from https to http": ("http://r.example/x", HERE, "from https://r.example to http://r.example: it leaves https"),
    "the sixth": (
        "https://cdn.example/x",
        RedirectRequest(HERE.url, redirects=5),
        "from https://r.example to https://cdn.example: there were 5 already",
    ),
    "a POST": ("/x", RedirectRequest(HERE.url, method="POST"), "a POST request is not repeated elsewhere"),
    "a PUT": ("/x", RedirectRequest(HERE.url, method="PUT"), "a PUT request is not repeated elsewhere"),
    "a token request to another origin": (
        "https://auth.example/token",
        RedirectRequest("https://r.example/token", token=True),
        "from https://r.example to https://auth.example: a token request stays within its origin",
    ),
    "another scheme": ("ftp://r.example/x", HERE, "something that is no http or https URL"),
    "a script": ("javascript:alert(1)", HERE, "something that is no http or https URL"),
    "user info": ("https://user:password@r.example/x", HERE, "something that is no http or https URL"),
    "a host with two readings": ("https://r.example\\.evil.example/", HERE, "something that is no http or https URL"),
    "a broken address": ("https://[::1", HERE, "something that is no http or https URL"),
    "a port out of range": ("https://r.example:99999/", HERE, "something that is no http or https URL"),
}


@pytest.mark.req("RG-105")
@pytest.mark.parametrize(("location", "asked", "text"), REFUSED.values(), ids=REFUSED.keys())
def test_a_redirect_is_refused_with_both_origins(location: str, asked: RedirectRequest, text: str) -> None:
    refused = check_redirect(location, asked, PUBLIC, POLICY)
    assert isinstance(refused, UrlRejected)
    assert refused.code == "refused-redirect"
    assert text in refused.message
    assert "password" not in refused.message


@pytest.mark.req("RG-105")
def test_head_and_the_fifth_redirect_are_followed() -> None:
    asked = RedirectRequest(HERE.url, method="HEAD", redirects=4)
    assert isinstance(check_redirect("/x", asked, PUBLIC, POLICY), Redirect)
    assert isinstance(
        check_redirect("/x", RedirectRequest("https://r.example/t", token=True), PUBLIC, POLICY), Redirect
    )


@pytest.mark.req("RG-103", "RG-105")
def test_a_redirect_to_a_forbidden_address_is_refused() -> None:
    refused = check_redirect("https://169.254.169.254/latest/meta-data", HERE, PUBLIC, POLICY)
    assert isinstance(refused, UrlRejected)
    assert refused.code == "refused-address"
    assert "https://169.254.169.254" in refused.message


def test_origins_are_told_apart_by_scheme_host_and_port() -> None:
    assert origin_of("https://R.example./x") == Origin("https", "r.example", 443)
    assert str(origin_of("https://r.example:443/")) == "https://r.example"
    assert str(origin_of("http://[::1]:5000/x")) == "http://[::1]:5000"
    assert origin_of("https://user@r.example/") is None
    assert origin_of("nothing") is None


@pytest.mark.req("RG-103")
def test_an_unknown_class_of_a_registry_stays_unknown() -> None:
    """A name behind a proxy."""
    registry = RegistryServer("https://r.example/")
    assert provenance_of("https://auth.example/", registry) == HostProvenance(named=False, registry=None)
