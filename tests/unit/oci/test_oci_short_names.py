"""Short names, Docker Hub's or searched for."""

import pytest

from polyarch.oci.inspection import Inspection, InspectionError, Status
from polyarch.oci.pull_sources import Configuration, candidates, search
from polyarch.oci.reference import InvalidReference, parse

DIGEST = "sha256:" + "a" * 64
SEARCH = Configuration(
    search=("quay.io", "docker.io", "r.example:5000/mirror"), aliases={"fedora": "r.example/os/fedora"}
)


def places(text, configuration=SEARCH):
    return [each.canonical for each in candidates(text, configuration)]


@pytest.mark.req("RG-096")
def test_a_short_name_is_looked_for_in_every_registry_in_order():
    """Each unqualified-search-registries entry in order, `library/` only for docker.io."""
    assert places("nginx:1.27") == [
        "quay.io/nginx:1.27",
        "docker.io/library/nginx:1.27",
        "r.example:5000/mirror/nginx:1.27",
    ]
    assert places("team/app") == [
        "quay.io/team/app:latest",
        "docker.io/team/app:latest",
        "r.example:5000/mirror/team/app:latest",
    ]
    assert places(f"app@{DIGEST}")[0] == f"quay.io/app@{DIGEST}"
    assert places(f"app:1@{DIGEST}")[0] == f"quay.io/app:1@{DIGEST}"


@pytest.mark.req("RG-096")
def test_an_alias_decides_alone():
    """An alias, else the registries; tag and digest stay."""
    assert places("fedora") == ["r.example/os/fedora:latest"]
    assert places("fedora:40") == ["r.example/os/fedora:40"]
    assert places(f"fedora@{DIGEST}") == [f"r.example/os/fedora@{DIGEST}"]
    assert len(places("team/fedora")) == 3


def test_an_empty_alias_is_none():
    configuration = Configuration(search=("quay.io",), aliases={"fedora": ""})
    assert places("fedora", configuration) == ["quay.io/fedora:latest"]


@pytest.mark.parametrize(
    "text",
    [
        "quay.io/team/app:1",
        "localhost/app",
        "localhost:5000/app",
        "[::1]:5000/app",
        "docker.io/nginx",
        "docker://nginx",
    ],
)
def test_a_written_registry_is_asked_alone(text):
    assert places(text) == [parse(text).canonical]


def test_a_layout_directory_is_no_short_name():
    assert places("oci:out") == ["oci:out"]


def test_the_same_place_is_asked_once():
    assert places("app", Configuration(search=("docker.io", "index.docker.io"))) == ["docker.io/library/app:latest"]


def test_a_search_that_nothing_configures_is_a_usage_error():
    with pytest.raises(InvalidReference, match="neither an alias nor unqualified-search-registries"):
        places("nginx", Configuration())


@pytest.mark.parametrize(
    "configuration", [Configuration(search=("Not A Host",)), Configuration(aliases={"nginx": "nginx"})]
)
def test_a_place_that_is_none_names_the_file(configuration):
    with pytest.raises(InvalidReference, match=r"registries|alias"):
        places("nginx", configuration)


def test_text_that_is_no_reference_is_refused_as_ever():
    with pytest.raises(InvalidReference, match="upper-case"):
        places("Nginx")


class TestSearch:
    """Who answers is asked through a function."""

    @staticmethod
    async def run(outcomes):
        asked = []

        async def inspect(reference):
            asked.append(reference.registry)
            code = outcomes[reference.registry]
            if not code:
                return Inspection(reference, Status.RESOLVED)
            return Inspection(reference, Status.ERROR, error=InspectionError.of(code, f"{reference}: {code}"))

        found = await search([parse(f"{registry}/app") for registry in outcomes], inspect)
        return found, asked

    @pytest.mark.req("RG-096")
    @pytest.mark.parametrize("code", ["not-found", "unauthorized", "denied"])
    async def test_who_has_no_such_image_is_passed_over(self, code):
        found, asked = await self.run({"a.example": code, "b.example": "", "c.example": ""})
        assert (found.reference.registry, asked) == ("b.example", ["a.example", "b.example"])

    @pytest.mark.req("RG-096")
    @pytest.mark.parametrize("code", ["network", "timeout", "rate-limited", "tls", "malformed", "blocked"])
    async def test_who_fails_ends_the_search(self, code):
        """Any other answer wins; else whoever stops a registry could choose the next one."""
        found, asked = await self.run({"a.example": code, "b.example": ""})
        assert (found.error.code, asked) == (code, ["a.example"])

    @pytest.mark.req("RG-096")
    async def test_a_failure_of_all_names_all(self):
        """All candidates named on failure."""
        found, _ = await self.run({"a.example": "denied", "b.example": "not-found"})
        assert found.error.code == "not-found"
        assert "a.example/app:latest, b.example/app:latest" in found.error.message
        assert found.error.attempts == ("a.example/app:latest: denied", "b.example/app:latest: not-found")

    async def test_one_place_keeps_its_own_words(self):
        found, _ = await self.run({"a.example": "not-found"})
        assert found.error.message == "a.example/app:latest: not-found"


@pytest.mark.req("RG-096")
async def test_the_first_registry_that_has_the_image_answers(start_registry, inspector):
    """Over the wire."""
    first, second = await start_registry(), await start_registry()
    second.push_index("team/app", "1", "linux/arm64")
    places = candidates("team/app:1", Configuration(search=(first.host, second.host)))
    answer = await search(places, inspector.inspect)
    assert answer.reference.registry == second.host
    assert first.manifest_requests() == ["GET team/app/manifests/1"]
