"""Flags of ``polyarch run numa-exporter``, written as Go's programs take them."""

import pytest

from polyarch.numa.exporter.flags import FLAGS, parse_flags
from polyarch.numa.exporter.settings import InvalidExporterConfiguration


@pytest.mark.req("NE-132")
@pytest.mark.parametrize(
    ("words", "key", "value"),
    [
        (["--oneshot"], "nrtUpdater.oneShot", True),
        (["--patch-mode=false"], "nrtUpdater.patchMode", False),
        (["--patch-mode", "false"], "nrtUpdater.patchMode", False),
        (["--patch-mode=F"], "nrtUpdater.patchMode", False),
        (["--sleep-interval=1m30s"], "topologyExporter.sleepInterval", 90_000_000_000),
        (["--sleep-interval", "500ms"], "topologyExporter.sleepInterval", 500_000_000),
        (["--sleep-interval=0"], "topologyExporter.sleepInterval", 0),
        (["-sleep-interval=10s"], "topologyExporter.sleepInterval", 10_000_000_000),
        (["--hostname", "--odd"], "nrtUpdater.hostname", "--odd"),
        (["--hostname="], "nrtUpdater.hostname", ""),
        (["-v", "4"], "global.verbose", 4),
        (["-v=4"], "global.verbose", 4),
        (["-v4"], "global.verbose", 4),
        (["--v=4"], "global.verbose", 4),
        (["-v", "4", "-v", "6"], "global.verbose", 6),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_flag_as_go_takes_it(words: list[str], key: str, value: object) -> None:
    assert parse_flags(words).values == {key: value}


@pytest.mark.req("NE-132")
def test_every_switch_may_be_turned_off() -> None:
    for flag in FLAGS.values():
        if flag.is_switch and flag.key:
            assert parse_flags([f"{flag.name}=false"]).values == {flag.key: False}, flag.name
            assert parse_flags([flag.name]).values == {flag.key: True}, flag.name


@pytest.mark.req("NE-065")
def test_a_reference_container_is_three_names() -> None:
    assert list(parse_flags(["--reference-container=ns/pod/container"]).values.values()) == ["ns", "pod", "container"]
    for wrong in ("ns/pod", "ns//container", "a/b/c/d"):
        with pytest.raises(
            InvalidExporterConfiguration, match=r"--reference-container: .* is not namespace/pod/container"
        ):
            parse_flags(["--reference-container", wrong])


@pytest.mark.req("NE-135")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sleep-intervall=3s"], "--sleep-intervall: unknown flag; did you mean --sleep-interval?"),
        (["-x"], "-x: unknown flag; polyarch run numa-exporter --help lists them"),
        (["---oneshot"], "---oneshot: unknown flag; did you mean --oneshot?"),
        (["--sleep-interval"], "--sleep-interval: a value is missing; write --sleep-interval DURATION"),
        (["--sleep-interval=-3s"], "--sleep-interval: a duration must not be negative"),
        (
            ["--sleep-interval=3"],
            "--sleep-interval: invalid duration '3': write numbers with units ms, s, m or h, such",
        ),
        (["--oneshot=maybe"], "--oneshot: 'maybe' is neither true nor false"),
        (["--metrics-mode=tls"], "--metrics-mode: unknown value 'tls'; expected one of disabled, http, httptls"),
        (["--metrics-port=70000"], "--metrics-port: 70000 is out of range; expected from 0 to 65535"),
        (["--metrics-ip=localhost"], "--metrics-ip: 'localhost' is not an IP address"),
        (["--metrics-port=x"], "--metrics-port: 'x' is not a whole number"),
        (["--podresources-socket=/run/x.sock"], "--podresources-socket: '/run/x.sock' is neither unix:///path/to"),
        (["--node-group=a b"], "--node-group: 'a b' cannot be a label's value"),
        (["--max-events-per-second=0"], "--max-events-per-second: 0 is out of range; expected at least 1"),
        (["/etc/rte", "/run/rte"], "/run/rte: too many arguments: there is one directory of configuration, and /etc/"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_taken_is_named_with_a_reason(words: list[str], message: str) -> None:
    with pytest.raises(InvalidExporterConfiguration) as caught:
        parse_flags(words)
    assert str(caught.value).startswith(message)


@pytest.mark.req("NE-130")
@pytest.mark.parametrize(
    "words", [["/etc/rte", "--oneshot"], ["--oneshot", "/etc/rte"], ["--oneshot", "--", "/etc/rte"]]
)
def test_the_root_may_stand_anywhere(words: list[str]) -> None:
    assert parse_flags(words).root == "/etc/rte"
