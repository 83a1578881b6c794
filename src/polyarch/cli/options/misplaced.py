"""Words that another command understands: the error about them names it (TN-074).

The neighbour of a word is often one letter away, and does something else: who wants a controller's traces removed must
not get a controller. And the word behind an option whose value may be left out is none of its values.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from polyarch.cli.options.valueless import valueless

ELSEWHERE: Final[Mapping[tuple[str, ...], Mapping[str, str]]] = {
    ("run", "taints"): {word: f"polyarch taint {word}" for word in ("plan", "bootstrap", "apply", "clean")},
}
"""Words of a command line that are there → word that is not of that command → the command that it is of."""


def other_command(words: Sequence[str]) -> str:
    """The end of an error about this command line, with the command that was probably meant; often empty."""
    for command, others in ELSEWHERE.items():
        if set(command) <= set(words):
            for word in words:
                if (meant := others.get(word.removeprefix("--"))) is not None:
                    return f"; for {word}, run: {meant}"
    options = valueless(words)
    for option, word in pairwise(words):
        if option in options and not word.startswith("-"):
            return f"; with a value it is {option}={word}"
    return ""
