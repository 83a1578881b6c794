"""The images of many pods of a cluster, asked as their nodes would ask: with the pull secrets of each pod.

The user's own credentials come after them. Secrets are read only when a registry asks for a credential. What has been
answered stays answered for as long as the command runs, so pods may be given again after the cluster has changed.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from polyarch.cli.images.resolve import how
from polyarch.cli.input.objects import load_platforms_file
from polyarch.cli.options.images import ImageOptions, cache_directory
from polyarch.cli.output.messages import Messages
from polyarch.clock import SystemClock
from polyarch.images.pod_images import images_of
from polyarch.images.pull_secrets import PullSecretNames, PullSecrets
from polyarch.kube.client import Client
from polyarch.kube.resources import SECRETS
from polyarch.objects import Pod, Secret
from polyarch.oci.auth.credential_stores import ChainedCredentials, CredentialStore
from polyarch.oci.concurrency import map_concurrently
from polyarch.oci.image.deep_inspection import look_deeper
from polyarch.oci.inspection import Inspection
from polyarch.oci.inspector import Inspector, InspectorOptions, open_inspector
from polyarch.oci.reference import Reference
from polyarch.oci.settings import InspectorSettings

SETTLED_AT_ONCE = 8


class Question(NamedTuple):
    """An image and the pull secrets to ask with."""

    reference: Reference
    source: PullSecretNames | None
    """None: the pod names no secret, so all such pods share the answer."""


class PodImages:
    """What the images of pods say. Open it with :func:`open_pod_images`."""

    def __init__(
        self,
        inspector: Inspector,
        secrets: PullSecrets,
        credentials: CredentialStore,
        options: ImageOptions,
        messages: Messages,
    ) -> None:
        self._inspector = inspector
        self._secrets = secrets
        self._credentials = credentials
        self._options = options
        self._messages = messages
        self._answers: dict[Question, Inspection] = {}

    def of(self, pod: Pod) -> Mapping[str, Inspection]:
        """The answers for a pod that :meth:`ask` was given, by the texts of its images."""
        found = {text: self._answers.get(question) for text, question in _questions(pod).items()}
        return {text: answer for text, answer in found.items() if answer is not None}

    async def ask(self, pods: Iterable[Pod]) -> None:
        """Asks for every image of these pods that has no answer yet."""
        wanted = {question: None for pod in pods for question in _questions(pod).values()}
        missing = [question for question in wanted if question not in self._answers]
        if not missing:
            return
        shown = self._messages.progress("inspecting images", len(missing))

        async def one(question: Question) -> Inspection:
            answer = await self._inspected(question)
            shown.advance()
            return answer

        with shown:
            found = await map_concurrently(one, missing, at_once=self._inspector.settings.requests)
            depth = self._options.deep
            if depth is not None:
                found = await map_concurrently(
                    lambda answer: look_deeper(self._inspector.connection, answer, depth),
                    found,
                    at_once=SETTLED_AT_ONCE,
                )
        for answer in found:
            self._messages.detail(how(answer))
        self._answers.update(zip(missing, found, strict=True))

    async def look_again(self, pods: Iterable[Pod]) -> None:
        """Looks at the indexes of pods that could run nowhere again: they may be operator bundles, which constrain
        nothing."""
        wanted = {question: None for pod in pods for question in _questions(pod).values()}
        indexes = [each for each in wanted if _is_index(self._answers.get(each))]
        found = await map_concurrently(
            lambda question: self._inspected(question, again=True), indexes, at_once=self._inspector.settings.requests
        )
        self._answers.update(zip(indexes, found, strict=True))

    async def _inspected(self, question: Question, *, again: bool = False) -> Inspection:
        source = question.source
        store = self._credentials
        if source is not None:
            store = ChainedCredentials([self._secrets.lazy(source), self._credentials])
        return await self._inspector.inspect(
            question.reference,
            credentials=store,
            fresh=self._options.fresh and not again,
            bundle="always" if again else "auto",
        )


@asynccontextmanager
async def open_pod_images(client: Client, options: ImageOptions, messages: Messages) -> AsyncIterator[PodImages]:
    """``UsageError`` for options that cannot be used; pull secrets are read with ``client``."""

    async def read(namespace: str, name: str) -> Secret:
        return await client.get(SECRETS, name, namespace=namespace, type=Secret)

    credentials = options.access.credentials()
    secrets = PullSecrets(read, SystemClock())
    try:
        async with open_inspector(wiring_of(options), notice=messages.detail) as inspector:
            yield PodImages(inspector, secrets, credentials, options, messages)
    finally:
        await secrets.aclose()


def wiring_of(options: ImageOptions, *, revalidate_interval: float | None = None) -> InspectorOptions:
    """How images are asked for. ``revalidate_interval``: how young a tag's check may be that ``fresh`` still takes."""
    access, file, usual = options.access, options.platforms_file, InspectorSettings()
    return InspectorOptions(
        settings=InspectorSettings(
            timeout=access.timeout,
            max_wait=access.max_wait,
            requests_per_host=access.concurrency,
            requests=max(access.concurrency, usual.requests),
            revalidate_interval=usual.revalidate_interval if revalidate_interval is None else revalidate_interval,
        ),
        configuration=access.configuration(),
        trust=access.trust(),
        answers=load_platforms_file(file) if file is not None else None,
        offline=options.offline,
        cache_directory=None if options.no_cache else cache_directory(options.cache_dir),
    )


def _questions(pod: Pod) -> dict[str, Question]:
    source = PullSecretNames.of(pod, pod.metadata.namespace)
    secrets = source if source.names else None
    return {use.text: Question(use.reference, secrets) for use in images_of(pod) if use.reference is not None}


def _is_index(answer: Inspection | None) -> bool:
    return answer is not None and answer.constrains and answer.kind == "index"
