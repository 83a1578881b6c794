"""Configuration files: found, read and written as YAML. The one place of the exporter's configuration that knows YAML.

A file that is missing says nothing; one that cannot be read, or is no mapping, is an error that names it (NE-135).
"""

from collections.abc import Mapping
from pathlib import Path

import yaml

from polyarch.numa.exporter.configuration.invalid import InvalidConfiguration

try:
    from yaml import CSafeLoader as Loader
except ImportError:  # PyYAML without its C part
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

Document = Mapping[object, object]


def document(path: Path) -> Document | None:
    """What is in the file; None if there is none."""
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:  # a ValueError for a NUL in the name
        raise InvalidConfiguration(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        found = yaml.load(content, Loader=Loader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise InvalidConfiguration(f"{path}: {line}not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidConfiguration(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise InvalidConfiguration(f"{path}: expected a mapping of keys, such as `kubelet:`")
    return found


def drop_ins(directory: Path) -> tuple[Path, ...]:
    """Its files by name. Hidden ones are left out: that is how a mounted ConfigMap keeps its versions."""
    try:
        found = sorted(path for path in directory.iterdir() if not path.name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise InvalidConfiguration(f"{directory}: cannot be read: {error.strerror or error}") from None
    return tuple(path for path in found if not path.is_dir())


def text_of(content: Mapping[str, object]) -> str:
    """As YAML, keys sorted."""
    return yaml.safe_dump(content, sort_keys=True, default_flow_style=False, allow_unicode=True)
