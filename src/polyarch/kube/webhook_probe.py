"""Whether the API server reaches a webhook: only the API server itself can tell.

Pods that are ready say nothing of Services, network policies and certificates between them and the API server, and a
webhook that may be passed by is passed by in silence. So a second entry with the same ``clientConfig`` is registered
beside the webhook's. It must not be passed by, and is called for one ConfigMap alone, which is created as a dry run.
The webhook denies it, so nothing else of admission has a say: a denial shows that the webhook was reached, and a failed
call comes with the API server's words about the cause.

Of several API servers the one that answers is asked."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final, Protocol

import structlog

from polyarch.clock import Clock, deadline
from polyarch.kube.errors import ApiError, KubernetesError
from polyarch.kube.resources import CONFIGMAPS, Resource

log = structlog.get_logger(__name__)

Document = dict[str, Any]

PROBE: Final = "polyarch-webhook-probe"
"""Name of the ConfigMap, and the label that it has; nobody else's ConfigMap is reviewed."""
REACHED: Final = "the webhook answers"
"""Its denial."""
PROBE_INTERVAL: Final = 30.0
"""Seconds between two questions."""
REPEATED_INTERVAL: Final = 1.0
"""Seconds between two questions while there is no good answer."""
LASTING: Final = 3.0
"""Seconds for which the webhook must have been out of reach before that counts, where it was reached before: API
servers learn of new endpoints and registrations by watches."""
PATIENCE: Final = 0.5
"""Seconds that whoever begins a question waits for its answer; a webhook that is out of reach takes as long as its
timeout."""
LONGEST: Final = 15.0
"""Seconds until a question without an answer is given up: half of the timeout that a webhook can have."""
NOT_KNOWN: Final = "the API server has not said yet whether it reaches the webhook"
_URL: Final = re.compile(r'(?:Post )?"(https?://[^/"]*)[^"]*"')
"""In the API server's words; the path may have a secret."""


def probe_entry(webhook: Mapping[str, Any], *, namespace: str) -> Document:
    """The entry beside ``webhook``, an entry of a MutatingWebhookConfiguration, for ConfigMaps of ``namespace``."""
    return {
        "name": probe_name(webhook["name"]),
        "admissionReviewVersions": webhook["admissionReviewVersions"],
        "clientConfig": webhook["clientConfig"],
        "failurePolicy": "Fail",
        "matchPolicy": "Exact",
        "reinvocationPolicy": "Never",
        "sideEffects": "None",
        "timeoutSeconds": webhook["timeoutSeconds"],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "objectSelector": {"matchLabels": {PROBE: webhook["name"]}},
        "rules": [
            {
                "apiGroups": [CONFIGMAPS.group],
                "apiVersions": [CONFIGMAPS.version],
                "operations": ["CREATE"],
                "resources": [CONFIGMAPS.plural],
                "scope": "Namespaced",
            }
        ],
    }


def probe_name(webhook: str) -> str:
    return f"probe.{webhook}"


def is_probe(resource: str, name: str) -> bool:
    """Whether a review is such a question: by the plural of its resource, and its object's name."""
    return (resource, name) == (CONFIGMAPS.plural, PROBE)


class Creates(Protocol):
    """The part of a client that is used."""

    async def create(
        self,
        resource: Resource,
        document: Mapping[str, Any],
        *,
        namespace: str = "",
        dry_run: bool = False,
        retry: bool = True,
    ) -> Any: ...


class WebhookProbe:
    """Asks the API server for one webhook, by its name, and remembers the answer. One question at a time, in a task."""

    def __init__(self, client: Creates, clock: Clock, *, webhook: str, namespace: str) -> None:
        self._client = client
        self._clock = clock
        self._webhook = webhook
        self._namespace = namespace
        self._problem = ""
        self._question: asyncio.Task[str] | None = None
        self._is_answered = False
        self._asked_at: float | None = None
        self._failing_since: float | None = None
        self._unsaid = ""

    @property
    def wait(self) -> float:
        """Seconds until it is worth calling :meth:`problem` again."""
        return REPEATED_INTERVAL if self._problem or self._question is not None else PROBE_INTERVAL

    def forget(self) -> None:
        """The webhook is not registered, or nobody could answer."""
        if self._question is not None:
            self._question.cancel()
        self._question, self._is_answered = None, False
        self._problem, self._asked_at, self._failing_since = "", None, None

    async def problem(self, *, was_reached: bool, is_current: bool) -> str:
        """Why the API server does not reach the webhook, as a sentence; empty: it does, or says nothing of it.

        Takes :data:`PATIENCE` at most; an answer that comes later counts from the next call on. ``was_reached``: so it
        was said last, and is said until the contrary lasts. ``is_current``: no pod of an earlier version may answer,
        which lets everything pass.
        """
        self._take_answer()
        now = self._clock.monotonic()
        if self._question is None and (self._asked_at is None or now - self._asked_at >= self.wait):
            self._asked_at = now
            self._question = asyncio.create_task(self._ask(is_current), name=f"probe of {self._webhook}")
            try:
                async with deadline(self._clock, PATIENCE):
                    await asyncio.wait({self._question})
            except TimeoutError:
                pass
            self._take_answer()
        if not self._is_answered:
            return "" if was_reached else NOT_KNOWN
        lasted = self._clock.monotonic() - self._failing_since if self._failing_since is not None else 0.0
        return "" if was_reached and lasted < LASTING else self._problem

    def _take_answer(self) -> None:
        if self._question is None or not self._question.done():
            return
        question, self._question = self._question, None
        self._problem, self._is_answered = question.result(), True
        if not self._problem:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = self._clock.monotonic()
            log.warning("webhook not reached", webhook=self._webhook, problem=self._problem)

    async def _ask(self, is_current: bool) -> str:
        document = {
            "apiVersion": CONFIGMAPS.api_version,
            "kind": CONFIGMAPS.kind,
            "metadata": {"name": PROBE, "namespace": self._namespace, "labels": {PROBE: self._webhook}},
        }
        name, unsaid = probe_name(self._webhook), ""
        try:
            async with deadline(self._clock, LONGEST):
                await self._client.create(CONFIGMAPS, document, namespace=self._namespace, dry_run=True, retry=False)
        except ApiError as error:
            if f'failed calling webhook "{name}"' in error.message:
                return f"the API server cannot call it: {_URL.sub(_shown, error.message)}"
            if f'admission webhook "{name}" denied' not in error.message:
                unsaid = str(error)  # somebody else's refusal came first
        except KubernetesError as error:
            unsaid = str(error)
        except TimeoutError:
            unsaid = f"no answer within {LONGEST:g} s"
        else:
            if is_current:
                return "the API server passes it by, although it is registered, or another program answers"
        if unsaid and unsaid != self._unsaid:
            log.info("cannot tell if the webhook is reached", webhook=self._webhook, problem=unsaid)
        self._unsaid = unsaid
        return ""


def _shown(url: re.Match[str]) -> str:
    return str(url[1])
