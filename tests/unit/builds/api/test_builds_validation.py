"""What is refused of an ImageBuild in a file, and in which words."""

import re
from typing import Any

import msgspec
import pytest
from build_refusals import ACCEPTED, REFUSED, Json, git, source, spec
from hypothesis import given
from hypothesis import strategies as st

from polyarch.builds.api import formats
from polyarch.builds.api.resources import ImageBuildSpec
from polyarch.builds.api.validation import InvalidBuild, object_problems, spec_problems, validated
from polyarch.oci.reference import InvalidReference, parse


def of(spec: Any, **metadata: Any) -> Json:
    described = {"name": "web", "namespace": "team"} | metadata
    return {"apiVersion": "polyarch.dev/v1alpha1", "kind": "ImageBuild", "metadata": described, "spec": spec}


@pytest.mark.req("BD-012", "BD-320")
@pytest.mark.parametrize(("spec", "said"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_refused_and_in_which_words(spec: Json, said: list[str]) -> None:
    """The message names the field and what is wanted; each mistake is told once."""
    found = [str(each) for each in object_problems(of(spec))]
    assert len(found) == 1, found
    assert all(re.search(part.replace("[", r"\[").replace("]", r"\]"), found[0]) for part in said), found


@pytest.mark.req("BD-012")
@pytest.mark.parametrize("spec", [row[1] for row in ACCEPTED], ids=[row[0] for row in ACCEPTED])
def test_what_is_accepted(spec: Json) -> None:
    """Also after it has been read."""
    read = validated(of(spec)).spec
    assert spec_problems(read) == ()


@pytest.mark.req("BD-320")
def test_several_mistakes_are_told_at_once() -> None:
    """In the order of the object, each with its field."""
    wrong = git(url="https://me:secret@git.example.com/a", commit="main") | {"output": {"repository": "web:1"}}
    wrong["architectures"] = {"mode": "Explicit", "list": ["x86_64", "amd64"]}
    with pytest.raises(InvalidBuild) as refusal:
        validated(of(wrong))
    assert [each.field for each in refusal.value.problems] == [
        "spec.source.context.git.url",
        "spec.source.context.git.commit",
        "spec.architectures.list[0]",
        "spec.output.repository",
    ]


@pytest.mark.req("BD-320")
def test_credentials_in_a_url_are_not_quoted() -> None:
    """Never secret content."""
    problems = object_problems(of(git(url="https://me:hunter2@git.example.com/a")))
    assert problems
    assert "hunter2" not in str(problems)


@pytest.mark.req("BD-320")
@pytest.mark.parametrize(
    ("document", "field", "said"),
    [
        (of(spec()) | {"kind": "ImageBuilds"}, "kind", "must be ImageBuild"),
        (of(spec()) | {"apiVersion": "v1"}, "apiVersion", "polyarch.dev/v1alpha1"),
        (of(spec(), name="Web"), "metadata.name", "lower-case letters"),
        (of(spec(), name="a" * 254), "metadata.name", "253"),
        (of(spec(), name=None), "metadata.name", "is required"),
        ({key: value for key, value in of(spec()).items() if key != "spec"}, "spec", "is required"),
        (of(None), "spec", "is required"),
        (of([]), "spec", "must be an object"),
        (of(spec()) | {"spce": {}}, "spce", "did you mean spec?"),
        (of(source(conatinerfile="FROM a")), "spec.source.conatinerfile", "did you mean containerfile?"),
        (["spec"], "", "must be one ImageBuild"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_objects_that_are_none(document: Any, field: str, said: str) -> None:
    """Unknown members with the nearest known name."""
    problems = object_problems(document)
    assert [each.field for each in problems] == [field]
    assert said in problems[0].reason


@pytest.mark.req("BD-320")
def test_the_status_is_nobodys_input() -> None:
    """What `kubectl get -o yaml` prints can be given as a file."""
    stored = of(spec(), creationTimestamp=None, managedFields=[{}]) | {"status": {"conditions": [], "other": 1}}
    assert object_problems(stored) == ()


@pytest.mark.req("BD-320")
def test_a_spec_that_was_read_is_judged_alike() -> None:
    """An object of an older schema."""
    read = msgspec.convert(spec(output={"repository": "web"}, strategy="Cross"), ImageBuildSpec)
    assert [each.field for each in spec_problems(read)] == ["spec.strategy"]
    read = msgspec.convert(spec(output={"repository": "web"}), ImageBuildSpec)
    assert [each.field for each in spec_problems(read)] == ["spec.output.repository"]


REPOSITORIES = st.from_regex(formats.REPOSITORY.replace("$", r"\Z"), fullmatch=True)


@pytest.mark.req("BD-012")
@given(REPOSITORIES.filter(lambda text: len(text) < 200 and formats.matches(formats.HOST, text)))
def test_a_repository_that_is_accepted_is_a_reference(text: str) -> None:
    """What the schema lets pass, the registry client can read, but for addresses and ports out of range."""
    try:
        read = parse(text)
    except InvalidReference as error:
        assert re.search("IPv6|port|characters where|host name", error.problem), error  # noqa: PT017
    else:
        assert (read.digest, read.tag) == (None, "latest")


class TestArchitectures:
    @pytest.mark.req("BD-011")
    @pytest.mark.parametrize(
        ("name", "advice"),
        [
            ("x86_64", "amd64"),
            ("X86_64", "amd64"),
            ("x86-64", "amd64"),
            ("aarch64", "arm64"),
            ("AMD64", "amd64"),
            ("Arm64", "arm64"),
            ("i686", "386"),
            ("armv7l", "arm"),
            ("ppc64el", "ppc64le"),
        ],
    )
    def test_the_right_spelling_is_in_the_message(self, name: str, advice: str) -> None:
        assert not formats.is_architecture(name)
        assert formats.architecture_problem(name).endswith(f"write {advice}")

    @pytest.mark.req("BD-011")
    @pytest.mark.parametrize("name", ["noarch", "NOARCH", "arm/v7", "a", "", "abcdefghijklmnopq", "arm64\n", "ärm"])
    def test_what_is_no_architecture(self, name: str) -> None:
        """There is none to write instead, so the message says what one looks like."""
        assert not formats.is_architecture(name)
        assert "such as amd64" in formats.architecture_problem(name)

    @pytest.mark.req("BD-011")
    @pytest.mark.parametrize("name", ["amd64", "arm64", "386", "riscv64", "e2k", "s390x"])
    def test_names_of_go(self, name: str) -> None:
        """Known or not."""
        assert formats.is_architecture(name)
