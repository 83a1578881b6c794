"""The part of the demo about image builds: what is built, and when it is over."""

from typing import Any

import msgspec
import pytest

from polyarch.builds.api.resources import ImageBuild
from polyarch.builds.api.validation import object_problems
from polyarch.sandbox.demo.components import document, is_published, problem_of


def seen(observed: int, **conditions: tuple[str, str]) -> ImageBuild:
    found = [
        {"type": name, "status": status, "reason": reason, "message": f"{name} {reason}"}
        for name, (status, reason) in conditions.items()
    ]
    return msgspec.convert({"status": {"observedGeneration": observed, "conditions": found}}, ImageBuild)


WELL: dict[str, Any] = {
    "InputsValid": ("True", "Valid"),
    "Progressing": ("False", "Done"),
    "Ready": ("True", "Published"),
    "Degraded": ("False", "None"),
}


@pytest.mark.req("BD-391")
def test_the_build_of_the_demo_is_one_that_would_be_accepted() -> None:
    assert list(object_problems(document("127.0.0.1:5000/demo-builds/shop"))) == []


@pytest.mark.req("BD-391")
@pytest.mark.parametrize(
    ("build", "published", "problem"),
    [
        pytest.param(seen(2, **WELL), True, "", id="published"),
        pytest.param(seen(1, **WELL), False, "", id="the one before"),
        pytest.param(seen(2, **WELL | {"Progressing": ("True", "Building")}), False, "", id="the next is at work"),
        pytest.param(seen(2, **WELL | {"Ready": ("True", "Outdated")}), False, "", id="an older one is published"),
        pytest.param(
            seen(2, **WELL | {"Degraded": ("True", "BuildFailed"), "Ready": ("False", "NotBuilt")}),
            False,
            "Degraded BuildFailed",
            id="failed",
        ),
        pytest.param(
            seen(2, InputsValid=("False", "BaseImageNotFound")), False, "InputsValid BaseImageNotFound", id="invalid"
        ),
        pytest.param(seen(0), False, "", id="not looked at"),
    ],
)
def test_the_demo_waits_for_the_build_that_it_asked_for(build: ImageBuild, published: bool, problem: str) -> None:
    assert (is_published(build, 2), problem_of(build)) == (published, problem)
