"""Sentences for command lines that the parser refuses.

cyclopts names a missing argument by the parameter of a Python function, and lists what is left over as a list of
tokens. A user knows neither: errors speak the words of ``--help``, and name the command to ask for more.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from cyclopts import CoercionError, CycloptsError, MissingArgumentError, UnknownOptionError, UnusedCliTokensError

from polyarch.cli.errors import UsageError
from polyarch.cli.options.help_page import OptionDeclaration, declared, of_argument
from polyarch.platforms import KNOWN_ARCHITECTURES, normal_architecture

if TYPE_CHECKING:
    from cyclopts import App


def sentence(error: CycloptsError) -> str:
    """What is wrong, in the words of the command's help page."""
    command = " ".join(error.command_chain or ())
    name = f"{command}: " if command else ""
    help_line = f"polyarch {command} --help" if command else "polyarch --help"
    match error:
        case UnusedCliTokensError(unused_tokens=[first, *_]):
            return f"{name}{first!r} is one word too many; {help_line} shows what may stand there"
        case MissingArgumentError(argument=argument) if argument is not None:
            wanted = of_argument(argument)
            if wanted.is_argument:
                return f"{name}give {wanted.placeholder}; {help_line} shows what it is"
            option = wanted.names[-1]
            return f"{name}{option} takes a value; give {option} {wanted.placeholder}"
        case UnknownOptionError():
            option = error.token.keyword or error.token.value
            if tuple(error.command_chain or ()) == ("run", "numa-extender"):
                from polyarch.numa.extender.configuration import REMOVED

                if removed := REMOVED.get(option):
                    return f"{name}{option} {removed}"
            if tuple(error.command_chain or ()) == ("numa", "export"):
                from polyarch.numa.exporter.flags import FLAGS

                if option.partition("=")[0] in FLAGS:
                    return f"{name}{option} is a flag of the exporter; these stand after --: {command} -- {option}"
            known = {
                word: of_argument(argument)
                for argument in error.argument_collection
                for word in (*argument.names, *argument.negatives)
            }
            instead = _instead(option, _value(option, error.root_input_tokens or ()), known, help_line)
            return f"{name}there is no option {option}; {instead}"
        case CoercionError(token=token, target_type=target) if token is not None and target in (int, float):
            return f"{name}{token.keyword or 'argument'} {token.value}: expected a number"
    return str(error)


# -- words that another command understands


ELSEWHERE: Final[Mapping[tuple[str, ...], Mapping[str, str]]] = {
    ("run", "taints"): {word: f"polyarch taint {word}" for word in ("plan", "bootstrap", "apply", "clean")},
    ("lint",): {"--fix": "polyarch fix"},
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


# -- options that do not exist


def refuse_versions(words: Sequence[str]) -> None:
    """``UsageError`` for a ``--version`` with a value, which would print ours and do nothing. Flags of a role are its
    own.
    """
    for before, (word, after) in enumerate(pairwise((*words, ""))):
        option, _, text = word.partition("=")
        value = text or ("" if after.startswith("-") else after)
        if before and option == "--version" and value and words[0] != "run":
            raise UsageError(f"{words[0]}: --version takes no value, got {value}; it prints the version of polyarch")


FAMILIAR: Final = {"--format": "-o", "--output-format": "-o", "-f": "--values", "--set": "--values"} | {
    "--target": "--require",
    "--require": "--target",
}
"""Options of other linters, of Helm and of other commands → what does the same here, in commands that have it."""


def refuse_misspelt(paths: Iterable[str], app: "App") -> None:
    """``UsageError`` for the first of the paths that can only be an option of ``app``."""
    words = list(paths)
    for path in words:
        if path.startswith("-") and path != "-" and not os.path.lexists(path):
            raise UsageError(_problem(path, words, app))


def _problem(path: str, words: Sequence[str], app: "App") -> str:
    word = path.partition("=")[0]
    known = {name: option for option in declared(app) if not option.is_argument for name in option.names}
    if word in known:
        return f"{path}: no such file, and after -- there are no options"
    if meant := ELSEWHERE.get(app.name, {}).get(word):
        return f"{word}: unknown option; run: {meant}"
    help_line = f"polyarch {' '.join(app.name)} --help"
    return f"{word}: unknown option; {_instead(word, _value(word, words), known, help_line)}"


def _value(option: str, words: Sequence[str]) -> str:
    """What these words give the option; empty if nothing."""
    for word, after in pairwise((*words, "")):
        if word == option:
            return "" if after.startswith("-") else after
        if word.startswith(f"{option}="):
            return word.removeprefix(f"{option}=")
    return ""


OF_ARCHITECTURES: Final = {
    "--nodes": "ARCH=N,...",
    "--target": "PLATFORMS",
    "--arch": "ARCH,...",
    "--architectures": "ARCHITECTURES",
    "--require": "PLATFORMS",
}
"""Options that take architectures, each with its placeholder: elsewhere they may be others."""


def _instead(option: str, value: str, known: Mapping[str, OptionDeclaration], help_line: str) -> str:
    """What was probably meant, as it is written, or where all options stand; ``known``: the command's, by name."""
    from difflib import get_close_matches

    word, architecture = option.lstrip("-").lower(), normal_architecture(option.lstrip("-"))
    familiar = FAMILIAR.get(option, "")
    if familiar in known:
        wanted = value.lower()
        meant = f"{familiar} {wanted}" if wanted.partition("=")[0] in known[familiar].choices else familiar
    elif of_value := next((name for name, each in known.items() if word in each.choices), ""):
        meant = f"{of_value} {word}"
    elif architecture in KNOWN_ARCHITECTURES:
        takes = [name for name, mark in OF_ARCHITECTURES.items() if name in known and known[name].placeholder == mark]
        number = f"={value if value.isdigit() else 1}" if takes == ["--nodes"] else ""
        meant = f"{takes[0]} {architecture}{number}" if takes else ""
    else:
        meant = next(iter(get_close_matches(option, known, n=1)), "")
    return f"did you mean {meant}?" if meant else f"{help_line} lists them"


# -- options whose value may be left out: ``--rebuild`` is ``--rebuild=``, and never takes the next word for its value


VALUELESS: Final[Mapping[tuple[str, ...], frozenset[str]]] = {("build", "run"): frozenset({"--rebuild"})}
"""Command → its options."""


def valueless(words: Sequence[str]) -> frozenset[str]:
    """Those of the command that the words name."""
    return next((each for command, each in VALUELESS.items() if tuple(words[: len(command)]) == command), frozenset())


def with_values(words: Sequence[str]) -> list[str]:
    """The words with an empty value where none was given."""
    options = valueless(words)
    end = words.index("--") if "--" in words else len(words)
    return [f"{word}=" if word in options and at < end else word for at, word in enumerate(words)]
