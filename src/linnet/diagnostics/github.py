"""Findings as annotations of a GitHub workflow: `::error file=…,line=…::message`.

The format is that of GitHub's workflow commands; `%`, line breaks and, in properties, `:` and `,`
are written as percent escapes.
"""

from __future__ import annotations

from linnet.diagnostics.columns import visible
from linnet.diagnostics.diagnostic import Diagnostic


def render(diagnostic: Diagnostic) -> str:
    span = diagnostic.span
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(max(span.start, span.end))
    properties = {
        "file": span.source.path,
        "line": line,
        "endLine": end_line,
        "title": diagnostic.code,
    }
    if line == end_line:  # columns are taken within one line only
        properties |= {"col": column, "endColumn": end_column}
    shown = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items())
    text = [diagnostic.message, *diagnostic.notes]
    if diagnostic.help:
        text.append(f"help: {diagnostic.help}")
    return f"::{diagnostic.severity} {shown}::{_data(visible(chr(10).join(text)))}"


def failure(message: str) -> str:
    """What kept a path from being read at all."""
    return f"::error ::{_data(visible(message))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
