"""The images that a report has to know about, each once (RP-003).

An image that is asked for with the pull secrets of a namespace is a question of that namespace: its answer counts there
alone. Pure.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from polyarch.images.pod_images import images_of
from polyarch.images.pull_secrets import PullSource
from polyarch.oci.reference import Reference, parse
from polyarch.reports.facts.cluster import Facts
from polyarch.reports.facts.readings import Answers
from polyarch.reports.judging.verdicts import Judge


class Question(NamedTuple):
    """An image, and the pull secrets that it is asked with; without them it is asked for all."""

    image: str
    reference: Reference
    source: PullSource | None

    @property
    def namespace(self) -> str:
        return self.source.namespace if self.source is not None else ""


def questions_of(facts: Facts, *, with_secrets: bool) -> Iterator[Question]:
    """The images of workloads that are not only counted."""
    for judged in Judge(facts, Answers(), ()).judged():
        if judged.is_excluded:
            continue
        workload = judged.workload
        source = PullSource.of(workload.template, workload.namespace) if with_secrets else None
        if source is not None and not source.names:
            source = None
        for use in images_of(workload.template, searched=facts.short_names_searched):
            if use.reference is not None:
                yield Question(use.text, use.reference, source)


def plain(images: Iterable[str]) -> Iterator[Question]:
    """About images of no namespace. Raises ``InvalidReference``."""
    for image in images:
        yield Question(image, parse(image), None)
