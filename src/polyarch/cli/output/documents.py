"""Documents, manifests and diffs as text.

A document has a documented schema and is printed as JSON, indented by two, or as YAML, with keys in the order given.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec


def document_text(document: Mapping[str, Any], format: str) -> str:
    """The text of ``json`` or ``yaml``."""
    if format == "yaml":
        import yaml  # a twentieth of the start of a command that prints none

        plain = msgspec.to_builtins(document)
        return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=10_000))
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def manifest_text(documents: Iterable[object]) -> str:
    """Objects as a file of YAML documents. Repeated values are written out, and texts of several lines as blocks."""
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return "---\n".join(
        yaml.dump(document, Dumper=Dumper, sort_keys=False, width=120, allow_unicode=True) for document in documents
    )


# -- unified diffs that ``patch`` and ``git apply`` take


CONTEXT = 3
EXACT = 1_000_000
"""Pairs of lines up to which the shortest diff is searched for; beyond, frequent lines are no anchors (quadratic)."""


def unified_diff(path: str, before: str, after: str) -> str:
    """The diff of one file; empty if nothing changed."""
    if before == after:
        return ""
    from difflib import SequenceMatcher  # loaded where something differs

    old, new = _lines(before), _lines(after)
    start, end = _unequal(old, new)
    # Equal lines at both ends need no search; what is between them is small where a few places were edited.
    between, other = old[start : len(old) - end], new[start : len(new) - end]
    matcher = SequenceMatcher(None, between, other, autojunk=len(between) * len(other) > EXACT)
    lines = [f"--- {_name('a', path)}\n", f"+++ {_name('b', path)}\n"]
    head, tail = min(start, CONTEXT), min(end, CONTEXT)
    codes: list[Code] = [
        (tag, first + start, last + start, other_first + start, other_last + start)
        for tag, first, last, other_first, other_last in matcher.get_opcodes()
    ]
    codes.insert(0, ("equal", start - head, start, start - head, start))
    codes.append(("equal", len(old) - end, len(old) - end + tail, len(new) - end, len(new) - end + tail))
    for group in _groups(codes):
        lines.append(f"@@ -{_range(group[0][1], group[-1][2])} +{_range(group[0][3], group[-1][4])} @@\n")
        for tag, first, last, other_first, other_last in group:
            if tag == "equal":
                lines += [" " + line for line in old[first:last]]
            else:
                lines += ["-" + line for line in old[first:last]]
                lines += ["+" + line for line in new[other_first:other_last]]
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


Code = tuple[str, int, int, int, int]


def _groups(codes: list[Code]) -> Iterator[list[Code]]:
    """Changes with their context; those closer than two contexts together."""
    group: list[Code] = []
    for tag, first, last, other_first, other_last in codes:
        if tag == "equal" and group and last - first > 2 * CONTEXT:
            group.append((tag, first, first + CONTEXT, other_first, other_first + CONTEXT))
            yield group
            group = [(tag, last - CONTEXT, last, other_last - CONTEXT, other_last)]
        else:
            group.append((tag, first, last, other_first, other_last))
    if any(code[0] != "equal" for code in group):
        yield group


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    last = lines.pop()
    return [line + "\n" for line in lines] + ([last] if last else [])


def _unequal(old: list[str], new: list[str]) -> tuple[int, int]:
    """How many lines are equal at the start and at the end."""
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and old[start] == new[start]:
        start += 1
    end = 0
    while end < shorter - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return start, end


def _range(first: int, last: int) -> str:
    length = last - first
    begin = first + 1 if length else first
    return str(begin) if length == 1 else f"{begin},{length}"


def _name(side: str, path: str) -> str:
    """As git writes it: quoted as in C if it has quotes or control characters, and a tab ends a name with blanks."""
    name = path if path.startswith(("/", "<")) else f"{side}/{path}"
    if any(mark in '"\\' or not mark.isprintable() for mark in name):
        marks = (f"\\{mark}" if mark in '"\\' else mark if mark.isprintable() else _octal(mark) for mark in name)
        return f'"{"".join(marks)}"'
    return f"{name}\t" if " " in name else name


def _octal(mark: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in mark.encode("utf-8", "surrogateescape"))
