"""One report in one form. Forms that a command line does not ask for are not even imported."""

import msgspec

from polyarch.cli.output.documents import document_text
from polyarch.cli.output.terminal import terminal_width
from polyarch.reports.document import Report


def rendered(report: Report, form: str, *, colour: bool = False) -> str:
    """The text of a form."""
    match form:
        case "text":
            from polyarch.cli.report.forms.text import Look, report_text

            return report_text(report, Look(colour, terminal_width() if colour else None))
        case "csv":
            from polyarch.cli.report.forms.spreadsheet import report_csv

            return report_csv(report)
        case "markdown":
            from polyarch.cli.report.forms.markdown import report_markdown

            return report_markdown(report)
        case "html":
            from polyarch.reports.page import html_page

            return html_page(report)
        case _:
            return document_text(msgspec.to_builtins(report), form)
