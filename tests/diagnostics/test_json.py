"""The JSON document of findings."""

from __future__ import annotations

import json

from linnet.diagnostics.diagnostic import Diagnostic, Fix, Label
from linnet.diagnostics.json import document
from linnet.source import Source, Span


def test_positions_count_code_points_and_offsets_count_bytes() -> None:
    source = Source("a.linnet", "// é日\nlet x = y\n")
    at = source.text.index("y")
    span = Span(source, at, at + 1)
    finding = Diagnostic(
        "W1002",
        "warning",
        "unused",
        Label(span, "here"),
        [Label(span, "there")],
        ["note"],
        "remove it",
        [Fix(span, "z", "rename")],
    )
    whole = document([finding])
    place = {
        "file": "a.linnet",
        "start": {"line": 2, "column": 9, "offset": len("// é日\nlet x = ".encode())},
        "end": {"line": 2, "column": 10, "offset": len("// é日\nlet x = y".encode())},
    }
    assert json.loads(json.dumps(whole)) == {
        "version": 1,
        "diagnostics": [
            {
                "code": "W1002",
                "severity": "warning",
                "message": "unused",
                "label": "here",
                "location": place,
                "related": [{"message": "there", "location": place}],
                "notes": ["note"],
                "help": "remove it",
                "fixes": [{"message": "rename", "safety": "safe", "location": place, "text": "z"}],
            }
        ],
        "summary": {"errors": 0, "warnings": 1},
    }


def test_no_findings() -> None:
    assert document([]) == {
        "version": 1,
        "diagnostics": [],
        "summary": {"errors": 0, "warnings": 0},
    }
