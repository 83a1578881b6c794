"""How ``--help`` looks: a heading, names on the left, what they mean on the right, wrapped to the terminal.

The library's own pages are tables of rich, whose import and layout cost a tenth of the time that ``polyarch lint
--help`` takes (MF-090). A page here is one text per section, with styles on a terminal only. Nothing of rich is
imported before a page is printed.
"""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

MARGIN, GAP = 2, 2
WIDEST_NAMES = 24
"""A name that is longer has a line of its own, so that the meanings keep their room."""
NARROWEST_MEANING = 30
NOTHING = '""'
"""cyclopts' way to show that the default is an empty text, which tells nobody anything."""


class HelpPage:
    """cyclopts' ``HelpFormatter``: called for the parts of a page, each of which ends its last line."""

    def render_usage(self, console: "Console", options: "ConsoleOptions", usage: object) -> None:
        """Print how the command is called."""
        if usage:
            text = str(usage).strip()
            console.print(text if text.startswith("Usage:") else f"Usage: {text}", markup=False, highlight=False)

    def render_description(self, console: "Console", options: "ConsoleOptions", description: object) -> None:
        """Print what the command is for."""
        if said := words(description):
            console.print(f"\n{said}", markup=False, highlight=False)

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        """Print one section; nothing for one without entries."""
        if not panel.entries:
            return
        from rich.text import Text

        text = Text("\n")
        text.append(f"{panel.title}:\n", style="bold")
        rows = [(", ".join(entry.all_options), meaning(entry)) for entry in panel.entries]
        left = min(max(len(names) for names, _ in rows), WIDEST_NAMES)
        room = max(options.max_width - MARGIN - left - GAP, NARROWEST_MEANING)
        for names, said in rows:
            first, *others = textwrap.wrap(said, room, break_on_hyphens=False, break_long_words=False) or [""]
            text.append(" " * MARGIN)
            text.append(names, style="cyan")
            if len(names) > left and first:
                others = [first, *others]
            else:
                text.append((" " * (left - len(names) + GAP) + first) if first else "")
            text.append("".join(f"\n{' ' * (MARGIN + left + GAP)}{line}" for line in others))
            text.append("\n")
        console.print(text, soft_wrap=True, end="")


def meaning(entry: "HelpEntry") -> str:
    """What an option means, and which values it takes."""
    remarks = (
        _remark("choices", entry.choices),
        _remark("environment", entry.env_var),
        _remark("default", (entry.default,) if entry.default not in (None, NOTHING) else ()),
        "[required]" if entry.required else "",
    )
    return " ".join(part for part in (words(entry.description), *remarks) if part)


def words(said: object) -> str:
    """A text of cyclopts', which in ``help_format="plaintext"`` holds a rich ``Text``."""
    return str(getattr(said, "primary_renderable", said) or "").strip()


def _remark(name: str, values: Sequence[str] | None) -> str:
    return f"[{name}: {', '.join(values)}]" if values else ""
