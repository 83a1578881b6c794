"""Atomic writes of files that only their owner can read: a reader sees the old content or the new one."""

import os
from pathlib import Path

import msgspec


def write_private(path: Path, content: bytes) -> None:
    """Replace ``path`` with this content, mode 0600; create missing parent folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    partial.replace(path)


def write_json(path: Path, value: object) -> None:
    """Write a value as indented JSON, as :func:`write_private` does."""
    write_private(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
