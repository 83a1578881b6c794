"""The proxies of the environment."""

import pytest

from polyarch.oci.addresses import InvalidSetting
from polyarch.oci.proxies import Proxies, Proxy

MARKER = "s3cr3t-marker"


def url(environ: dict[str, str], scheme: str = "https", host: str = "r.example", port: int = 443) -> str | None:
    proxy = Proxies(environ).proxy_for(scheme, host, port)
    return None if proxy is None else proxy.url


@pytest.mark.parametrize(
    ("environ", "scheme", "expected"),
    [
        ({}, "https", None),
        ({"HTTPS_PROXY": "http://p:3128"}, "https", "http://p:3128"),
        ({"HTTPS_PROXY": "http://p:3128"}, "http", None),
        ({"http_proxy": "http://p"}, "http", "http://p"),
        ({"HTTP_PROXY": "http://upper", "http_proxy": "http://lower"}, "http", "http://lower"),
        ({"ALL_PROXY": "https://p:1"}, "https", "https://p:1"),
        ({"ALL_PROXY": "http://all", "HTTPS_PROXY": "http://one"}, "https", "http://one"),
        ({"HTTPS_PROXY": "p.example:3128"}, "https", "http://p.example:3128"),
        ({"HTTPS_PROXY": "http://[::1]:3128"}, "https", "http://[::1]:3128"),
        ({"HTTPS_PROXY": " "}, "https", None),
    ],
)
def test_the_variable_for_the_scheme_counts(environ: dict[str, str], scheme: str, expected: str | None) -> None:
    """RG-100."""
    assert url(environ, scheme) == expected


DIRECT = {
    "the name": ("r.example", "r.example", True),
    "a sub-domain": ("example", "r.example", True),
    "not a mere ending": ("ample", "r.example", False),
    "a leading dot covers sub-domains": (".example", "r.example", True),
    "a leading dot does not cover the name": (".r.example", "r.example", False),
    "a star before the dot": ("*.example", "r.example", True),
    "everything": ("*", "r.example", True),
    "in any case": ("R.Example", "r.EXAMPLE", True),
    "the port asked": ("r.example:443", "r.example", True),
    "another port": ("r.example:5000", "r.example", False),
    "one of several, with spaces": ("a.example , r.example", "r.example", True),
    "a range of addresses": ("10.0.0.0/8", "10.1.2.3", True),
    "outside the range": ("10.0.0.0/8", "11.1.2.3", False),
    "a range of IPv6 addresses": ("fd00::/8", "fd00::1", True),
    "an address": ("10.0.0.1", "10.0.0.1", True),
    "an address with the port": ("10.0.0.1:443", "10.0.0.1", True),
    "an address with another port": ("10.0.0.1:80", "10.0.0.1", False),
    "an IPv6 address in brackets with the port": ("[fd00::1]:443", "fd00::1", True),
    "a range does not cover names": ("10.0.0.0/8", "r.example", False),
    "a name does not cover addresses": ("1", "10.0.0.1", False),
    "nothing": (",, ,", "r.example", False),
}


@pytest.mark.parametrize(("no_proxy", "host", "direct"), DIRECT.values(), ids=DIRECT.keys())
def test_no_proxy_names_what_is_reached_directly(no_proxy: str, host: str, direct: bool) -> None:
    """RG-100: NO_PROXY with names, ports and CIDRs."""
    environ = {"HTTPS_PROXY": "http://p", "NO_PROXY": no_proxy}
    assert (url(environ, host=host) is None) is direct
    assert (url({"HTTPS_PROXY": "http://p", "no_proxy": no_proxy}, host=host) is None) is direct


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", "registry.localhost"])
def test_this_machine_is_always_reached_directly(host: str) -> None:
    assert url({"HTTPS_PROXY": "http://p"}, host=host) is None


def test_the_password_of_a_proxy_is_sent_and_not_shown() -> None:
    """RG-087."""
    proxy = Proxies({"HTTPS_PROXY": f"http://u%40x:{MARKER}@p:3128"}).proxy_for("https", "r.example", 443)
    assert proxy == Proxy("http://p:3128", "Basic dUB4OnMzY3IzdC1tYXJrZXI=")
    assert repr(proxy) == "Proxy(url='http://p:3128')"
    assert proxy.__rich_repr__() == [("url", "http://p:3128")]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"socks5://u:{MARKER}@p:1080", "HTTPS_PROXY names a proxy of the kind 'socks5', which is not known"),
        (f"http://u:{MARKER}@p:port", "HTTPS_PROXY is not the URL of a proxy"),
        (f"http://u:{MARKER}@:3128", "HTTPS_PROXY names no host"),
        (f"http://[{MARKER}", "HTTPS_PROXY is not the URL of a proxy"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_a_usage_error_with_its_variable(text: str, problem: str) -> None:
    """RG-100, RG-087: never a silent direct connection, never the value."""
    with pytest.raises(InvalidSetting) as caught:
        Proxies({"HTTPS_PROXY": text})
    assert problem in str(caught.value)
    assert MARKER not in str(caught.value)
