"""Findings as a SARIF 2.1.0 log, which code hosts and editors read.

Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0". Columns count
code points; lines and columns are 1-based, ends exclusive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linnet.diagnostics.codes import TITLES
from linnet.diagnostics.diagnostic import Diagnostic, Label
from linnet.source import Span

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def document(
    diagnostics: Sequence[Diagnostic], version: str, failures: Sequence[str] = ()
) -> dict[str, Any]:
    """The whole log, ready for `json.dumps`. `failures` are paths that could not be read."""
    codes = sorted({one.code for one in diagnostics})
    notes = [{"level": "error", "message": {"text": text}} for text in failures]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "linnet",
                        "semanticVersion": version,
                        "rules": [rule(code) for code in codes],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {
                        "executionSuccessful": not failures,
                        "toolExecutionNotifications": notes,
                    }
                ],
                "results": [result(one, codes.index(one.code)) for one in diagnostics],
            }
        ],
    }


def rule(code: str) -> dict[str, Any]:
    return {
        "id": code,
        "shortDescription": {"text": TITLES.get(code, code)},
        "help": {"text": f"`linnet explain {code}` tells more."},
    }


def result(diagnostic: Diagnostic, index: int) -> dict[str, Any]:
    text = [diagnostic.message, *diagnostic.notes]
    if diagnostic.help:
        text.append(f"help: {diagnostic.help}")
    entry: dict[str, Any] = {
        "ruleId": diagnostic.code,
        "ruleIndex": index,
        "level": diagnostic.severity,
        "message": {"text": "\n".join(text)},
        "locations": [{"physicalLocation": physical(diagnostic.span)}],
    }
    if diagnostic.related:
        entry["relatedLocations"] = [
            related(number, label) for number, label in enumerate(diagnostic.related, 1)
        ]
    if diagnostic.fixes:
        entry["fixes"] = [
            {
                "description": {"text": f"{fix.message} ({fix.safety})"},
                "artifactChanges": [
                    {
                        "artifactLocation": {"uri": uri(fix.span.source.path)},
                        "replacements": [
                            {
                                "deletedRegion": region(fix.span),
                                "insertedContent": {"text": fix.text},
                            }
                        ],
                    }
                ],
            }
            for fix in diagnostic.fixes
        ]
    return entry


def related(number: int, label: Label) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": number, "physicalLocation": physical(label.span)}
    if label.message:
        entry["message"] = {"text": label.message}
    return entry


def physical(span: Span) -> dict[str, Any]:
    return {"artifactLocation": {"uri": uri(span.source.path)}, "region": region(span)}


def region(span: Span) -> dict[str, int]:
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(max(span.start, span.end))
    return {
        "startLine": line,
        "startColumn": column,
        "endLine": end_line,
        "endColumn": end_column,
    }


def uri(path: str) -> str:
    from pathlib import PurePath
    from urllib.parse import quote

    pure = PurePath(path)
    return pure.as_uri() if pure.is_absolute() else quote(pure.as_posix())
