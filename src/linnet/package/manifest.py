"""`linnet.toml`: a package's name, version, language and dependencies.

Every mistake in a manifest is a finding E5001 with the line it stands on; a
`ManifestError` carries all of them.
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from linnet.diagnostics.diagnostic import Diagnostic, Label
from linnet.errors import PackageError
from linnet.package.files import MAX_MANIFEST, read_bounded
from linnet.record import dataclass, field
from linnet.source import Source, Span
from linnet.syntax.lexer import WORDS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MANIFEST = "linnet.toml"
LANGUAGE = "0.1"
_TABLES = ("package", "dependencies")
_REQUIRED = ("name", "version", "language")
_OPTIONAL = ("description", "authors", "license", "homepage", "repository", "keywords")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*", re.ASCII)
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


class ManifestError(PackageError):
    """A manifest that cannot be used; `.diagnostics` holds every finding."""

    def __init__(self, diagnostics: list[Diagnostic]):
        first = diagnostics[0]
        more = f" (and {len(diagnostics) - 1} more)" if len(diagnostics) > 1 else ""
        super().__init__(f"{first.span}: {first.message} [{first.code}]{more}")
        self.diagnostics = diagnostics


@dataclass(frozen=True)
class Manifest:
    """`dependencies` maps a key to its folder, relative to the manifest's own."""

    source: Source
    name: str
    version: str
    language: str
    dependencies: Mapping[str, str] = field(default_factory=dict)


def read_manifest(path: Path) -> Manifest:
    """Read a `linnet.toml`. ManifestError with every finding; PackageError if unreadable."""
    data = read_bounded(path, MAX_MANIFEST)
    source = Source(str(path), data.decode("utf-8", "replace"))
    findings = Findings(source)
    try:
        data.decode("utf-8")
        document = tomllib.loads(source.text)
    except UnicodeDecodeError as error:
        at = len(data[: error.start].decode("utf-8"))
        raise ManifestError([finding(Span(source, at, at + 1), "not UTF-8 text")]) from None
    except tomllib.TOMLDecodeError as error:
        raise ManifestError([syntax_error(source, str(error))]) from None
    except RecursionError:
        raise ManifestError([finding(Span(source, 0, 1), "nested too deeply")]) from None
    manifest = _manifest(source, document, findings)
    if findings.found:
        raise ManifestError(findings.found)
    return manifest


class Findings:
    def __init__(self, source: Source):
        self.source = source
        self.found: list[Diagnostic] = []

    def add(self, table: str, key: str | None, message: str, help: str | None = None) -> None:
        self.found.append(finding(locate(self.source, table, key), message, help))


def finding(span: Span, message: str, help: str | None = None) -> Diagnostic:
    return Diagnostic("E5001", "error", message, Label(span), help=help)


def syntax_error(source: Source, message: str) -> Diagnostic:
    """A finding from the TOML reader's message, which ends in a line and column."""
    at = _AT.search(message)
    offset = max(len(source.text) - 1, 0)
    if at and at[1]:
        line = min(int(at[1]), len(source.line_starts))
        offset = min(source.line_starts[line - 1] + int(at[2]) - 1, offset)
    text = message[: at.start()] if at else message
    span = Span(source, offset, min(offset + 1, len(source.text)))
    return finding(span, f"not valid TOML: {text[:1].lower()}{text[1:]}")


def locate(source: Source, table: str, key: str | None = None) -> Span:
    """Where a table's header, or a key in it, stands; the start of the file if nowhere."""
    header: Span | None = None
    current = ""
    for start in source.line_starts:
        end = source.text.find("\n", start)
        line = source.text[start : len(source.text) if end < 0 else end].rstrip()
        found = re.match(r"\s*\[+\s*([\w.\"-]+)\s*\]+", line)
        if found:
            current = found[1]
            if current == table or current.startswith(f"{table}."):
                header = header or Span(source, start, start + len(line))
                if key and current == f"{table}.{key}":
                    return Span(source, start, start + len(line))
        elif key and (assigned := re.match(r"\s*\"?([\w-]+)\"?\s*[.=]", line)):
            if (assigned[1] == key and current == table) or assigned[1] == table == key:
                at = start + line.index(assigned[1])
                return Span(source, at, at + len(assigned[1]))
    return header or Span(source, 0, min(1, len(source.text)))


def _manifest(source: Source, document: dict[str, object], findings: Findings) -> Manifest:
    for name in document:
        if name not in _TABLES:
            findings.add(name, name, f"unknown table `{name}`", _nearest(name, _TABLES))
    package = document.get("package")
    if not isinstance(package, dict):
        found = "no `[package]` table" if package is None else "`package` is not a table"
        findings.add("package", "package", found, 'expected `[package]` with `name = "…"`')
        package = {}
    else:
        _check_package(package, findings)
    dependencies = document.get("dependencies", {})
    if not isinstance(dependencies, dict):
        findings.add("dependencies", "dependencies", "`dependencies` is not a table")
        dependencies = {}
    paths = {key: _dependency(key, value, findings) for key, value in dependencies.items()}
    return Manifest(
        source,
        str(package.get("name", "")),
        str(package.get("version", "")),
        str(package.get("language", "")),
        {key: path for key, path in paths.items() if path is not None},
    )


def _check_package(package: dict[str, object], findings: Findings) -> None:
    for key in package:
        if key not in _REQUIRED and key not in _OPTIONAL:
            help = _nearest(key, _REQUIRED + _OPTIONAL)
            findings.add("package", key, f"unknown key `{key}` in `[package]`", help)
    for key in _REQUIRED:
        value = package.get(key)
        if value is None:
            findings.add("package", None, f"`[package]` has no `{key}`", f'add `{key} = "…"`')
        elif not isinstance(value, str) or not value:
            findings.add("package", key, f"`{key}` is {_kind(value)}, expected a text in quotes")
        elif key == "language" and value != LANGUAGE:
            message = f'the package asks for language "{value}", this version reads "{LANGUAGE}"'
            findings.add("package", key, message)
        elif key == "name" and not _NAME.fullmatch(value):
            help = "a name uses letters, digits, `_` and `-`, and begins with a letter or `_`"
            findings.add("package", key, f'"{value}" cannot be a package\'s name', help)


def _dependency(key: str, value: object, findings: Findings) -> str | None:
    if not _KEY.fullmatch(key) or key in WORDS or key == "std":
        message = f"`{key}` cannot be the key of a dependency"
        help = "a key is a name of the language; `std` and `crate` are taken"
        findings.add("dependencies", key, message, help)
        return None
    expected = f'expected `{key} = {{ path = "../{key}" }}`'
    if not isinstance(value, dict):
        findings.add("dependencies", key, f"`{key}` is {_kind(value)}", expected)
        return None
    path = value.get("path")
    if unknown := sorted(set(value) - {"path"}):
        findings.add("dependencies", key, f"unknown key `{unknown[0]}` in `{key}`", expected)
    if not isinstance(path, str) or not path:
        findings.add("dependencies", key, f"`{key}` has no `path`", expected)
        return None
    if "\0" in path or Path(path).is_absolute():
        message = f"the path of `{key}` is not relative to the manifest"
        findings.add("dependencies", key, message, expected)
        return None
    return path


def _nearest(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"did you mean `{near[0]}`?" if near else f"known are {', '.join(known)}"


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, str):
        return "a text" if value else "empty"
    return {int: "a number", float: "a number", list: "a list", dict: "a table"}.get(
        type(value), "a date"
    )
