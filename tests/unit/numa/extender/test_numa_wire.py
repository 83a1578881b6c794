"""What goes over the wire: Go's names of fields, names of nodes alone, few different messages."""

import msgspec
import pytest
from numa_extender import arguments, document

from polyarch.numa.extender import wire

pytestmark = pytest.mark.req("NS-082")

READ = msgspec.json.decode


@pytest.mark.req("NS-080")
def test_answers_have_the_names_of_gos_fields_and_scores_of_ten_steps():
    assert READ(wire.fitting(["b", "a"], {"c": "cannot align pod"})) == {
        "NodeNames": ["b", "a"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {"c": "cannot align pod"},
        "Error": "",
    }
    scores = [("a", 0), ("b", 9), ("c", 10), ("d", 99), ("e", 100)]
    assert [each["Score"] for each in READ(wire.priorities(scores))] == [0, 0, 1, 9, 10]
    assert READ(wire.priorities([("a", 37)])) == [{"Host": "a", "Score": 3}]
    assert READ(wire.bound("no room")) == {"Error": "no room"}


@pytest.mark.req("NS-081")
def test_names_count_once_in_their_order_and_nothing_that_fits_is_an_empty_list():
    asked = wire.question(arguments(document(), "b", "a", "b"))
    assert asked.names == ("b", "a")
    assert READ(wire.fitting([], {}))["NodeNames"] == []


@pytest.mark.req("NS-081")
def test_nodes_as_objects_are_told_how_to_come_by_name():
    body = msgspec.json.encode({"Pod": document(), "Nodes": {"items": []}, "NodeNames": None})
    assert wire.question(body).problem == "set nodeCacheCapable: true for this extender"


@pytest.mark.req("NS-081")
@pytest.mark.parametrize("missing", [{}, {"Nodes": None}, {"NodeNames": None, "Nodes": None}])
def test_a_question_about_no_nodes_is_one_about_none(missing):
    asked = wire.question(msgspec.json.encode({"Pod": document(), **missing}))
    assert (asked.names, asked.problem) == ((), "")


@pytest.mark.req("NS-083")
def test_the_scheduler_is_told_not_to_try_nodes_whose_zones_are_missing():
    told = READ(wire.fitting([], {"c": "x"}))
    assert (told["FailedNodes"], told["FailedAndUnresolvableNodes"]) == ({}, {"c": "x"})


@pytest.mark.req("NS-124")
def test_a_question_about_victims_names_them_by_node():
    proposed = {"a": {"Pods": [{"UID": "one"}, {"UID": "two"}], "NumPDBViolations": 1}, "b": {"Pods": None}, "c": None}
    body = {"Pod": document(), "NodeNameToVictims": None, "NodeNameToMetaVictims": proposed}
    asked = wire.preemption_question(msgspec.json.encode(body))
    assert asked.victims == {"a": {"one", "two"}, "b": frozenset()}
    assert asked.problem == ""
    assert READ(wire.NO_CANDIDATES) == {"NodeNameToMetaVictims": {}}


@pytest.mark.req("NS-124")
def test_victims_as_objects_are_told_how_to_come_by_name():
    body = {"Pod": document(), "NodeNameToVictims": {"a": {"Pods": [document()]}}, "NodeNameToMetaVictims": None}
    assert wire.preemption_question(msgspec.json.encode(body)).problem == wire.NOT_BY_NAME


@pytest.mark.parametrize("body", [b"", b"[]", b'{"Pod": null}', b'{"NodeNameToMetaVictims": 7}'])
def test_what_is_no_question_about_victims_is_refused(body):
    with pytest.raises(wire.InvalidRequest):
        wire.preemption_question(body)


@pytest.mark.req("NS-083")
def test_at_most_sixteen_different_messages_the_usual_ones_in_their_words():
    failed = {f"node-{number}": f"cannot align pod: r{number % 30}" for number in range(600)}
    failed |= {f"more-{number}": "cannot align pod: cpu" for number in range(50)}
    told = wire.grouped(failed)
    assert told.keys() == failed.keys()
    assert len(set(told.values())) == 16
    assert told["more-7"] == "cannot align pod: cpu"


@pytest.mark.req("NS-083")
def test_no_message_is_longer_than_200_characters():
    told = wire.grouped({"a": "x" * 500, "b": "y" * 200})
    assert (len(told["a"]), len(told["b"])) == (200, 200)


@pytest.mark.req("NS-084")
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "cannot be read"),
        (b"{", "cannot be read"),
        (b'"\xff"', "cannot be read"),
        (b'{"NodeNames": []}', "has no Pod"),
        (b'{"Pod": null}', "has no Pod"),
        (b'{"Pod": {"metadata": {"name": 1}}}', "cannot be read"),
        (b'{"Pod": {"spec": {"containers": [{"resources": {"requests": {"cpu": "many"}}}]}}}', "many"),
    ],
)
def test_what_is_no_question_is_said_in_one_line(body, said):
    with pytest.raises(wire.InvalidRequest) as told:
        wire.question(body)
    assert said in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.req("NS-084")
def test_unknown_keys_and_fields_are_ignored():
    pod = document(hostNetwork=True, tolerations=[{"key": "a"}])
    body = msgspec.json.encode({"Pod": pod, "NodeNames": ["a"], "Later": {"x": 1}})
    assert wire.question(body).pod.name == "web"


@pytest.mark.req("NS-088")
@pytest.mark.parametrize("left_out", ["PodName", "PodNamespace", "PodUID", "Node"])
def test_a_binding_names_pod_and_node(left_out):
    whole = {"PodName": "web", "PodNamespace": "demo", "PodUID": "u", "Node": "a"}
    asked = wire.bind_question(msgspec.json.encode(whole))
    assert (asked.pod_name, asked.pod_namespace, asked.pod_uid, asked.node) == ("web", "demo", "u", "a")
    with pytest.raises(wire.InvalidRequest):
        wire.bind_question(msgspec.json.encode({**whole, left_out: ""}))
