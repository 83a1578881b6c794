"""Which toleration covers which taint, and the toleration that polyarch writes."""

from typing import Any

import msgspec
import pytest

from polyarch.tolerations import Taint, Toleration, covers, is_tolerated, tolerating, uncovered

SCHEDULE = Taint(key="supported-arch", value="arm64", effect="NoSchedule")
EXECUTE = Taint(key="supported-arch", value="arm64", effect="NoExecute")
BARE = Taint(key="dedicated", effect="NoSchedule")


@pytest.mark.req("TN-030")
@pytest.mark.parametrize(
    ("toleration", "taint", "expected"),
    [
        ({"operator": "Exists"}, SCHEDULE, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, SCHEDULE, True),
        ({"operator": "Exists", "effect": "NoExecute"}, SCHEDULE, False),
        ({"key": "supported-arch", "operator": "Exists"}, SCHEDULE, True),
        ({"key": "other", "operator": "Exists"}, SCHEDULE, False),
        ({"key": "supported-arch", "operator": "Equal", "value": "arm64"}, SCHEDULE, True),
        ({"key": "supported-arch", "value": "arm64", "effect": "NoSchedule"}, SCHEDULE, True),
        ({"key": "supported-arch", "value": "amd64"}, SCHEDULE, False),
        ({"key": "supported-arch"}, SCHEDULE, False),
        ({"key": "", "operator": "Equal", "value": "arm64"}, SCHEDULE, False),
        ({"key": "supported-arch", "operator": "In", "value": "arm64"}, SCHEDULE, False),
        ({"key": "dedicated"}, BARE, True),
        ({"key": "supported-arch", "value": "arm64", "effect": "NoExecute"}, EXECUTE, True),
        ({"key": "supported-arch", "value": "arm64", "tolerationSeconds": 300}, EXECUTE, False),
        ({"key": "supported-arch", "value": "arm64", "tolerationSeconds": 0}, EXECUTE, False),
        ({"operator": "Exists", "tolerationSeconds": 300}, SCHEDULE, True),
    ],
)
def test_which_toleration_covers_which_taint(toleration: dict[str, Any], taint: Taint, expected: bool) -> None:
    assert covers(msgspec.convert(toleration, Toleration), taint) is expected


@pytest.mark.req("TN-030")
def test_one_of_several_tolerations_is_enough_and_none_covers_nothing() -> None:
    held = [Toleration(key="other", operator="Exists"), Toleration(key="supported-arch", operator="Exists")]
    assert is_tolerated(SCHEDULE, held)
    assert not is_tolerated(SCHEDULE, held[:1])
    assert not is_tolerated(SCHEDULE, None)


@pytest.mark.req("TN-032")
def test_what_is_uncovered_keeps_its_order() -> None:
    taints = [Taint("k", each, "NoSchedule") for each in ("s390x", "amd64", "arm64")]
    assert uncovered(taints, [Toleration(key="k", value="amd64")]) == (taints[0], taints[2])


@pytest.mark.req("TN-032")
def test_a_written_toleration_covers_its_taint_alone_and_names_its_operator() -> None:
    written = tolerating(EXECUTE)
    assert msgspec.to_builtins(written) == {
        "key": "supported-arch",
        "operator": "Equal",
        "value": "arm64",
        "effect": "NoExecute",
    }
    assert covers(written, EXECUTE)
    assert not covers(written, SCHEDULE)
