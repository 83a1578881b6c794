"""Asks for the images of workloads: each once, in parallel, and what is known when somebody interrupts it (RP-003,
RP-051).

With ``--pull-secrets`` the secrets that a workload names are read by name, and only when a registry asks for a
credential; they are never listed. The answers to such a question count for that namespace alone.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from polyarch.cli.images.pod_images import wiring_of
from polyarch.cli.images.resolve import how
from polyarch.cli.options.manifests import ImageOptions
from polyarch.cli.output.messages import Messages
from polyarch.clock import SystemClock
from polyarch.images.pull_secrets import PullSecrets, SecretClient
from polyarch.kube.client import Client
from polyarch.kube.resources import SECRETS
from polyarch.objects import Secret
from polyarch.oci.answer import Inspection
from polyarch.oci.auth.credentials import ChainedCredentials, CredentialStore
from polyarch.oci.concurrent import map_concurrently
from polyarch.oci.image.tags import list_tags
from polyarch.oci.inspect import Inspector
from polyarch.oci.layers.deep import look_deeper
from polyarch.oci.opening import open_inspector
from polyarch.oci.reference import Reference
from polyarch.oci.traffic.failures import Failure
from polyarch.platforms import NodePlatform
from polyarch.reports.facts import Answers, Facts, Reading
from polyarch.reports.gather import Question, plain, questions_of
from polyarch.reports.report import targets_of
from polyarch.reports.sums import newer_tags
from polyarch.reports.verdicts import to_ask


class Beyond(NamedTuple):
    """What is asked about besides the images of workloads: possible ways out (RP-012)."""

    substitutes: Mapping[str, str] = {}
    targets: tuple[NodePlatform, ...] = ()
    suggest: bool = False
    """Also newer tags of images that lack a target."""


class Found(msgspec.Struct, frozen=True):
    """What was learned."""

    answers: Answers
    complete: bool


async def ask(
    facts: Facts, options: ImageOptions, messages: Messages, *, client: Client | None, beyond: Beyond
) -> Found:
    """Everything that a report needs to know of images. ``client``: with it pull secrets are read. Raises
    ``InvalidSetting`` for options that cannot be used."""
    secrets = PullSecrets(_reader(client), SystemClock()) if client is not None else None
    own = options.access.credentials()
    known: dict[Question, Inspection] = {}
    complete = True
    try:
        async with open_inspector(wiring_of(options), notice=messages.detail) as inspector:
            asker = _Asker(inspector, secrets, own, options, messages, known)
            try:
                await asker.ask(questions_of(facts, with_secrets=secrets is not None))
                await asker.ask(plain(to_ask(facts, _answers(known))))
                await asker.ask(plain(_substitutes(known, beyond)))
                if beyond.suggest:
                    await asker.ask(plain(await asker.newer(facts, beyond.targets)))
            except asyncio.CancelledError:
                complete = False  # what is known so far is the answer
                task = asyncio.current_task()
                if task is not None:
                    task.uncancel()
    finally:
        if secrets is not None:
            await secrets.aclose()
    return Found(_answers(known), complete)


class _Asker:
    """Asks, and keeps each answer as it comes."""

    def __init__(
        self,
        inspector: Inspector,
        secrets: PullSecrets | None,
        own: CredentialStore,
        options: ImageOptions,
        messages: Messages,
        known: dict[Question, Inspection],
    ) -> None:
        self._inspector = inspector
        self._secrets = secrets
        self._own = own
        self._options = options
        self._messages = messages
        self._known = known

    async def ask(self, questions: Iterable[Question]) -> None:
        missing = [each for each in dict.fromkeys(questions) if each not in self._known]
        if not missing:
            return
        with self._messages.progress("inspecting images", len(missing)) as shown:

            async def one(question: Question) -> None:
                self._known[question] = await self._inspected(question)
                shown.advance()

            await map_concurrently(one, missing, at_once=self._inspector.settings.requests)
        for question in missing:
            self._messages.detail(how(self._known[question]))

    async def newer(self, facts: Facts, targets: tuple[NodePlatform, ...]) -> list[str]:
        """Newer tags of images that lack a target, a few of each. What a registry does not list has none."""
        wanted = targets_of(facts, targets)
        lacking = {
            question.reference.canonical: question.reference
            for question, answer in self._known.items()
            if question.reference.tag is not None
            and question.reference.digest is None
            and answer.constrains
            and not all(target in answer.node_platforms for target in wanted)
        }

        repositories = {reference.name: reference for reference in lacking.values()}

        async def one(reference: Reference) -> tuple[str, ...]:
            try:
                return await list_tags(self._inspector.connection.using(self._own), reference)
            except Failure as failure:
                self._messages.detail(f"{reference.name}: no tags: {failure.error.message}")
                return ()

        lists = await map_concurrently(one, repositories.values(), at_once=self._options.access.concurrency)
        tags = dict(zip(repositories, lists, strict=True))
        return [
            f"{each.name}:{tag}" for each in lacking.values() for tag in newer_tags(each.tag or "", tags[each.name])
        ]

    async def _inspected(self, question: Question) -> Inspection:
        store = self._own
        if question.source is not None and self._secrets is not None:
            store = ChainedCredentials([self._secrets.lazy(question.source), self._own])
        answer = await self._inspector.inspect(question.reference, credentials=store, fresh=self._options.fresh)
        if self._options.deep is not None:
            answer = await look_deeper(self._inspector.connection, answer, self._options.deep)
        return answer


def _substitutes(known: Mapping[Question, Inspection], beyond: Beyond) -> Iterator[str]:
    """Those of images that are in use."""
    return (beyond.substitutes[each.image] for each in known if each.image in beyond.substitutes)


def _answers(known: Mapping[Question, Inspection]) -> Answers:
    return Answers(
        Reading.of(question.image, answer, namespace=question.namespace) for question, answer in known.items()
    )


def _reader(client: Client) -> SecretClient:
    async def read(namespace: str, name: str) -> Secret:
        return await client.get(SECRETS, name, namespace=namespace, type=Secret)

    return read
