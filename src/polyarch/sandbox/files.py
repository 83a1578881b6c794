"""Writing files that only their owner can read: at once or not at all, so that a reader never sees half of one."""

import os
from pathlib import Path

import msgspec


def write_private(path: Path, content: bytes) -> None:
    """Replace ``path`` by this content, with mode 0600; folders above it are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    partial.replace(path)


def write_json(path: Path, value: object) -> None:
    """The same with an indented JSON document."""
    write_private(path, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
