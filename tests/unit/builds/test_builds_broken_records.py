"""What polyarch noted in objects that others may edit: a text that is no record counts as none, whatever it is.

A pass that ended with an error for such a text would never end in another way: a finalizer would hold its namespace for
ever (BD-233).
"""

from collections.abc import Callable
from typing import Any

import pytest

from polyarch.builds.executions.failures import recorded_witness
from polyarch.builds.facts.facts import Execution
from polyarch.builds.machineos.case import StoredRecord
from polyarch.builds.machineos.recording import records
from polyarch.builds.pruning.prune_work import Means, means_of

DEEP = '{"x":' + "[" * 50_000 + "]" * 50_000 + "}"
READERS: dict[str, tuple[Callable[[str], Any], Any]] = {
    "how images of a Run are deleted": (means_of, Means()),
    "the witness of an execution": (
        lambda text: recorded_witness(Execution(namespace="team", name="web-1", recorded=text)),
        {},
    ),
    "the execution of a machine OS build": (
        lambda text: records.read(
            StoredRecord(name="a", build="b", owners=frozenset(), deleting=True, architectures="", execution=text)
        ),
        records.ExecutionRecord(),
    ),
}


@pytest.mark.parametrize(
    "text", ["{", "[]", '"', DEEP], ids=["cut off", "a list", "half a text", "deeper than a stack"]
)
@pytest.mark.parametrize("reader", READERS)
def test_bd_233_a_text_that_is_no_record_counts_as_none(reader: str, text: str) -> None:
    read, nothing = READERS[reader]
    assert read(text) == nothing
