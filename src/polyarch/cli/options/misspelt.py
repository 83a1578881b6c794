"""Options that do not exist, where a command takes paths: ``-`` is one, so the parser lets everything through that
begins with a hyphen.

A file may begin with one, too. So a word is an option that somebody misspelt only if there is no such file.
"""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from polyarch.cli.errors import UsageError
from polyarch.cli.options.declared import declared

if TYPE_CHECKING:
    from cyclopts import App


def refuse_misspelt(paths: Iterable[str], app: "App") -> None:
    """``UsageError`` for the first of the paths that can only be an option of ``app``."""
    for path in paths:
        if path.startswith("-") and path != "-" and not os.path.lexists(path):
            raise UsageError(_problem(path, app))


def _problem(path: str, app: "App") -> str:
    from difflib import get_close_matches

    word = path.partition("=")[0]
    names = [name for option in declared(app) if not option.is_argument for name in option.names]
    if word in names:
        return f"{path}: no such file, and after -- there are no options"
    close = get_close_matches(word, names, n=1)
    instead = f"did you mean {close[0]}?" if close else f"polyarch {' '.join(app.name)} --help lists them"
    return f"{word}: unknown option; {instead}"
