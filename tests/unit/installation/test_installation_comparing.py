"""What stands in the way of an upgrade, and what it would change, from what was read of a cluster."""

from typing import Any

import pytest

from polyarch import __version__
from polyarch.installation import objects, operator, preflight, upgrade
from polyarch.installation.preflight import PreflightFacts
from polyarch.installation.settings import InstallationSettings
from polyarch.kube.resources import ObjectRef
from polyarch.objects import ObjectKey

Json = dict[str, Any]
HERE = "polyarch-system"
DOCUMENTS = objects.documents(InstallationSettings())
LIVE: dict[ObjectRef, Json | None] = {preflight.ref_of(each): each for each in DOCUMENTS}
MAJOR = int(__version__.partition(".")[0])


def facts(
    version: str | None, name: str = operator.OPERATOR, live: dict[ObjectRef, Json | None] = LIVE
) -> PreflightFacts:
    labels = {operator.VERSION: version} if version is not None else {}
    return PreflightFacts((1, 31), live, ({"metadata": {"name": name, "namespace": HERE, "labels": labels}},))


class DryRuns:
    """An API server that would store what it is given, with defaults of its own."""

    def __init__(self, **defaults: Any) -> None:
        self.defaults = defaults
        self.tried: list[ObjectKey] = []

    async def apply(self, resource: Any, document: Json, *, namespace: str, dry_run: bool, **_: Any) -> Json:
        assert dry_run, "nothing is written by who compares"
        self.tried.append(ObjectKey(namespace, document["metadata"]["name"]))
        return {**document, "metadata": {**document["metadata"], "resourceVersion": "9"}, **self.defaults}


@pytest.mark.req("IN-004")
@pytest.mark.parametrize(
    ("version", "name", "refused"),
    [
        (f"{MAJOR + 1}.0.0", operator.OPERATOR, True),
        (f"{__version__}.1", operator.OPERATOR, True),
        (__version__, operator.OPERATOR, False),
        ("0.0.1", operator.OPERATOR, False),
        (None, operator.OPERATOR, False),
        (f"{MAJOR + 1}.0.0", "another", False),
    ],
)
async def test_a_command_that_is_older_than_the_operator_is_refused(
    version: str | None, name: str, *, refused: bool
) -> None:
    nobody: Any = None
    found = await upgrade.findings(nobody, DOCUMENTS, facts(version, name))
    assert [each.outcome for each in found] == (["refused"] if refused else [])
    assert all(str(version) in each.message and __version__ in each.message for each in found)


@pytest.mark.req("IN-004")
def test_the_installed_version_is_that_of_the_operator_of_the_namespace() -> None:
    assert upgrade.installed_version(facts("1.2.3"), HERE) == "1.2.3"
    assert upgrade.installed_version(facts(None), HERE) == ""
    assert upgrade.installed_version(facts("1.2.3"), "elsewhere") == ""
    assert upgrade.installed_version(facts("1.2.3", "another"), HERE) == ""


@pytest.mark.req("IN-004")
async def test_what_is_missing_or_differs_would_change_and_nothing_else() -> None:
    service, role = (next(ref for ref in LIVE if ref.resource.kind == kind) for kind in ("Service", "ClusterRole"))
    stored = {**(LIVE[role] or {}), "rules": []}
    client: Any = DryRuns()
    changes = await upgrade.compare(client, DOCUMENTS, facts(None, live={**LIVE, service: None, role: stored}))
    assert {(each.ref, each.before is None) for each in changes} >= {(service, True), (role, False)}
    (changed,) = [each for each in changes if each.ref == role]
    assert changed.before is not None
    assert (changed.before["rules"], changed.after["rules"]) == ([], (LIVE[role] or {})["rules"])
    assert "resourceVersion" not in changed.after["metadata"]
    assert all(each.before != each.after for each in changes)
