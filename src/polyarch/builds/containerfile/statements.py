"""From lines to statements: directives, comments, continued lines and here-documents (BD-057).

Every line is looked at once, whatever the text holds. The rules are those of the parser that buildah uses: a line is
continued by an escape character before its end, also when that one is escaped itself; comments and empty lines between
continued lines are skipped.
"""

import re

import msgspec

from polyarch.builds.containerfile import words
from polyarch.builds.containerfile.text import Fault, shown

DEFAULT_ESCAPE = "\\"
_DIRECTIVE = re.compile(r"#[ \t]*([A-Za-z][A-Za-z0-9]*)[ \t]*=[ \t]*(.*)", re.ASCII)
_DIRECTIVES = frozenset({"syntax", "escape", "check"})
_HERE_DOCUMENT = re.compile(r"[0-9]*<<(-?)([^<]+)", re.ASCII)
_WITH_HERE_DOCUMENTS = frozenset({"ADD", "COPY", "RUN"})


class HereDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a statement that end with a line that holds its name alone."""

    name: str
    content: str
    expand: bool
    """Its name is not quoted: variables in it are replaced."""


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """An instruction with its arguments on one line."""

    line: int
    name: str
    """In capitals."""
    rest: str
    here_documents: tuple[HereDocument, ...] = ()


class Statements(msgspec.Struct, frozen=True, kw_only=True):
    """A text in statements."""

    statements: tuple[Statement, ...]
    escape: str
    directives: dict[str, str]
    faults: tuple[Fault, ...]


def read(text: str, text_name: str) -> Statements:
    """The statements of a normalised text."""
    return _Reader(text, text_name).read()


class _Reader:
    def __init__(self, text: str, text_name: str) -> None:
        self._lines = text.split("\n")
        self._text_name = text_name
        self._next = 0
        self._escape = DEFAULT_ESCAPE
        self._directives: dict[str, str] = {}
        self._faults: list[Fault] = []

    def read(self) -> Statements:
        self._read_directives()
        found: list[Statement] = []
        while self._next < len(self._lines):
            number = self._next + 1
            if line := self._statement():
                found.append(self._complete(number, line))
        return Statements(
            statements=tuple(found), escape=self._escape, directives=self._directives, faults=tuple(self._faults)
        )

    def _read_directives(self) -> None:
        while self._next < len(self._lines):
            match = _DIRECTIVE.fullmatch(self._lines[self._next].strip())
            if match is None or (name := match[1].lower()) not in _DIRECTIVES:
                return
            self._next += 1
            if name in self._directives:
                self._fault(self._next, f"the directive {name!r} is there twice", "it once")
            elif name == "escape" and match[2] not in ("\\", "`"):
                self._fault(self._next, f"the escape character {shown(match[2])}", "\\ or `")
            else:
                self._directives[name] = match[2]
                self._escape = match[2] if name == "escape" else self._escape

    def _statement(self) -> str:
        """The next line with those that continue it; empty for a comment or an empty line."""
        line = self._take().lstrip()
        if not line or line.startswith("#"):
            return ""
        parts: list[str] = []
        while True:
            body = line.rstrip(" \t")
            if not body.endswith(self._escape):
                parts.append(line)
                break
            parts.append(body[:-1])
            more = self._continuation()
            if more is None:
                break
            line = more
        return "".join(parts).strip()

    def _continuation(self) -> str | None:
        while self._next < len(self._lines):
            line = self._take()
            stripped = line.lstrip()
            if stripped and not stripped.startswith("#"):
                return line
        return None

    def _complete(self, number: int, line: str) -> Statement:
        name, end = words.first(line, 0, self._escape)
        rest = line[end:].strip()
        documents: tuple[HereDocument, ...] = ()
        if name.upper() in _WITH_HERE_DOCUMENTS or (name.upper() == "ONBUILD" and "<<" in rest):
            documents = self._here_documents(number, rest)
        return Statement(line=number, name=name.upper(), rest=rest, here_documents=documents)

    def _here_documents(self, number: int, rest: str) -> tuple[HereDocument, ...]:
        if "<<" not in rest:
            return ()
        found: list[HereDocument] = []
        for word in words.split(rest, self._escape):
            if match := _HERE_DOCUMENT.fullmatch(word):
                name = words.unquoted(match[2], self._escape)
                content = self._until(name, tabs=bool(match[1]))
                if content is None:
                    self._fault(
                        number, f"the here-document {shown(name)} has no end", f"a line with {shown(name)} alone"
                    )
                    break
                found.append(HereDocument(name=name, content=content, expand=name == match[2]))
        return tuple(found)

    def _until(self, name: str, *, tabs: bool) -> str | None:
        begin = self._next
        while self._next < len(self._lines):
            line = self._take()
            if (line.lstrip("\t") if tabs else line) == name:
                return "".join(f"{each}\n" for each in self._lines[begin : self._next - 1])
        return None

    def _take(self) -> str:
        self._next += 1
        return self._lines[self._next - 1]

    def _fault(self, line: int, problem: str, expected: str) -> None:
        self._faults.append(Fault(text_name=self._text_name, line=line, problem=problem, expected=expected))
