"""Which proxy stands before a server: the answers are those of Go's ``httpproxy``."""

import pytest

from polyarch import proxies
from polyarch.proxies import InvalidProxy, Proxies, Proxy, passed_on

MARKER = "s3cr3t-marker"


def url(environ: dict[str, str], scheme: str = "https", host: str = "r.example", port: int = 443) -> str | None:
    proxy = Proxies(environ).proxy_for(scheme, host, port)
    return None if proxy is None else proxy.url


@pytest.mark.req("KR-001", "RG-100")
@pytest.mark.parametrize(
    ("environ", "scheme", "expected"),
    [
        pytest.param({}, "https", None, id="none is set"),
        pytest.param({"HTTPS_PROXY": "http://p:3128"}, "https", "http://p:3128", id="of the scheme"),
        pytest.param({"HTTPS_PROXY": "http://p:3128"}, "http", None, id="of the other scheme"),
        pytest.param({"http_proxy": "http://p"}, "http", "http://p", id="in lower case"),
        pytest.param(
            {"HTTP_PROXY": "http://upper", "http_proxy": "http://lower"}, "http", "http://lower", id="lower case counts"
        ),
        pytest.param({"HTTP_PROXY": "http://upper", "http_proxy": ""}, "http", "http://upper", id="empty is not set"),
        pytest.param({"ALL_PROXY": "https://p:1", "all_proxy": "https://p:1"}, "https", None, id="no ALL_PROXY"),
        pytest.param({"HTTPS_PROXY": "p.example:3128"}, "https", "http://p.example:3128", id="without a scheme"),
        pytest.param({"HTTPS_PROXY": "http://[::1]:3128"}, "https", "http://[::1]:3128", id="an IPv6 proxy"),
        pytest.param({"HTTPS_PROXY": " "}, "https", None, id="blank is not set"),
    ],
)
def test_the_variable_for_the_scheme_counts(environ: dict[str, str], scheme: str, expected: str | None) -> None:
    assert url(environ, scheme) == expected


# Each row was asked of golang.org/x/net/http/httpproxy v0.49.0 as well.
DIRECT = {
    "the name": ("r.example", "r.example", True),
    "a sub-domain": ("example", "r.example", True),
    "not a mere ending": ("ample", "r.example", False),
    "a leading dot covers sub-domains": (".example", "r.example", True),
    "a leading dot does not cover the name": (".r.example", "r.example", False),
    "a star and a dot": ("*.example", "r.example", True),
    "a star and a dot do not cover the name": ("*.r.example", "r.example", False),
    "a star without a dot is no pattern": ("*example", "r.example", False),
    "everything": ("*", "r.example", True),
    "everything, among others": ("a.example,*", "10.0.0.1", True),
    "in any case": ("R.Example", "r.EXAMPLE", True),
    "the port asked": ("r.example:443", "r.example", True),
    "another port": ("r.example:5000", "r.example", False),
    "a port that is no number": ("r.example:https", "r.example", False),
    "an empty port is any": ("r.example:", "r.example", True),
    "a port alone covers nothing": (":443", "r.example", False),
    "one of several, with spaces": ("a.example , r.example", "r.example", True),
    "a range of addresses": ("10.0.0.0/8", "10.1.2.3", True),
    "outside the range": ("10.0.0.0/8", "11.1.2.3", False),
    "a range with host bits": ("10.9.9.9/8", "10.1.2.3", True),
    "a netmask is no prefix": ("10.0.0.0/255.0.0.0", "10.1.2.3", False),
    "a prefix that is too long": ("10.0.0.0/33", "10.0.0.0", False),
    "a range of IPv6 addresses": ("fd00::/8", "fd00::1", True),
    "a range, for an IPv4 address written as IPv6": ("10.0.0.0/8", "::ffff:10.1.2.3", True),
    "a range of IPv4 addresses written as IPv6": ("::ffff:10.0.0.0/104", "10.1.2.3", True),
    "an address": ("10.0.0.1", "10.0.0.1", True),
    "an address with the port": ("10.0.0.1:443", "10.0.0.1", True),
    "an address with another port": ("10.0.0.1:80", "10.0.0.1", False),
    "an IPv6 address": ("fd00::1", "fd00::1", True),
    "an IPv6 address in brackets with the port": ("[fd00::1]:443", "fd00::1", True),
    "an IPv6 address in brackets without a port": ("[fd00::1]", "fd00::1", False),
    "a range does not cover names": ("10.0.0.0/8", "r.example", False),
    "a name does not cover addresses": ("1", "10.0.0.1", False),
    "an international name": ("bücher.example", "xn--bcher-kva.example", True),
    "an international name asked for": (".xn--bcher-kva.example", "a.bücher.example", True),
    "nonsense covers nothing": ("[x,a]b:443,bad/x,fe80::1%eth0", "r.example", False),
    "nothing": (",, ,", "r.example", False),
}


@pytest.mark.req("KR-001", "RG-100")
@pytest.mark.parametrize(("no_proxy", "host", "direct"), DIRECT.values(), ids=DIRECT.keys())
def test_no_proxy_names_what_is_reached_directly(no_proxy: str, host: str, direct: bool) -> None:
    """NO_PROXY with names, ports and CIDRs."""
    environ = {"HTTPS_PROXY": "http://p", "NO_PROXY": no_proxy}
    assert (url(environ, host=host) is None) is direct
    assert (url({"HTTPS_PROXY": "http://p", "no_proxy": no_proxy}, host=host) is None) is direct


@pytest.mark.parametrize(
    ("host", "direct"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        # Names that only a resolver takes for this machine; a NO_PROXY that Go needs is needed here, too.
        ("registry.localhost", False),
        ("127.1", False),
    ],
)
def test_this_machine_is_always_reached_directly(host: str, direct: bool) -> None:
    assert (url({"HTTPS_PROXY": "http://p"}, host=host) is None) is direct


@pytest.mark.req("RG-087")
def test_the_password_of_a_proxy_is_sent_and_not_shown() -> None:
    proxy = Proxies({"HTTPS_PROXY": f"http://u%40x:{MARKER}@p:3128"}).proxy_for("https", "r.example", 443)
    assert proxy == Proxy("http://p:3128", "Basic dUB4OnMzY3IzdC1tYXJrZXI=")
    assert repr(proxy) == "Proxy(url='http://p:3128')"
    assert proxy.__rich_repr__() == [("url", "http://p:3128")]


@pytest.mark.req("RG-087", "RG-100")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"socks5://u:{MARKER}@p:1080", "has the unsupported scheme 'socks5'"),
        (f"http://u:{MARKER}@p:port", "is not the URL of a proxy"),
        (f"http://u:{MARKER}@:3128", "names no host"),
        (f"http://[{MARKER}", "is not the URL of a proxy"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_an_error_when_it_is_needed(text: str, problem: str) -> None:
    """Never a silent direct connection, never the value."""
    with pytest.raises(InvalidProxy, match=problem) as caught:
        proxies.parse(text)
    assert MARKER not in str(caught.value)
    environment = Proxies({"HTTPS_PROXY": text, "NO_PROXY": "inside.example"})
    with pytest.raises(InvalidProxy, match=f"HTTPS_PROXY {problem}"):
        environment.proxy_for("https", "r.example", 443)
    assert [str(found) for found in environment.problems] == [f"HTTPS_PROXY {caught.value}"]
    assert environment.proxy_for("https", "inside.example", 443) is None
    assert environment.proxy_for("http", "r.example", 80) is None


@pytest.mark.req("BD-333")
def test_variables_for_other_programs_are_in_both_spellings_and_hold_no_password() -> None:
    environ = {
        "https_proxy": "http://proxy.example:3128",
        "HTTP_PROXY": "http://me:secret@proxy.example",
        "NO_PROXY": ".svc",
    }
    found = dict(passed_on(environ))
    assert found == {
        "HTTPS_PROXY": "http://proxy.example:3128",
        "https_proxy": "http://proxy.example:3128",
        "NO_PROXY": ".svc",
        "no_proxy": ".svc",
    }
