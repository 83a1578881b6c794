"""Tests that `make test` leaves to `make long`: they take longest, and each has a shorter sibling that is always run.

Continuous integration has two cores and ninety minutes. What is here repeats, at every step or with another program or
answer, what another test shows once.
"""

from collections.abc import Iterable

import pytest

LONG: dict[str, str] = {
    "test_installed_faults.py::test_pl_540_pl_530_no_admission_fails_while_certificates_and_replicas_are_replaced": (
        "fifty admissions a second for minutes; a roll-out under load is in test_in_004_an_upgrade_from"
    ),
    "test_operator_faults.py::test_pl_522_killed_at_every_step_of_install_and_uninstall": (
        "every step; one is in test_operator_lifecycle.py"
    ),
    "test_numa_operator_faults.py::test_no_040_no_072_killed_at_every_step_of_bringing_and_removing_exporters": (
        "every step; bringing and removing is in test_numa_operator.py"
    ),
    "test_taints_faults.py::test_tn_092_an_api_server_that_refuses[500": "another answer than 409 and 429",
    "test_taints_faults.py::test_tn_092_an_api_server_that_refuses[503": "another answer than 409 and 429",
    "test_builds_registry_faults.py::test_bd_394_bd_219_one_request_fails[500": "another answer than 429",
    "test_builds_registry_faults.py::test_bd_394_bd_219_one_request_fails[503": "another answer than 429",
    "test_packaging_chart_life.py::test_in_010_a_release_is_installed_upgraded_rolled_back_and_leaves_nothing[helm-3": (
        "the older Helm; Helm 4 is always run"
    ),
    "test_packaging_chart_life.py::test_in_010_templated_definitions_come_first_and_are_kept[helm-3": (
        "the older Helm; Helm 4 is always run"
    ),
    "test_sandbox_life.py::test_sb_014_polyarch_in_the_sandbox_survives_down_and_follows_its_settings": (
        "six starts of a sandbox; test_sb_003 stops and starts one"
    ),
    "test_numa_crowd.py::test_ns_172_a_backlog_is_bound_without_a_refusal_and_nobody_waits_for_nothing": (
        "a crowd of 250 pods; single ones are in test_numa_scheduling.py"
    ),
}
"""Beginning of a test's id, from the name of its file, to what it adds to the tests that are always run."""


def is_long(nodeid: str) -> bool:
    """Whether the test is in the table."""
    path, _, rest = nodeid.partition("::")
    return f"{path.rsplit('/', 1)[-1]}::{rest}".startswith(tuple(LONG))


def mark(items: Iterable[pytest.Item]) -> None:
    """Give them the marker ``long``."""
    for item in items:
        if is_long(item.nodeid):
            item.add_marker(pytest.mark.long)
