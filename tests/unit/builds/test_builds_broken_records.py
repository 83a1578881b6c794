"""What polyarch noted in objects that others may edit: a text that is no record counts as none, whatever it is.

A pass that ended with an error for such a text would never end in another way: a finalizer would hold its namespace for
ever.
"""

from collections.abc import Callable
from typing import Any

import pytest

from polyarch.builds.controller.pruner import PrunePodSettings, pod_settings
from polyarch.builds.facts.build_facts import Execution
from polyarch.builds.machineos.api import ExecutionConfigMap
from polyarch.builds.machineos.records import ExecutionRecord, read_record
from polyarch.builds.plan.failures import recorded_witness

DEEP = '{"x":' + "[" * 50_000 + "]" * 50_000 + "}"
READERS: dict[str, tuple[Callable[[str], Any], Any]] = {
    "how images of a Run are deleted": (pod_settings, PrunePodSettings()),
    "the witness of an execution": (
        lambda text: recorded_witness(Execution(namespace="team", name="web-1", recorded=text)),
        {},
    ),
    "the execution of a machine OS build": (
        lambda text: read_record(
            ExecutionConfigMap(name="a", build="b", owners=frozenset(), deleting=True, architectures="", execution=text)
        ),
        ExecutionRecord(),
    ),
}


@pytest.mark.req("BD-233")
@pytest.mark.parametrize(
    "text", ["{", "[]", '"', DEEP], ids=["cut off", "a list", "half a text", "deeper than a stack"]
)
@pytest.mark.parametrize("reader", READERS)
def test_a_text_that_is_no_record_counts_as_none(reader: str, text: str) -> None:
    read, nothing = READERS[reader]
    assert read(text) == nothing
