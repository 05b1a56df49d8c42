"""The forms that other tools read: SARIF and GitHub annotations."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from linnet import __version__
from linnet.cli.main import main
from linnet.diagnostics import github, sarif
from linnet.diagnostics.diagnostic import Diagnostic, Fix, Label
from linnet.source import Source, Span

TEXT = "module a\n// é😀\nconst A = B\n"
SOURCE = Source("src/a b,c.linnet", TEXT)


def finding() -> Diagnostic:
    at = TEXT.index("B")
    span = Span(SOURCE, at, at + 1)
    return Diagnostic(
        "E1201",
        "error",
        "unknown name `B`: 100 %",
        Label(span, "here"),
        [Label(Span(SOURCE, 0, 8), "in this module")],
        ["a note\nof two lines"],
        "did you mean `A`?",
        [Fix(span, "A", "write `A`", "unsafe")],
    )


def test_github() -> None:
    assert github.render(finding()) == (
        "::error file=src/a b%2Cc.linnet,line=3,endLine=3,title=E1201,col=11,endColumn=12::"
        "unknown name `B`: 100 %25%0Aa note%0Aof two lines%0Ahelp: did you mean `A`?"
    )
    long = Diagnostic("W1001", "warning", "all", Label(Span(SOURCE, 0, len(TEXT))))
    assert github.render(long).startswith(
        "::warning file=src/a b%2Cc.linnet,line=1,endLine=4,title"
    )


def test_sarif() -> None:
    log = sarif.document([finding()], __version__, ["b: no such file"])
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    assert run["tool"]["driver"]["rules"][0]["id"] == "E1201"
    (result,) = run["results"]
    assert result["ruleIndex"] == 0
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "src/a%20b%2Cc.linnet"
    assert place["region"] == {"startLine": 3, "startColumn": 11, "endLine": 3, "endColumn": 12}
    replacement = result["fixes"][0]["artifactChanges"][0]["replacements"][0]
    assert replacement["insertedContent"] == {"text": "A"}
    invocation = run["invocations"][0]
    assert not invocation["executionSuccessful"]
    assert invocation["toolExecutionNotifications"][0]["message"]["text"] == "b: no such file"


# What the schema of SARIF 2.1.0 asks of the objects that we write: the properties that each must
# have, and those that it may have (all of them are closed).
SHAPES: dict[str, tuple[set[str], set[str]]] = {
    "log": ({"version", "runs"}, {"$schema"}),
    "run": ({"tool"}, {"columnKind", "invocations", "results"}),
    "result": (
        {"message"},
        {"ruleId", "ruleIndex", "level", "locations", "relatedLocations", "fixes"},
    ),
    "location": (set(), {"id", "physicalLocation", "message"}),
    "region": (set(), {"startLine", "startColumn", "endLine", "endColumn"}),
    "rule": ({"id"}, {"shortDescription", "help"}),
}


def conforms(kind: str, found: dict[str, Any]) -> None:
    must, may = SHAPES[kind]
    assert must <= set(found) <= must | may, (kind, found)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.linnet"
    file.write_text("module a\n\nconst A: i8 = B\nconst A = 3 +\n")
    assert main(["check", "--output", "sarif", str(file)]) == 1
    log = json.loads(capsys.readouterr().out)
    conforms("log", log)
    for run in log["runs"]:
        conforms("run", run)
        for rule in run["tool"]["driver"]["rules"]:
            conforms("rule", rule)
        assert run["results"]
        for result in run["results"]:
            conforms("result", result)
            assert result["level"] in ("none", "note", "warning", "error")
            for location in result["locations"] + result.get("relatedLocations", []):
                conforms("location", location)
                region = location["physicalLocation"]["region"]
                conforms("region", region)
                assert all(value >= 1 for value in region.values())
    assert main(["check", "--output", "github", str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(re.match(r"::(error|warning) .*::.+", line) for line in lines)
