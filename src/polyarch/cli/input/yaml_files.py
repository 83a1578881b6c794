"""A YAML or JSON file that an option names: its content, or the place of what is wrong in it."""

import sys
from pathlib import Path
from typing import Any

import yaml

from polyarch.cli.errors import UsageError

SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(option: str, path: str, *, expected: str, loader: Any = SAFE_LOADER) -> Any:
    """The content; ``UsageError`` with file, place and reason, and with what was ``expected`` if there is no file.

    ``loader`` is a subclass of a safe one; ``-`` is standard input.
    """
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return yaml.load(content, loader)  # noqa: S506 - safe
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}; expected {expected}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark is not None else path
        raise UsageError(f"{place}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not YAML ({' '.join(str(error).split())})") from None
