"""The challenges of a registry and the public names around credentials."""

import subprocess
import sys

import pytest

from polyarch.oci.auth.challenges import Challenge, parse_challenges

BEARER = Challenge("bearer", {"realm": "https://auth.example/token", "service": "registry.example"})
BASIC = Challenge("basic", {"realm": "r"})
CASES = {
    "one challenge": (['Bearer realm="https://auth.example/token",service="registry.example"'], [BEARER]),
    "several in one value": (
        ['Basic realm="r", Bearer realm="https://auth.example/token", service="registry.example"'],
        [BASIC, BEARER],
    ),
    "several values": (
        ['Basic realm="r"', 'Bearer realm="https://auth.example/token",service="registry.example"'],
        [BASIC, BEARER],
    ),
    "scheme and names in any case": (
        ['BEARER Realm="https://auth.example/token", SERVICE="registry.example"'],
        [BEARER],
    ),
    "token as value": (["Basic realm=r"], [BASIC]),
    "escapes in a quoted string": (['Basic realm="a\\"b\\\\c\\d"'], [Challenge("basic", {"realm": 'a"b\\cd'})]),
    "a comma and an equals sign in a quoted string": (
        ['Basic realm="a, Bearer realm=b"'],
        [Challenge("basic", {"realm": "a, Bearer realm=b"})],
    ),
    "spaces around equals signs and commas": (
        ['Bearer realm = "https://auth.example/token" , service\t=\t"registry.example"'],
        [BEARER],
    ),
    "empty list elements": ([', ,Basic realm="r",,, Negotiate,'], [BASIC, Challenge("negotiate")]),
    "a scheme alone": (["Negotiate"], [Challenge("negotiate")]),
    "a scheme alone before another": (['Negotiate, Basic realm="r"'], [Challenge("negotiate"), BASIC]),
    "token68 keeps no parameters": (['Negotiate YWJj/+-._~==, Basic realm="r"'], [Challenge("negotiate"), BASIC]),
    "an empty quoted string": (['Basic realm=""'], [Challenge("basic", {"realm": ""})]),
    "a repeated parameter keeps its first value": (['Basic realm="r", realm="other"'], [BASIC]),
    "nothing": ([], []),
    "empty": (["", " ", ",,"], []),
    "missing quote at the end": (['Basic realm="r", Bearer realm="https://x'], [BASIC]),
    "two parameters without a comma": (['Basic realm="r", Bearer realm="https://x" service="y"'], [BASIC]),
    "dangling escape": (['Basic realm="r", Bearer realm="x\\'], [BASIC]),
    "a value that is neither token nor quoted": (['Basic realm="r", Bearer realm=https://x'], [BASIC]),
    "no value": (['Basic realm="r", Bearer service="y", realm='], [BASIC]),
    "no scheme": (['realm="r"'], []),
    "a broken value does not harm the next one": (['Bearer realm="', 'Basic realm="r"'], [BASIC]),
    "control characters and other scripts": (["\x00Basic", 'Básic realm="r"', "\ud800"], []),
}


@pytest.mark.req("RG-070")
@pytest.mark.parametrize(("values", "expected"), CASES.values(), ids=CASES.keys())
def test_challenges_are_read_and_a_broken_tail_costs_only_itself(values: list[str], expected: list[Challenge]) -> None:
    assert parse_challenges(values) == expected


@pytest.mark.req("RG-070", "RG-163")
def test_long_hostile_values_take_linear_time() -> None:
    """Each of these took hours with a backtracking pattern; the test's own limit would end it."""
    for part in ('a="', "a", "a=b ", 'a="\\', ",", " ", "=", "a =", '"\\"', "a=b,"):
        assert isinstance(parse_challenges(["Bearer " + part * 200_000]), list)


@pytest.mark.req("RG-001")
def test_the_parser_and_the_keyring_load_no_network_stack() -> None:
    """A lint run with an offline file must start fast."""
    program = (
        "import sys; from polyarch.oci.auth import challenges, credentials;"
        "import polyarch.oci.transport.addresses, polyarch.oci.transport.interface;"
        "print([name for name in ('asyncio', 'aiohttp') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
