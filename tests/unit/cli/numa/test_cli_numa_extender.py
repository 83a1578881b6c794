"""The extender's command, without what only its process needs."""

import sys

import pytest

from polyarch.cli import main


@pytest.mark.req("NS-170")
@pytest.mark.parametrize("words", [["run", "numa-extender"], ["up", "--numa"]], ids=["the role", "the sandbox"])
def test_without_numpy_the_extender_says_how_to_install_it(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert main([*words, *(["2x4"] if words == ["up", "--numa"] else [])]) == 3
    assert "numpy is not installed, and the extender needs it: pip install 'polyarch[numa]'" in capsys.readouterr().err
