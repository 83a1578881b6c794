"""The file that the operator writes, and flags: a wrong one is named, a flag wins."""

import msgspec
import pytest

from polyarch.numa.api.resources import SchedulerSettings
from polyarch.numa.extender.configuration import BY_FLAG, InvalidExtenderConfiguration, compiled
from polyarch.numa.extender.settings import ExtenderSettings
from polyarch.operator.components.numa_scheduler_objects import extender_configuration


def of_file(**content):
    return compiled(content, {}, origin="file")


def of_flags(**flags):
    return compiled({}, {f"--{name.replace('_', '-')}": value for name, value in flags.items()}, origin="")


@pytest.mark.req("NS-003")
def test_what_the_operator_writes_is_read():
    written = SchedulerSettings(
        name="numa",
        detection="Aggressive",
        scoring="MostAllocated",
        scored=(("cpu", 3), ("memory", 1)),
        preempts=True,
        mode="advise",
        restricted_policy="score",
        candidates=4,
        resync_debug="Disabled",
    )
    assert of_file(**extender_configuration(written)) == ExtenderSettings(
        mode="advise",
        scheduler_name="numa",
        strategy="MostAllocated",
        weights={"cpu": 3, "memory": 1},
        restricted="score",
        candidates=4,
        foreign="all",
        resync_debug="Disabled",
        preempt=True,
    )


@pytest.mark.req("NS-112")
def test_a_resync_period_of_zero_turns_reservations_off():
    settings = of_file(**extender_configuration(SchedulerSettings(resync_period=0.0)))
    assert not settings.reservations


@pytest.mark.req("NS-003")
def test_a_flag_wins_over_the_file():
    settings = compiled({"mode": "advise", "ttl": "5m"}, {"--mode": "exact"}, origin="file")
    assert (settings.mode, settings.ttl) == ("exact", 300.0)


@pytest.mark.req("NS-003")
@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        ({"ttl": "1m30s"}, "ttl", 90.0),
        ({"max_staleness": "10s"}, "max_staleness", 10.0),
        ({"weights": "cpu=2, example.com/nic=5"}, "weights", {"cpu": 2, "example.com/nic": 5}),
        ({"weights": "cpu=0"}, "weights", {"cpu": 1}),
        ({"listen": "127.0.0.1:0"}, "listen", ("127.0.0.1", 0)),
        ({"listen": "[::1]:9448"}, "listen", ("::1", 9448)),
        ({"status_listen": ":8448"}, "status_listen", ("", 8448)),
        ({"reservations": "off"}, "reservations", False),
        ({"bind": True}, "bind", True),
        ({"kick": "none"}, "kick", "none"),
    ],
)
def test_flags(flags, field, value):
    assert getattr(of_flags(**flags), field) == value


@pytest.mark.req("NS-003")
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"mod": "exact"}, "did you mean mode"),
        ({"surprise": 1}, "surprise is no setting"),
        ({"resyncPeriod": "0s"}, "removed: delete it, or in place of 0s write reservations: off"),
        ({"resyncDetection": "Aggressive"}, "removed: delete it, or in place of Aggressive write foreign: all"),
        ({"informer": "Shared", "compatStrict": True}, "removed: delete it; compatStrict is of mode compat"),
        ({"mode": "plugin"}, "exact, advise"),
        ({"candidates": 0}, "1 to 16"),
        ({"candidates": 17}, "1 to 16"),
        ({"candidates": "3"}, "1 to 16"),
        ({"candidates": True}, "1 to 16"),
        ({"ttl": "soon"}, "duration"),
        ({"ttl": "0s"}, "duration"),
        ({"ttl": "-5s"}, "duration"),
        ({"ttl": 60}, "duration"),
        ({"ttl": "9000h"}, "duration"),
        ({"weights": {"cpu": 1.5}}, "whole weights"),
        ({"weights": {"": 1}}, "whole weights"),
        ({"weights": "cpu"}, "whole weights"),
        ({"weights": 3}, "weights by resource"),
        ({"listen": "9448"}, "ADDRESS:PORT"),
        ({"listen": "a:99999"}, "ADDRESS:PORT"),
        ({"preempt": "yes"}, "true or false"),
        ({"reservations": "maybe"}, "on or off"),
        ({"schedulerName": ""}, "a name"),
        ({"schedulerName": None}, "a text"),
    ],
)
def test_what_is_wrong_is_named_with_its_file_and_key(content, said):
    with pytest.raises(InvalidExtenderConfiguration) as told:
        of_file(**content)
    assert said in str(told.value)
    assert str(told.value).startswith("file: ")
    assert next(iter(content)) in str(told.value)


@pytest.mark.req("NS-003")
def test_a_wrong_flag_is_named_itself():
    with pytest.raises(InvalidExtenderConfiguration, match=r"^--mode: 'x': expected exact, advise$"):
        of_flags(mode="x")


@pytest.mark.req("NS-003")
def test_settings_pass_through_the_handover():
    settings = of_flags(mode="advise", weights="cpu=2", listen="127.0.0.1:1")
    assert msgspec.json.decode(msgspec.json.encode(settings), type=ExtenderSettings) == settings


@pytest.mark.req("NS-003")
def test_every_flag_of_the_table_is_a_flag_of_the_command():
    from polyarch.cli.roles.numa_extender import app

    there = {name for each in app.assemble_argument_collection() for name in each.names}
    assert set(BY_FLAG) <= there
