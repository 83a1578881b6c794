"""``.polyarch.yaml`` is understood as a whole or refused with the line."""

import pytest

from polyarch.manifests.configuration import Configuration, InvalidLintConfiguration
from polyarch.manifests.finding import Severity
from polyarch.manifests.rules.options import Taints
from polyarch.manifests.scan.text import SourceText
from polyarch.platforms import NodePlatform

WHOLE = """\
platforms: [linux/amd64, arm64]
require: [linux/arm64]
include: [MA112, "MA3*"]
exclude: [MA011]
severity:
  MA101: error
  "MA2*": info
failOn: error
prefer:
  arm64: 60
taints:
  preset: gke
  effect: NoExecute
  architectures: [arm64]
ignorePaths: ["test/*"]
lock: polyarch.lock
platformsFile: platforms.yaml
"""


def read(text: str) -> Configuration:
    return Configuration.read(SourceText.of(".polyarch.yaml", text.encode()))


@pytest.mark.req("MF-031")
def test_every_key_is_read() -> None:
    assert read(WHOLE) == Configuration(
        platforms=(NodePlatform("linux", "amd64"), NodePlatform("linux", "arm64")),
        require=(NodePlatform("linux", "arm64"),),
        include=("MA112", "MA3*"),
        exclude=("MA011",),
        severity={"MA101": Severity.ERROR, "MA2*": Severity.INFO},
        fail_on="error",
        prefer={"arm64": 60},
        taints=Taints("kubernetes.io/arch", "NoExecute", ("arm64",)),
        ignore_paths=("test/*",),
        lock="polyarch.lock",
        platforms_file="platforms.yaml",
    )


@pytest.mark.req("MF-031")
@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "{}\n"])
def test_a_file_that_says_nothing_changes_nothing(text: str) -> None:
    assert read(text) == Configuration()


@pytest.mark.req("MF-031")
@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("failOn: error\nplatform: [amd64]\n", "2:1", "unknown key 'platform'"),
        ("platforms: amd64\n", "1:12", "platforms must be a list"),
        ("platforms: [amd64, linux/]\n", "1:20", "platforms"),
        ("require:\n- 386\n", "2:3", "must be a string"),
        ("include: [MA999]\n", "1:11", "matches no rule"),
        ("exclude: [MB*]\n", "1:11", "matches no rule"),
        ("severity: {MA101: fatal}\n", "1:19", "one of error, warning, info"),
        ("severity: [MA101]\n", "1:11", "must be a mapping"),
        ("failOn: always\n", "1:9", "one of error, warning, info, never"),
        ("prefer: {arm64: 101}\n", "1:17", "from 1 to 100"),
        ("prefer: {arm64: true}\n", "1:17", "from 1 to 100"),
        ("prefer: {aarch64: 5}\n", "1:10", "is not a node architecture"),
        ("taints: {preset: gke, key: a}\n", "1:9", "either preset or key"),
        ("taints: {effect: NoSchedule}\n", "1:9", "either preset or key"),
        ("taints: {preset: other}\n", "1:18", "taints.preset must be one of"),
        ("taints: {key: a, architectures: [x86_64]}\n", "1:34", "is not a node architecture"),
        ("lock: [a]\n", "1:7", "lock must be a string"),
        ("failOn: info\nfailOn: error\n", "2:1", "is duplicated"),
        ("failOn: info\n---\nfailOn: error\n", "2:1", "second document"),
        ("platforms: [amd64\n", "2:1", "expected"),
        ("- failOn\n", "1:1", "must be a mapping"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_line(text: str, place: str, words: str) -> None:
    """An unknown key or a wrong type is an error with line and next action."""
    with pytest.raises(InvalidLintConfiguration) as caught:
        read(text)
    assert str(caught.value).startswith(f".polyarch.yaml:{place}: ")
    assert words in str(caught.value)
