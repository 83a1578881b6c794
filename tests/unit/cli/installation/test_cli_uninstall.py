"""``polyarch uninstall``: who is asked, and what."""

import io
import sys
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest

from polyarch.cli import main
from polyarch.cli.installation import uninstall as teardown
from polyarch.installation import uninstall
from polyarch.installation.uninstall import UninstallResult
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import CRDS, Resource
from polyarch.kube.responses import ListResult
from polyarch.kube.settings import Configuration
from polyarch.objects import ObjectMeta, PartialObjectMetadata
from polyarch.placement.api import CPPCS, POLICIES, PPCS

ASKED = (
    "polyarch: This removes polyarch from namespace polyarch-system of https://api.example; custom resources: "
    "ClusterPodPlacementConfig (1), PodPlacementConfig (3); 2 waiting pods are let go. Go on? [y/N] "
)


class Cluster:
    """What an uninstall looks at before it begins."""

    configuration = Configuration("https://api.example")
    objects: ClassVar = {CPPCS: 1, PPCS: 3, POLICIES: 0}

    async def list(self, resource: Resource, *, type: type[Any], **_: Any) -> Any:
        if resource == CRDS:
            found = [f"{each.plural}.{each.group}" for each in self.objects] + ["widgets.example.com"]
        else:
            found = [f"{resource.plural}-{number}" for number in range(self.objects.get(resource, 0))]
        return ListResult([PartialObjectMetadata(metadata=ObjectMeta(name=each)) for each in found], "1")

    async def discover(self, group: str) -> tuple[Resource, ...]:
        assert group != "example.com", "it is not ours"
        served = [each for each in self.objects if each.group == group]
        older = [Resource(each.group, "v1alpha1", each.plural, each.kind, each.namespaced) for each in served]
        return (*served, *older)

    async def get(self, *_: Any, **__: Any) -> Any:
        raise NotFound(404)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def removed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The namespaces from which polyarch would have been removed."""
    found: list[str] = []

    async def on_cluster(_: str, __: Any, work: Callable[[Any], Awaitable[Any]]) -> Any:
        return await work(Cluster())

    async def remove(_: Any, namespace: str, **__: Any) -> UninstallResult:
        found.append(namespace)
        return UninstallResult()

    async def gated(_: Any) -> list[str]:
        return ["one", "two"]

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(teardown, "on_cluster", on_cluster)
    monkeypatch.setattr(uninstall, "remove", remove)
    monkeypatch.setattr("polyarch.installation.uninstall.gated_pods", gated)
    return found


@pytest.mark.req("IN-003")
@pytest.mark.parametrize(("answer", "code", "goes_on"), [("y", 0, True), ("", 2, False), ("n", 2, False)])
def test_who_sits_at_a_terminal_is_asked_with_what_goes(
    answer: str, code: int, goes_on: bool, removed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n"))
    assert main(["uninstall"]) == code
    assert capsys.readouterr().err.startswith(ASKED)
    assert removed == (["polyarch-system"] if goes_on else [])


@pytest.mark.req("IN-003")
@pytest.mark.parametrize("option", ["--yes", None])
def test_scripts_are_not_asked(
    option: str | None, removed: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Nor is who has said yes."""
    monkeypatch.setattr(sys, "stdin", io.StringIO() if option is None else Terminal())
    assert main(["uninstall", *([option] if option else [])]) == 0
    assert "[y/N]" not in capsys.readouterr().err
    assert removed == ["polyarch-system"]
