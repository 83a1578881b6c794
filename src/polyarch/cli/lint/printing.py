"""Printing a report in the formats that were asked for (MF-030, MF-040)."""

import importlib
from collections.abc import Sequence

from polyarch.cli.options.outputs import Output, emit
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages
from polyarch.manifests.report import Report


def write_reports(report: Report, outputs: Sequence[Output], *, messages: Messages) -> None:
    """All formats; a file appears whole or not at all."""
    emit(outputs, lambda form, colour: rendered(report, form, colour=colour, brief=messages.quiet))


def rendered(report: Report, format: str, *, colour: bool = False, brief: bool = False) -> str:
    """The text of one format; ``brief``: without a summary for people."""
    if format == "text":
        from polyarch.manifests.output import text

        return text.render(report, colour=colour, summary=not brief)
    if format == "yaml":
        from polyarch.manifests.output import json

        return document_text(json.document(report), "yaml")
    rendering = importlib.import_module(f"polyarch.manifests.output.{format}")
    result: str = rendering.render(report)
    return result
