"""Helm and the chart."""

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from polyarch.names import DEFAULT_NAMESPACE
from polyarch.sandbox import versions

CHART = Path(__file__).parents[2] / "deploy" / "chart"
LOCAL = ("--namespace", DEFAULT_NAMESPACE, "--kube-version", versions.KUBERNETES)
Document = dict[str, Any]


class Helm(NamedTuple):
    """One Helm with a home of its own."""

    program: str
    home: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.program, *arguments],
            env={"HOME": str(self.home), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    def __call__(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rendered(self, *options: str) -> list[Document]:
        text = self("template", "polyarch", str(CHART), *LOCAL, *options)
        return [each for each in yaml.safe_load_all(text) if each]
