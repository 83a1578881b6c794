"""What a dry run of the API server says of a webhook, and how long that is believed."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from manual_clock import ManualClock

from polyarch.kube.errors import ApiError, Forbidden, Unavailable
from polyarch.kube.webhook_probe import (
    LASTING,
    LONGEST,
    NOT_KNOWN,
    PATIENCE,
    PROBE_INTERVAL,
    REPEATED_INTERVAL,
    WebhookProbe,
    probe_entry,
)

pytestmark = pytest.mark.req("KR-035")

WEBHOOK = "pods.example.com"
ENTRY = "probe.pods.example.com"
URL = "https://web.ns.svc:443/pods/s3cr3t?timeout=5s"
REFUSED = f'failed calling webhook "{ENTRY}": failed to call webhook: Post "{URL}": refused'
ANSWERS = Forbidden(403, message=f'admission webhook "{ENTRY}" denied the request: the webhook answers')
FAILED = ApiError(500, reason="InternalError", message=f"Internal error occurred: {REFUSED}")
OF_OTHERS = Forbidden(403, message='admission webhook "kyverno" denied the request: no ConfigMaps here')
OTHERS_FAIL = ApiError(500, message='Internal error occurred: failed calling webhook "kyverno": no endpoints')


class Asked:
    """A probe of which the test says what the API server answers."""

    def __init__(self) -> None:
        self.answer: Exception | None = ANSWERS
        self.answering = asyncio.Event()
        self.answering.set()
        self.count = 0
        self.clock = ManualClock()
        client: Any = SimpleNamespace(create=self._create)
        self.probe = WebhookProbe(client, self.clock, webhook=WEBHOOK, namespace="ns")

    async def _create(self, *_: object, dry_run: bool, **__: object) -> None:
        assert dry_run
        self.count += 1
        await self.answering.wait()
        if self.answer is not None:
            raise self.answer

    async def problem(self, *, was_reached: bool = False, is_current: bool = True) -> str:
        return await self.probe.problem(was_reached=was_reached, is_current=is_current)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(ANSWERS, "", id="denied by the webhook"),
        pytest.param(FAILED, "cannot call it", id="not called"),
        pytest.param(None, "passes it by", id="accepted"),
        pytest.param(OF_OTHERS, "", id="denied by others"),
        pytest.param(OTHERS_FAIL, "", id="others are not called"),
        pytest.param(Forbidden(403, message="exceeded quota: configmaps"), "", id="over quota"),
        pytest.param(Unavailable(0, message="no answer"), "", id="no API server"),
    ],
)
async def test_only_what_the_api_server_says_of_the_webhook_counts(answer: Exception | None, words: str) -> None:
    asked = Asked()
    asked.answer = answer
    found = await asked.problem()
    assert words in found
    assert bool(found) == bool(words)


async def test_the_path_of_the_webhook_may_be_secret_and_is_not_told() -> None:
    asked = Asked()
    asked.answer = FAILED
    found = await asked.problem()
    assert "s3cr3t" not in found
    assert found.endswith("failed to call webhook: https://web.ns.svc:443: refused")


async def test_while_pods_of_an_earlier_version_may_answer_an_accepted_probe_says_nothing() -> None:
    asked = Asked()
    asked.answer = None
    assert await asked.problem(is_current=False) == ""


async def test_what_was_reached_is_out_of_reach_once_that_lasts_and_at_once_if_it_never_was() -> None:
    asked = Asked()
    asked.answer = FAILED
    assert await asked.problem()
    asked.probe.forget()
    assert not await asked.problem(was_reached=True)
    asked.clock.advance(LASTING)
    assert await asked.problem(was_reached=True)
    asked.answer = ANSWERS
    asked.clock.advance(REPEATED_INTERVAL)
    assert not await asked.problem()


async def test_a_webhook_that_answers_is_asked_seldom_and_one_that_does_not_soon_again() -> None:
    asked = Asked()
    for _ in range(3):
        await asked.problem()
    assert (asked.count, asked.probe.wait) == (1, PROBE_INTERVAL)
    asked.clock.advance(PROBE_INTERVAL)
    asked.answer = FAILED
    await asked.problem()
    assert (asked.count, asked.probe.wait) == (2, REPEATED_INTERVAL)


async def test_a_question_without_an_answer_holds_nobody_up_and_counts_once_it_is_answered() -> None:
    asked = Asked()
    asked.answering.clear()
    asked.answer = FAILED
    first = asyncio.create_task(asked.problem())
    await asked.clock.run(PATIENCE)
    assert await asyncio.wait_for(first, 5) == NOT_KNOWN, "not available before the API server has said so"
    for _ in range(3):
        asked.clock.advance(REPEATED_INTERVAL)
        assert await asyncio.wait_for(asked.problem(was_reached=True), 5) == ""
    assert (asked.count, asked.probe.wait) == (1, REPEATED_INTERVAL), "one question at a time"
    asked.answering.set()
    await asked.clock.run(0.1)
    assert "cannot call it" in await asked.problem()


async def test_a_question_that_is_never_answered_is_given_up_and_says_nothing() -> None:
    asked = Asked()
    asked.answering.clear()
    first = asyncio.create_task(asked.problem())
    await asked.clock.run(LONGEST)
    assert await asyncio.wait_for(first, 5) == NOT_KNOWN
    assert await asked.problem() == ""
    asked.answering.set()
    asked.clock.advance(PROBE_INTERVAL)
    asked.answer = FAILED
    assert "cannot call it" in await asked.problem()
    assert asked.count == 2


async def test_the_answer_of_a_webhook_that_is_not_registered_any_more_does_not_count() -> None:
    asked = Asked()
    asked.answering.clear()
    asked.answer = FAILED
    first = asyncio.create_task(asked.problem())
    await asked.clock.run(PATIENCE)
    await first
    asked.probe.forget()
    asked.answering.set()
    asked.answer = ANSWERS
    assert await asked.problem() == ""


def test_the_entry_is_called_in_its_namespace_alone_as_the_webhook_is() -> None:
    config = {"service": {"name": "web", "namespace": "ns", "path": "/pods/token", "port": 443}, "caBundle": "x"}
    webhook = {"name": WEBHOOK, "admissionReviewVersions": ["v1"], "clientConfig": config, "timeoutSeconds": 5}
    entry = probe_entry(webhook, namespace="ns")
    assert entry["clientConfig"] == config
    assert entry["failurePolicy"] == "Fail"
    assert entry["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "ns"}}
    assert entry["objectSelector"]["matchLabels"]
