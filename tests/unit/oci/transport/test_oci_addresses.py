"""Which addresses may be reached, and by whose word."""

import ipaddress

import pytest

from polyarch.oci.transport.addresses import (
    NAMED,
    AddressClass,
    AddressPolicy,
    HostProvenance,
    InvalidSetting,
    RedirectRequest,
    RegistryServer,
    UrlRejected,
    check_realm,
    check_redirect,
    classify,
    embedded,
    is_loopback_host,
    literal,
)

NEVER, LOOPBACK, PRIVATE, PUBLIC = AddressClass

CLASSES = {
    "0.0.0.0": NEVER,
    "0.1.2.3": NEVER,
    "::": NEVER,
    "224.0.0.1": NEVER,
    "239.255.255.255": NEVER,
    "ff02::1": NEVER,
    "255.255.255.255": NEVER,
    "169.254.0.1": NEVER,
    "169.254.169.254": NEVER,
    "fe80::1": NEVER,
    "fe80::1%eth0": NEVER,
    "fd00:ec2::254": NEVER,
    "100.100.100.200": NEVER,
    "192.0.0.192": NEVER,
    "127.0.0.1": LOOPBACK,
    "127.255.255.254": LOOPBACK,
    "::1": LOOPBACK,
    "10.0.0.0": PRIVATE,
    "10.255.255.255": PRIVATE,
    "172.16.0.1": PRIVATE,
    "172.31.255.255": PRIVATE,
    "192.168.1.1": PRIVATE,
    "100.64.0.1": PRIVATE,
    "100.127.255.255": PRIVATE,
    "fc00::1": PRIVATE,
    "fdff::1": PRIVATE,
    "9.255.255.255": PUBLIC,
    "11.0.0.1": PUBLIC,
    "172.32.0.1": PUBLIC,
    "172.15.255.255": PUBLIC,
    "100.128.0.1": PUBLIC,
    "192.0.0.191": PUBLIC,
    "1.1.1.1": PUBLIC,
    "2606:4700::1111": PUBLIC,
    # forms that carry an IPv4 address
    "::ffff:169.254.169.254": NEVER,
    "::ffff:127.0.0.1": LOOPBACK,
    "::ffff:10.0.0.1": PRIVATE,
    "::ffff:1.1.1.1": PUBLIC,
    "::ffff:0:127.0.0.1": LOOPBACK,
    "64:ff9b::169.254.169.254": NEVER,
    "64:ff9b::127.0.0.1": LOOPBACK,
    "64:ff9b::10.0.0.1": PRIVATE,
    "64:ff9b::1.1.1.1": PUBLIC,
    "64:ff9b:1::10.0.0.1": PRIVATE,
    "64:ff9b:1::169.254.169.254": NEVER,
    "64:ff9b:1:a9fe:a9:fe00::": NEVER,
    "::127.0.0.1": LOOPBACK,
    "2002:7f00:1::": LOOPBACK,
    "2002:a9fe:a9fe::1": NEVER,
    "2002:101:101::": PUBLIC,
    "2001:0:101:101:0:0:80ff:fffe": LOOPBACK,
}


@pytest.mark.req("RG-102")
@pytest.mark.parametrize(("address", "expected"), CLASSES.items(), ids=CLASSES.keys())
def test_every_address_has_its_class(address: str, expected: AddressClass) -> None:
    assert classify(address) is expected
    assert classify(ipaddress.ip_address(address)) is expected


SERVER_OF = {
    registry: HostProvenance(named=False, registry=registry) for registry in (PUBLIC, PRIVATE, LOOPBACK, NEVER, None)
}
EXAMPLES = {PUBLIC: "1.1.1.1", PRIVATE: "10.0.0.1", LOOPBACK: "127.0.0.1", NEVER: "169.254.169.254"}
TABLE = [
    # mode, who named the host, what may be reached
    ("cli", NAMED, {PUBLIC, PRIVATE, LOOPBACK}),
    ("cluster", NAMED, {PUBLIC, PRIVATE}),
    *(
        row
        for mode in ("cli", "cluster")
        for row in (
            (mode, SERVER_OF[PUBLIC], {PUBLIC}),
            (mode, SERVER_OF[None], {PUBLIC}),
            (mode, SERVER_OF[PRIVATE], {PUBLIC, PRIVATE}),
            (mode, SERVER_OF[LOOPBACK], {PUBLIC, LOOPBACK}),
            (mode, SERVER_OF[NEVER], {PUBLIC}),
        )
    ),
]


@pytest.mark.req("RG-103")
@pytest.mark.parametrize(
    ("mode", "provenance", "allowed"),
    TABLE,
    ids=[
        f"{mode}: named by {'the user' if provenance.named else f'a {provenance.registry} server'}"
        for mode, provenance, _ in TABLE
    ],
)
def test_who_may_be_reached(mode: str, provenance: HostProvenance, allowed: set[AddressClass]) -> None:
    """The whole table."""
    policy = AddressPolicy.of("cluster" if mode == "cluster" else "cli")
    reached = {
        each for each, address in EXAMPLES.items() if policy.check(address, host="h", provenance=provenance) is None
    }
    assert reached == allowed


@pytest.mark.req("RG-103")
@pytest.mark.parametrize("address", EXAMPLES.values(), ids=[str(each) for each in EXAMPLES])
@pytest.mark.parametrize("provenance", [NAMED, SERVER_OF[PUBLIC]], ids=["user", "server"])
def test_what_is_allowed_or_denied_by_name_does_not_depend_on_its_class(
    address: str, provenance: HostProvenance
) -> None:
    """allow_addresses, deny_addresses; of the same range deny wins."""
    allow = AddressPolicy.of("cluster", allow=[address])
    deny = AddressPolicy.of("cluster", allow=[address], deny=[address])
    assert allow.check(address, host="h", provenance=provenance) is None
    assert allow.check(f"::ffff:{address}", host="h", provenance=provenance) is None
    refused = deny.check(address, host="h", provenance=provenance)
    assert refused is not None
    assert "deny_addresses has it" in refused.message


@pytest.mark.req("RG-103")
def test_the_narrower_of_two_ranges_decides() -> None:
    """No registry on the cluster's networks but the one that is there."""
    policy = AddressPolicy.of("cluster", allow=["10.96.0.20", "fd00:96::20"], deny=["10.0.0.0/8", "fc00::/7"])
    reached = ["10.96.0.20", "::ffff:10.96.0.20", "64:ff9b::10.96.0.20", "fd00:96::20", "203.0.113.9"]
    denied = ["10.96.0.1", "10.244.3.7", "::ffff:10.96.0.1", "64:ff9b::10.96.0.1", "2002:a60:1::", "fd00:96::1"]
    assert [address for address in (*reached, *denied) if policy.check(address, host="h") is None] == reached
    every = AddressPolicy.of("cluster", allow=["10.0.0.0/8"], deny=["10.96.0.0/12"])
    assert every.check("10.1.2.3", host="h") is None
    assert every.check("10.96.0.1", host="h") is not None


@pytest.mark.req("RG-103")
def test_a_range_in_the_notation_of_mapped_addresses_has_the_addresses_themselves() -> None:
    policy = AddressPolicy.of("cluster", allow=["::ffff:10.96.0.20"], deny=["::ffff:10.0.0.0/104", "fd00::/8"])
    reached = ["10.96.0.20", "::ffff:10.96.0.20", "203.0.113.9"]
    denied = ["10.96.0.1", "::ffff:10.96.0.1", "64:ff9b::10.96.0.1", "fd00::1"]
    assert [address for address in (*reached, *denied) if policy.check(address, host="h") is None] == reached


@pytest.mark.req("RG-103")
@pytest.mark.parametrize("host", ["10.96.0.1", "0xa600001", "174063617", "012.0x60.1", "10.96.1", "[::ffff:a60:1]"])
def test_a_denied_address_is_denied_in_every_notation_whoever_names_it(host: str) -> None:
    """An image's host, a redirect from another private registry, a realm."""
    policy = AddressPolicy.of("cluster", deny=["10.96.0.0/12"])
    registry = RegistryServer("https://10.244.3.7/v2/x", AddressClass.PRIVATE)
    assert policy.check_host(host) is not None
    found = check_redirect(f"https://{host}/x", RedirectRequest("https://10.244.3.7/v2/x"), registry, policy)
    assert isinstance(found, UrlRejected)
    assert isinstance(check_realm(f"https://{host}/token", registry, policy), UrlRejected)


@pytest.mark.req("RG-102", "RG-103")
def test_a_denied_range_covers_the_forms_that_carry_its_addresses() -> None:
    policy = AddressPolicy.of("cli", deny=["1.1.1.0/24"])
    assert policy.check("64:ff9b::1.1.1.1", host="h") is not None
    assert policy.check("1.1.2.1", host="h") is None


MESSAGES = {
    "a name for a metadata service": (
        AddressPolicy.of("cli").check("169.254.169.254", host="r.example"),
        "has the address 169.254.169.254, which is of the class never",
    ),
    "a literal": (
        AddressPolicy.of("cluster").check("127.0.0.1", host="127.0.0.1"),
        "is of the class loopback: an image",
    ),
    "a server's word": (
        AddressPolicy.of("cli").check("10.0.0.1", host="auth.example", provenance=SERVER_OF[PUBLIC]),
        "a server named it, and the registry itself is public; add it to allow_addresses",
    ),
}


@pytest.mark.req("RG-103")
@pytest.mark.parametrize(("refused", "text"), MESSAGES.values(), ids=MESSAGES.keys())
def test_a_refusal_names_class_and_setting(refused: object, text: str) -> None:
    assert refused is not None
    assert text in refused.message  # type: ignore[attr-defined]
    assert "allow_addresses" in refused.message  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", ["10.0.0.0/33", "example.com", "", "10.0.0.0/8 x"])
def test_a_range_that_is_none_is_a_usage_error(text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"allow_addresses: .* is not an address range such as 10\.0\.0\.0/8"):
        AddressPolicy.of("cli", allow=[text])


def test_a_range_may_have_host_bits_and_be_a_single_address() -> None:
    policy = AddressPolicy.of("cluster", allow=["127.0.0.1/8", " ::1 "])
    assert policy.check("127.5.5.5", host="h") is policy.check("::1", host="h") is None


LITERALS = {
    "127.0.0.1": "127.0.0.1",
    "127.0.0.1.": "127.0.0.1",
    "[::1]": "::1",
    "::1": "::1",
    "127.1": "127.0.0.1",
    "2130706433": "127.0.0.1",
    "0x7f000001": "127.0.0.1",
    "0177.0.0.1": "127.0.0.1",
    "r.example": None,
    "localhost": None,
    "1.2.3.4.example": None,
    "": None,
    "[::1": "::1",
}


@pytest.mark.req("RG-103")
@pytest.mark.parametrize(("host", "address"), LITERALS.items(), ids=LITERALS.keys())
def test_an_address_in_any_spelling_is_recognised(host: str, address: str | None) -> None:
    """Behind a proxy literal addresses are still checked, whatever a resolver would make of them."""
    assert literal(host) == (ipaddress.ip_address(address) if address else None)


@pytest.mark.req("RG-103")
@pytest.mark.parametrize("host", ["2130706433", "127.1", "[::ffff:127.0.0.1]", "0x7f.1"])
def test_a_literal_host_is_checked_without_a_look_up(host: str) -> None:
    assert AddressPolicy.of("cluster").check_host(host) is not None
    assert AddressPolicy.of("cluster").check_host("r.example") is None


@pytest.mark.req("RG-101")
@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("localhost:5000", True),
        ("LOCALHOST.:5000", True),
        ("registry.localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("127.8.8.8", True),
        ("[::1]:5000", True),
        ("::1", True),
        ("10.0.0.1:5000", False),
        ("localhost.example", False),
        ("notlocalhost", False),
        ("r.example:443", False),
    ],
)
def test_a_host_that_is_this_machine_by_name(host: str, expected: bool) -> None:
    """Loopback in the command line."""
    assert is_loopback_host(host) is expected


def test_addresses_without_another_inside() -> None:
    for text in ("10.0.0.1", "::1", "::", "2606:4700::1111", "fe80::1"):
        assert embedded(ipaddress.ip_address(text)) == ()
