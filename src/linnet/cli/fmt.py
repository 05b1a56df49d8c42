"""`linnet fmt`: write files in the one style of the language."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

HELP = """\
Write .linnet files in the language's one style: four spaces, 100 columns, one statement
a line. Comments stay. A file that does not parse is left alone.

Each result is proven before it is written: the same program with the same comments, and
nothing more to change. Exit status: 0 fine, 1 a file has errors or is not there or, with
--check or --diff, would change; 2 the command line is wrong.

  linnet fmt .
  linnet fmt --check src/lib.linnet
  linnet fmt - < draft.linnet"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="a .linnet file, a folder, or - for stdin"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing, name what would change"
    )
    parser.add_argument("--diff", action="store_true", help="write nothing; show what would change")


def run(args: argparse.Namespace) -> int:
    from linnet.errors import Error
    from linnet.syntax.format import Unparsed

    dry = args.check or args.diff
    changed = kept = 0
    files, wrong = _files(args.paths)
    for text in wrong:
        print(f"error: {text}", file=sys.stderr)
    failed = bool(wrong)
    for path in files:
        try:
            different = _standard_input(args) if path is None else _one(path, args)
        except Unparsed as error:
            failed = True
            _report(error)
            continue
        except Error as error:
            failed = True
            print(f"error: {error}", file=sys.stderr)
            continue
        except OSError as error:
            failed = True
            print(f"error: {path}: {error.strerror or error}", file=sys.stderr)
            continue
        changed += different
        kept += not different
    if args.paths != ["-"]:
        verb = "would change" if dry else "changed"
        print(f"{changed} {_files_word(changed)} {verb}, {kept} left unchanged", file=sys.stderr)
    return 1 if failed or (dry and changed) else 0


def _files_word(count: int) -> str:
    return "file" if count == 1 else "files"


def _files(paths: list[str]) -> tuple[list[Path | None], list[str]]:
    """Every file once, those of a folder in order, and what is wrong with paths. None stands for
    standard input."""
    seen: set[str] = set()
    found: list[Path | None] = []
    wrong: list[str] = []
    for given in paths:
        if given == "-":
            found.append(None)
            continue
        path = Path(given)
        if not path.exists():
            wrong.append(f"{given}: no such file or folder")
            continue
        if not path.is_dir() and path.suffix != ".linnet":
            wrong.append(f"{given}: expected a .linnet file or a folder")
            continue
        files = list(_below(path)) if path.is_dir() else [path]
        if not files:
            print(f"{given}: no .linnet files below it", file=sys.stderr)
        for file in files:
            if (real := os.path.realpath(file)) not in seen:
                seen.add(real)
                found.append(file)
    return found, wrong


def _below(folder: Path) -> Iterator[Path]:
    """The files of a folder; hidden folders, and links to folders, are not entered."""
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(here, name) for name in sorted(names) if name.endswith(".linnet"))


def _one(path: Path, args: argparse.Namespace) -> bool:
    """Format a file; whether that changes it."""
    from linnet.package.files import MAX_SOURCE, read_bounded
    from linnet.syntax.format import format_text

    data = read_bounded(path, MAX_SOURCE)
    result = format_text(_decode(data, str(path)), str(path)).encode("utf-8")
    if result == data:
        return False
    if args.diff:
        _print_diff(data.decode("utf-8"), result.decode("utf-8"), str(path))
    elif args.check:
        print(f"would change {path}")
    else:
        write(path, result)
        print(f"changed {path}")
    return True


def _standard_input(args: argparse.Namespace) -> bool:
    from linnet.syntax.format import format_text

    data = sys.stdin.buffer.read()
    text = _decode(data, "<stdin>")
    result = format_text(text, "<stdin>")
    different = result.encode("utf-8") != data
    if args.diff:
        _print_diff(text, result, "<stdin>")
    elif not args.check:
        sys.stdout.flush()
        sys.stdout.buffer.write(result.encode("utf-8"))
        sys.stdout.buffer.flush()
    return different


def _decode(data: bytes, path: str) -> str:
    from linnet.errors import PackageError

    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        found = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        raise PackageError(f"{path}: not UTF-8 text ({found})") from None


def write(path: Path, data: bytes) -> None:
    """Replace a file in one step, so that nobody ever reads half of it. A link stays one."""
    from tempfile import mkstemp

    real = os.path.realpath(path)
    mode = os.stat(real).st_mode & 0o7777
    handle, temporary = mkstemp(prefix=".", suffix=".linnet.tmp", dir=os.path.dirname(real))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, mode)
        os.replace(temporary, real)
    except BaseException:
        os.unlink(temporary)
        raise


def _print_diff(before: str, after: str, path: str) -> None:
    from difflib import unified_diff

    from linnet.cli.terminal import use_color
    from linnet.diagnostics.columns import visible

    color = use_color(sys.stdout)
    paint = {"+": "32", "-": "31", "@": "36"}
    lines = unified_diff(
        before.splitlines(), after.splitlines(), path, f"{path} (formatted)", lineterm=""
    )
    for line in lines:
        shown = visible(line)
        code = paint.get(line[:1])
        print(f"\x1b[{code}m{shown}\x1b[0m" if color and code else shown)


def _report(error: Exception) -> None:
    from linnet.cli.terminal import use_color, width
    from linnet.diagnostics.text import render_all
    from linnet.syntax.format import Unparsed

    assert isinstance(error, Unparsed)
    color, columns = use_color(sys.stderr), width(sys.stderr)
    print(render_all(error.diagnostics, color=color, width=columns), end="", file=sys.stderr)
