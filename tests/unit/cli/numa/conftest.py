"""A command about cells, run as a user runs it in a folder with files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from polyarch.cli import main


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def numa(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """``numa("top", "--nrt", "nodes.json", files={"nodes.json": …})``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")

    def run(*words: str, files: dict[str, Any] | None = None) -> Ran:
        for name, content in (files or {}).items():
            Path(name).write_text(content if isinstance(content, str) else json.dumps(content))
        code = main(["numa", *words])
        return Ran(code, *capsys.readouterr())

    return run
