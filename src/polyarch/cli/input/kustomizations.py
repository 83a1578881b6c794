"""The kustomizations that a run's files belong to, read before the first file is judged (MF-014, MF-020).

Who names a file, as pre-commit does, gets the same answer as who names its folder: so kustomizations above what is
named are looked for, too, up to the root of the repository.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from polyarch.cli.input.files import Given, folders_upward, read_file
from polyarch.manifests.scan.nodes import SyntaxProblem, compose
from polyarch.manifests.scan.scanning import FILE_NAMES, Kustomization, Kustomizations, read_kustomization
from polyarch.manifests.scan.text import SourceText, UnreadableText


def read_kustomizations(given: Given) -> Kustomizations:
    """Those among the files and above what is named; one that cannot be read says nothing.

    Of one above a directory only the patches count: its ``images`` are applied within the given paths (MF-014).
    """
    files = (Path(path) for path in given.files if path not in given.streams)
    found = dict(_read(_place(path) for path in files if path.name in FILE_NAMES))
    above = {each for path in given.named if not path.is_dir() for each in folders_upward(_place(path).parent)}
    for folder, kustomization in _read(_beside(above)):
        found.setdefault(folder, kustomization)
    above = {each for path in given.named if path.is_dir() for each in folders_upward(_place(path))[1:]}
    for folder, kustomization in _read(_beside(above)):
        found.setdefault(folder, msgspec.structs.replace(kustomization, images=()))
    return Kustomizations(found, here=Path.cwd().as_posix())


def _place(path: Path) -> Path:
    return Path(os.path.normpath(path.absolute()))


def _beside(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from (folder / name for name in sorted(FILE_NAMES) if (folder / name).is_file())


def _read(paths: Iterable[Path]) -> Iterator[tuple[str, Kustomization]]:
    for path in paths:
        try:
            source = SourceText.of(path.as_posix(), read_file(str(path)))
            yield path.parent.as_posix(), read_kustomization(compose(source))
        except (OSError, UnreadableText, SyntaxProblem):
            continue  # who lints the file itself is told
