"""Who put a decision annotation on a pod, by the fields that the API server attributes to its creator."""

import json
from typing import Any

import pytest

from polyarch.placement import names
from polyarch.placement.decision import creator_sent_record

ANNOTATION = f"f:{names.DECISION_ANNOTATION}"
LABELS = {"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {"f:containers": {}}}
OTHERS = {"f:metadata": {"f:annotations": {".": {}, "f:example.com/note": {}}}}
OURS = {"f:metadata": {"f:annotations": {".": {}, ANNOTATION: {}}}}


def pod(*fields: Any, **metadata: Any) -> bytes:
    managed = [{"manager": f"m{at}", "fieldsType": "FieldsV1", "fieldsV1": each} for at, each in enumerate(fields)]
    return json.dumps({"metadata": {"name": "a", "managedFields": managed, **metadata}, "spec": {}}).encode()


@pytest.mark.req("PL-853")
@pytest.mark.parametrize(
    ("document", "sent"),
    [
        (pod(LABELS), False),
        (pod(OTHERS), False),
        (pod(LABELS, OTHERS), False),
        (pod(OURS), True),
        (pod(LABELS, OURS), True),
        (pod(), True),
        (pod(managedFields=None), True),
        (b'{"metadata":{"name":"a"}}', True),
        (b'{"metadata":{"managedFields":"odd"}}', True),
        (b"[]", True),
        (pod({"f:metadata": {ANNOTATION: {}}}), False),
        (pod({"f:metadata": None}), False),
        (pod(None), True),
    ],
    ids=[
        *("no annotation", "another annotation", "two managers", "ours", "ours by the second manager", "no manager"),
        *("null", "no member", "of another type", "no object", "a label of that name", "odd fields", "no fields"),
    ],
)
def test_an_annotation_was_sent_if_some_creator_owns_it(document: bytes, sent: bool) -> None:
    """Where it cannot be told it was."""
    assert creator_sent_record(document) is sent
