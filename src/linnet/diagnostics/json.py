"""Findings as one JSON document.

`{"version": 1, "diagnostics": […], "summary": {"errors": n, "warnings": n}}`. A location is
`{"file", "start", "end"}`; a position has a 1-based `line` and `column` (in code points) and
an `offset` in bytes of UTF-8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linnet.diagnostics.diagnostic import Diagnostic
from linnet.source import Source, Span

VERSION = 1


def document(diagnostics: Sequence[Diagnostic]) -> dict[str, Any]:
    """The whole document, ready for `json.dumps`."""
    return {
        "version": VERSION,
        "diagnostics": [entry(one) for one in diagnostics],
        "summary": {
            "errors": sum(one.severity == "error" for one in diagnostics),
            "warnings": sum(one.severity == "warning" for one in diagnostics),
        },
    }


def entry(diagnostic: Diagnostic) -> dict[str, Any]:
    return {
        "code": diagnostic.code,
        "severity": diagnostic.severity,
        "message": diagnostic.message,
        "label": diagnostic.label.message,
        "location": location(diagnostic.span),
        "related": [
            {"message": label.message, "location": location(label.span)}
            for label in diagnostic.related
        ],
        "notes": list(diagnostic.notes),
        "help": diagnostic.help,
        "fixes": [
            {
                "message": fix.message,
                "safety": fix.safety,
                "location": location(fix.span),
                "text": fix.text,
            }
            for fix in diagnostic.fixes
        ],
    }


def location(span: Span) -> dict[str, Any]:
    return {
        "file": span.source.path,
        "start": position(span.source, span.start),
        "end": position(span.source, span.end),
    }


def position(source: Source, offset: int) -> dict[str, int]:
    line, column = source.position(offset)
    return {"line": line, "column": column, "offset": source.byte_offset(offset)}
