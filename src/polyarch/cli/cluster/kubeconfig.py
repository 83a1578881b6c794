"""``--merge-kubeconfig``: the sandbox's context in the user's own kubeconfig, beside what is there.

As ``kubectl config`` does, the file is read and written again, so its comments go; a copy of it as it was stays beside
it. Entries of other names are not touched.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from polyarch.cli.errors import UsageError

SECTIONS = ("clusters", "users", "contexts")
BACKUP_SUFFIX = ".before-polyarch"


def user_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where kubectl would write: the first file of ``KUBECONFIG``, else ``~/.kube/config``."""
    listed = [part for part in environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return Path(listed[0]) if listed else Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"


def merge(path: Path, ours: Mapping[str, Any]) -> None:
    """Put our entries into the file and make our context the current one."""
    document = _read(path)
    for section in SECTIONS:
        added = ours[section]
        names = {entry["name"] for entry in added}
        document[section] = [*_without(document, section, names), *added]
    document["current-context"] = ours["current-context"]
    _write(path, document)


def remove(path: Path, name: str) -> None:
    """Take the entries called ``name`` out again; a file that has none is left as it is."""
    if not path.exists():
        return
    document = _read(path)
    before = {section: list(document.get(section) or []) for section in SECTIONS}
    after = {section: _without(document, section, {name}) for section in SECTIONS}
    if before == after:
        return
    document.update(after)
    if document.get("current-context") == name:
        document["current-context"] = ""
    _write(path, document)


def _without(document: Mapping[str, Any], section: str, names: set[str]) -> list[Any]:
    entries = document.get(section) or []
    return [entry for entry in entries if not (isinstance(entry, dict) and entry.get("name") in names)]


def _read(path: Path) -> dict[str, Any]:
    empty = {"apiVersion": "v1", "kind": "Config", "preferences": {}}
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return empty
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(
            f"--merge-kubeconfig: {path} is not YAML ({error}); fix it, or run without the option"
        ) from error
    if document is None:
        return empty
    if not isinstance(document, dict) or not all(isinstance(document.get(s) or [], list) for s in SECTIONS):
        raise UsageError(f"--merge-kubeconfig: {path} is not a kubeconfig; fix it, or run without the option")
    return document


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists():
        backup = path.with_name(path.name + BACKUP_SUFFIX)
        _write_private(backup, path.read_bytes())
    # The target of a symbolic link is replaced, not the link.
    _write_private(path.resolve(), yaml.safe_dump(document, sort_keys=False).encode())


def _write_private(path: Path, content: bytes) -> None:
    partial = path.with_name(f".{path.name}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    partial.replace(path)
