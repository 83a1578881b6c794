"""Versions of a custom resource, converted all or none, in order, with nothing lost on the way."""

import asyncio
import copy
import io
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from manual_clock import ManualClock

from polyarch.kube.admission import Webhooks
from polyarch.kube.conversion import ConversionRoute, InvalidField, Spoke, moved
from polyarch.kube.resources import Resource
from polyarch.kube.server import HttpServer

WIDGETS = Resource("example.dev", "v1", "widgets", "Widget")
HUB, OLD, OLDEST = "example.dev/v1", "example.dev/v1beta1", "example.dev/v1alpha1"
MOOD, EXACT = "example.dev/mood", "example.dev/replicas"
SIZES = {"small": 1, "large": 9}


def size_of(replicas):
    return "small" if replicas < 5 else "large"


def to_hub(document):
    """The oldest version has a size in words, and a mood that the hub knows nothing of."""
    spec, annotations = document["spec"], document["metadata"].setdefault("annotations", {})
    if "size" in spec:
        size = spec.pop("size")
        if size not in SIZES:
            raise InvalidField("spec.size", f"{size!r} is neither small nor large")
        exact = int(annotations.pop(EXACT, SIZES[size]))
        spec["replicas"] = exact if size_of(exact) == size else SIZES[size]
    if "mood" in spec:
        annotations[MOOD] = spec.pop("mood")
    if not annotations:
        del document["metadata"]["annotations"]


def from_hub(document):
    """What the version cannot say, the number of replicas, is kept in an annotation."""
    spec, annotations = document["spec"], document["metadata"].setdefault("annotations", {})
    if "replicas" in spec:
        replicas = spec.pop("replicas")
        spec["size"] = size_of(replicas)
        if SIZES[spec["size"]] != replicas:
            annotations[EXACT] = str(replicas)
    if MOOD in annotations:
        spec["mood"] = annotations.pop(MOOD)
    if not annotations:
        del document["metadata"]["annotations"]


ROUTE = ConversionRoute(
    path="/convert",
    name="widgets",
    resource=WIDGETS,
    spokes={
        "v1beta1": moved(("spec.count", "spec.replicas"), ("status.ok", "status.health.ok")),
        "v1alpha1": Spoke(to_hub, from_hub),
    },
)


def widget(api_version, name="w", *, metadata=None, **spec):
    base = {"name": name, "namespace": "demo", "uid": f"u-{name}"}
    return {"apiVersion": api_version, "kind": "Widget", "metadata": base | (metadata or {}), "spec": spec}


def review(to, *objects):
    request = {"uid": "r-1", "desiredAPIVersion": to, "objects": list(objects)}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}


@asynccontextmanager
async def serving():
    server = HttpServer(Webhooks([ROUTE]).serve)
    await server.start()
    try:
        async with aiohttp.ClientSession(server.url) as session:

            async def ask(document):
                body = document if isinstance(document, bytes) else msgspec.json.encode(document)
                async with session.post("/convert?timeout=30s", data=io.BytesIO(body)) as response:
                    return response.status, await response.read()

            yield ask
    finally:
        await server.stop()


async def converted(document):
    async with serving() as ask:
        status, body = await ask(document)
    assert status == 200
    answer = msgspec.json.decode(body)
    assert (answer["apiVersion"], answer["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    assert answer["response"]["uid"] == "r-1"
    return answer["response"]


@pytest.mark.req("KR-053")
async def test_objects_are_converted_in_their_order_and_keep_unknown_fields():
    objects = [
        widget(OLD, "a", count=3, colour="red"),
        widget(HUB, "b", replicas=4, further={"x": [1]}),
        widget(OLDEST, "c", size="large", mood="good"),
    ]
    response = await converted(review(HUB, *objects))
    assert response["result"] == {"status": "Success"}
    assert response["convertedObjects"] == [
        widget(HUB, "a", replicas=3, colour="red"),
        widget(HUB, "b", replicas=4, further={"x": [1]}),
        widget(HUB, "c", metadata={"annotations": {MOOD: "good"}}, replicas=9),
    ]


@pytest.mark.req("KR-053")
async def test_from_spoke_to_spoke_it_goes_through_the_hub():
    response = await converted(review(OLD, widget(OLDEST, size="small")))
    assert response["convertedObjects"] == [widget(OLD, count=1)]


@pytest.mark.req("KR-053")
@pytest.mark.parametrize(
    ("document", "to", "problem"),
    [
        pytest.param(
            widget(OLDEST, size="huge"),
            HUB,
            "Widget demo/w: spec.size: 'huge' is neither small nor large",
            id="a value without a counterpart",
        ),
        pytest.param(
            widget(OLD, count=1, replicas=2),
            HUB,
            "Widget demo/w: spec.replicas: is set already; it is the place of another field in this version",
            id="two fields for one place",
        ),
        pytest.param(
            widget("example.dev/v9"),
            HUB,
            "Widget demo/w: apiVersion: 'example.dev/v9' is no version of widgets.example.dev; "
            "there are v1, v1beta1, v1alpha1",
            id="an unknown version",
        ),
        pytest.param(
            {"kind": "Widget", "metadata": {"generateName": "w-"}, "apiVersion": OLDEST, "spec": None},
            HUB,
            "Widget w-: an internal error occurred",
            id="a bug",
        ),
    ],
)
async def test_a_failure_names_object_and_field_and_converts_nothing(document, to, problem):
    response = await converted(review(to, widget(OLD, "fine", count=1), document))
    assert response["result"] == {"status": "Failure", "message": problem}
    assert response["convertedObjects"] == []


@pytest.mark.req("KR-053")
async def test_of_the_metadata_only_labels_and_annotations_are_converted():
    """The API server would refuse the rest; a spoke that touches it does no harm."""

    def rename(document):
        document["metadata"] = {"name": "other", "labels": {"a": "b"}}

    route = msgspec.structs.replace(ROUTE, spokes={"v1alpha1": Spoke(rename, rename)})
    document = widget(OLDEST, metadata={"annotations": {"x": "y"}})
    assert route.convert(document, HUB)["metadata"] == {
        "name": "w",
        "namespace": "demo",
        "uid": "u-w",
        "labels": {"a": "b"},
    }


@pytest.mark.req("KR-053")
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"{", "not a ConversionReview that can be read"),
        (b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', "conversionReviewVersions: [v1]"),
        (msgspec.json.encode({**review(HUB), "request": None}), "with a request"),
        (b'{"request": {"uid": "u", "objects": [1]}}', "not a ConversionReview that can be read"),
    ],
    ids=["no JSON", "another review", "no request", "objects that are none"],
)
async def test_what_is_no_review_gets_a_sentence(body, problem):
    async with serving() as ask:
        status, answer = await ask(body)
    assert status == 400
    assert problem in answer.decode()


@pytest.mark.req("KR-053")
async def test_a_long_list_is_one_review():
    """LIST of a version that is not stored sends all objects at once."""
    objects = [widget(OLD, f"w{number}", count=1, text="x" * 10_000) for number in range(750)]
    response = await converted(review(HUB, *objects))
    assert len(response["convertedObjects"]) == 750


def slow_route(clock, turns):
    """Each conversion takes a second; it notes how often others had their turn before it."""

    def to_hub(document):
        clock.advance(1)
        document["spec"]["turns"] = turns[0]

    return ConversionRoute(path="/c", name="slow", resource=WIDGETS, spokes={"v1beta1": Spoke(to_hub, to_hub)})


async def slowly(count, *, timeout):
    """The answer to a review that arrived a second ago."""
    clock, turns = ManualClock(), [0]

    async def others():
        while True:
            turns[0] += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    body = msgspec.json.encode(review(HUB, *(widget(OLD, f"w{number}") for number in range(count))))
    try:
        route = slow_route(clock, turns)
        answer = await route.answers(clock).answer(body, timeout=timeout, arrived_at=clock.monotonic() - 1)
    finally:
        task.cancel()
    return msgspec.json.decode(answer)["response"]


@pytest.mark.req("KR-053")
async def test_other_requests_have_their_turn_between_two_objects():
    """While a long list was converted, pods were admitted without us and the probes failed."""
    response = await slowly(5, timeout=30)
    turns = [each["spec"]["turns"] for each in response["convertedObjects"]]
    assert len(set(turns)) == 5


@pytest.mark.req("KR-053")
async def test_at_the_deadline_the_answer_is_a_failure_that_says_how_far_it_came():
    """The API server had gone long before, and whoever asked read only that the webhook had not answered."""
    response = await slowly(100, timeout=10)
    assert response["convertedObjects"] == []
    assert response["result"]["status"] == "Failure"
    assert response["result"]["message"].startswith("9 of 100 objects were converted within 10 s")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
SAYS = {
    HUB: {"replicas": st.integers(0, 9)},
    OLD: {"count": st.integers(0, 9)},
    OLDEST: {"size": st.sampled_from(["small", "large"]), "mood": st.text(max_size=3)},
}


@pytest.mark.req("KR-053")
@given(st.data(), st.permutations([HUB, OLD, OLDEST]))
def test_there_and_back_is_the_identity(data, versions):
    """For whatever a version can say, by way of any other one."""
    version, through, _ = versions
    spec = data.draw(st.fixed_dictionaries({}, optional={**SAYS[version], "more": JSON}))
    document = widget(version, **spec)
    if version != OLDEST and through != OLDEST and data.draw(st.booleans()):
        document["status"] = {"ok": True} if version == OLD else {"health": {"ok": True}}
    assert ROUTE.convert(ROUTE.convert(copy.deepcopy(document), through), version) == document


@pytest.mark.req("KR-057")
@pytest.mark.parametrize("field", ["name", "apiVersion", "desired", "uid"])
async def test_whatever_a_made_up_review_says_costs_a_log_line_of_bounded_length(field):
    long = "x" * 10**6
    document = widget(long if field == "apiVersion" else OLDEST, long if field == "name" else "w", size="huge")
    asked = review(long if field == "desired" else HUB, document)
    if field == "uid":
        asked["request"]["uid"] = long
    with structlog.testing.capture_logs() as logs:
        async with serving() as ask:
            status, _ = await ask(asked)
    assert status == 200
    assert [each["event"] for each in logs] == ["objects not converted"]
    assert len(str(logs)) < 3000
