"""Options that do not exist, where a command takes paths: ``-`` is one, so the parser lets everything through that
begins with a hyphen.

A file may begin with one, too. So a word is an option that somebody misspelt only if there is no such file.
"""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from polyarch.cli.errors import UsageError

if TYPE_CHECKING:
    from cyclopts import App


def refuse_misspelt(paths: Iterable[str], app: "App") -> None:
    """``UsageError`` for the first of the paths that can only be an option of ``app``."""
    for path in paths:
        if path.startswith("-") and path != "-" and not os.path.lexists(path):
            word = path.partition("=")[0]
            raise UsageError(f"{word}: there is no such option; {_instead(word, app)}")


def _instead(word: str, app: "App") -> str:
    from difflib import get_close_matches

    names = [name for argument in app.assemble_argument_collection() for name in argument.names]
    close = get_close_matches(word, names, n=1)
    return f"did you mean {close[0]}?" if close else f"polyarch {' '.join(app.name)} --help lists them"
