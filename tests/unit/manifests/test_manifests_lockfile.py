"""The lock file notices what a tag lost."""

import pytest
import yaml
from linting import answers, deployment, names, problems

from polyarch.manifests import lockfile
from polyarch.manifests.lockfile import InvalidLock
from polyarch.manifests.rules.options import LockEntry
from polyarch.manifests.scan.text import SourceText
from polyarch.oci.platforms_file import AnswerFile
from polyarch.oci.reference import parse
from polyarch.platforms import NodePlatform

ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64
AMD, ARM = NodePlatform("linux", "amd64"), NodePlatform("linux", "arm64")
LOCKED = {"quay.io/acme/web:2": LockEntry(ONE, (AMD, ARM)), "docker.io/library/nginx:1": LockEntry(TWO, (AMD,))}


def read(text: str) -> dict[str, LockEntry]:
    return lockfile.read(SourceText.of("polyarch.lock", text.encode()))


@pytest.mark.req("MF-034")
def test_what_is_written_is_read_again_and_sorted() -> None:
    text = lockfile.write(LOCKED)
    assert read(text) == LOCKED
    assert lockfile.write(dict(reversed(LOCKED.items()))) == text
    assert list(yaml.safe_load(text)["images"]) == sorted(LOCKED)
    assert read(lockfile.write({})) == {}


def test_a_lock_file_is_a_platforms_file() -> None:
    """What was locked can be linted against without a registry."""
    file = AnswerFile.from_mapping(yaml.safe_load(lockfile.write(LOCKED)))
    answer = file.get(parse("quay.io/acme/web:2"))
    assert answer is not None
    assert answer.node_platforms == (AMD, ARM)


@pytest.mark.req("MF-034")
def test_an_update_takes_what_is_resolved_by_tag_and_keeps_what_is_not() -> None:
    """An image by digest needs no entry; one that cannot be resolved keeps its own."""
    known = answers(
        {
            "quay.io/acme/web:2": {"platforms": ["linux/amd64"], "digest": TWO},
            f"quay.io/acme/pinned@{ONE}": {"platforms": ["linux/amd64"], "digest": ONE},
            "nginx:1": {"error": "network"},
        }
    )
    texts = ("quay.io/acme/web:2", f"quay.io/acme/pinned@{ONE}", "nginx:1", "$(IMAGE)")
    new = lockfile.update(LOCKED, map(known.of, texts))
    assert new == {"quay.io/acme/web:2": LockEntry(TWO, (AMD,)), "docker.io/library/nginx:1": LockEntry(TWO, (AMD,))}
    difference = lockfile.difference(LOCKED, new)
    assert difference.changed == ("quay.io/acme/web:2",)
    assert difference.lost == {"quay.io/acme/web:2": ("linux/arm64",)}
    assert lockfile.difference(LOCKED, {}).removed == tuple(sorted(LOCKED))


@pytest.mark.req("MF-034")
def test_a_locked_image_that_cannot_be_resolved_is_not_lost() -> None:
    """MA001, never MA008."""
    text = deployment("", images=("nginx:1",))
    assert names(problems(text, {"nginx:1": {"error": "network"}}, lock=LOCKED)) == ["MA001/network"]


def test_a_lost_platform_is_an_error() -> None:
    text = deployment("", images=("quay.io/acme/web:2",))
    images = {"quay.io/acme/web:2": {"platforms": ["linux/amd64"], "digest": TWO}}
    (lost,) = [each.finding for each in problems(text, images, lock=LOCKED) if each.finding.rule == "MA008"]
    assert (lost.severity, lost.sub) == ("error", "lost-platform")
    assert "linux/arm64" in lost.message


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("a: 1\n", "1:1", "under images"),
        ("images: [a]\n", "1:9", "mapping"),
        ("images:\n  'no image!': {digest: x}\n", "2:3", ""),
        ("images:\n  a:1: {digest: x}\n", "2:8", "digest"),
        (f"images:\n  a:1: {{digest: '{ONE}', platforms: [linux/]}}\n", "2:", "a:1"),
        (f"images:\n  a:1: {{digest: '{ONE}'}}\n  a:1: {{digest: '{ONE}'}}\n", "3:3", "duplicated"),
        ("images: {\n", "2:1", "expected"),
    ],
)
def test_a_file_that_is_no_lock_is_refused_with_its_line(text: str, place: str, words: str) -> None:
    with pytest.raises(InvalidLock) as caught:
        read(text)
    assert str(caught.value).startswith(f"polyarch.lock:{place}")
    assert words in str(caught.value)
