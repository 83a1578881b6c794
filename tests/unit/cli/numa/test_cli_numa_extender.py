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


@pytest.mark.req("NS-003")
@pytest.mark.parametrize("word", ["--cache-resync-period=0s", "POLYARCH_CACHE_RESYNC_PERIOD"])
def test_a_flag_of_an_earlier_version_says_what_to_give_in_its_place(
    word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if word.startswith("--"):
        words = [word]
    else:
        words = []
        monkeypatch.setenv(word, "0s")
    assert main(["run", "numa-extender", *words]) == 2
    said = capsys.readouterr().err
    assert word.partition("=")[0] in said
    assert "removed: delete it, or in place of 0s give --reservations off" in said
