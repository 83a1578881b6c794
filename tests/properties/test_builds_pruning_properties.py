"""What is deleted is needed by nobody, and what nobody needs is deleted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.builds.facts.build_facts import ChildRecord, Execution
from polyarch.builds.pruning import count_references, unreferenced

DIGESTS = tuple(f"sha256:{letter * 64}" for letter in "0123456789")
INDEXES = tuple(f"sha256:{letter * 64}" for letter in "abcdef")
REPOSITORIES = ("quay.io/team/app", "quay.io/team/other")
ARCHITECTURES = ("amd64", "arm64", "s390x")


CHILDREN = st.dictionaries(st.sampled_from(ARCHITECTURES), st.sampled_from(DIGESTS))


@st.composite
def worlds(draw):
    """Executions, of which an index always names the same children; which of them leave, and what runs."""
    below = {index: draw(CHILDREN.filter(lambda found: len(found) > 1)) for index in INDEXES}
    executions = []
    for number in range(draw(st.integers(1, 8))):
        repository, index = draw(st.sampled_from(REPOSITORIES)), draw(st.sampled_from((*INDEXES, "")))
        children = below[index] if index else draw(CHILDREN)
        executions.append(
            Execution(
                namespace=draw(st.sampled_from(["one", "two"])),
                name=f"run-{number}",
                phase="Succeeded" if index else "Failed",
                repository=repository,
                result=f"{repository}@{index}" if index else "",
                children=tuple(ChildRecord(architecture=each, digest=digest) for each, digest in children.items()),
            )
        )
    leaving = draw(st.sets(st.sampled_from(range(len(executions)))))
    running = draw(st.sets(st.sampled_from((*DIGESTS, *INDEXES)), max_size=3))
    return below, executions, leaving, running


def own(execution):
    found = {child.digest for child in execution.children} | {execution.result.rpartition("@")[2]}
    return found - {""}


@pytest.mark.req("BD-231")
@given(worlds())
def test_nobody_needs_what_goes_and_all_else_stays(world):
    below, executions, leaving, running = world
    going = [each for at, each in enumerate(executions) if at in leaving]
    kept = [each for at, each in enumerate(executions) if at not in leaving]
    names = [f"mirror.example/x@{digest}" for digest in running]
    images = unreferenced(going, count_references(kept, running=names), known=kept)
    deleted = {(image.repository, image.digest) for image in images}

    for execution in kept:
        assert not {(execution.repository, digest) for digest in own(execution)} & deleted
    assert not {digest for _, digest in deleted} & running
    for execution in executions:
        index = execution.result.rpartition("@")[2]
        if index and (execution.repository, index) not in deleted:
            assert not {(execution.repository, digest) for digest in below[index].values()} & deleted

    for execution in going:
        place = execution.repository
        needed = set(running)
        for other in executions:
            if other.repository == place and (other in kept or other.result.rpartition("@")[2] in running):
                needed |= own(other)
        assert {digest for where, digest in deleted if where == place} >= own(execution) - needed

    order = [(image.repository, image.digest) for image in images]
    for image in images:
        for index in image.after:
            if (image.repository, index) in deleted:
                assert order.index((image.repository, index)) < order.index((image.repository, image.digest))
