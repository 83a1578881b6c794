"""Children and results for the tests of publishing."""

import pytest
from image_parts import layer, put_image

from polyarch.builds.registry import ChildImage, Publication


@pytest.fixture
def put(target):
    """``put("arm64")``: a child in ``team/app`` of the target (or elsewhere), as its publication names it."""

    def put(architecture, *, at=None, repository="team/app", platform="", tag="", layers=None, **more):
        at = at or target
        body = layers or [layer({"app": architecture.encode() * 50})]
        digest = put_image(at, repository, f"run-{architecture}", platform or f"linux/{architecture}", body, **more)
        name = f"{at.host}/{repository}@{digest}"
        return ChildImage(architecture=architecture, reference=name, tag=tag)

    return put


@pytest.fixture
def publication(target):
    """``publication(child, …)``: a result of ``team/app`` with the tag of its execution."""

    def publication(*children, tags=("run",), **more):
        return Publication(repository=f"{target.host}/team/app", children=children, tags=tags, **more)

    return publication


@pytest.fixture
def result_of():
    """``result_of(registry, children)``: a result of ``team/app`` in a registry other than the target."""
    return lambda registry, children: Publication(
        repository=f"{registry.host}/team/app", children=children, tags=("run",)
    )
