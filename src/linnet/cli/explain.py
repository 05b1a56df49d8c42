"""`linnet explain`: the page of a code, with a program that earns it and the way out."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator

HELP = """\
Print the page of a code: a short explanation, a program that earns it, and the way out.
Without a code, list all of them; a word lists those whose title has it, the first
digits of a code its family.

  linnet explain E2203
  linnet explain reshape"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("codes", nargs="*", metavar="CODE", help="such as E2203, or a word")


def run(args: argparse.Namespace) -> int:
    from linnet.cli.terminal import use_color
    from linnet.diagnostics.codes import TITLES

    color = use_color(sys.stdout)
    if not args.codes:
        print(listing(list(TITLES)))
        return 0
    parts: list[str] = []
    for asked in args.codes:
        found = codes_for(asked)
        single = found == [_code(asked)]
        parts.append(rendered(found[0], color) if single else listing(found))
    print("\n\n".join(parts))
    return 0


def codes_for(asked: str) -> list[str]:
    """The code asked for, or those whose title has the word. UsageError if there is none."""
    from linnet.cli.terminal import UsageError
    from linnet.diagnostics.codes import TITLES

    code = _code(asked)
    if code in TITLES:
        return [code]
    if re.fullmatch(r"[EW]\d*", code) and (
        family := [one for one in TITLES if one.startswith(code)]
    ):
        return family
    word = asked.strip().lower()
    if found := [one for one, title in TITLES.items() if word and word in title.lower()]:
        return found
    raise UsageError(f"unknown code `{asked}`; {nearest(code)}")


def _code(asked: str) -> str:
    """`e2203`, `2203` and `error[E2203]` all ask for `E2203`."""
    found = re.search(r"(?<![A-Za-z0-9])([EWew]?)(\d{4})(?!\d)", asked)
    return f"{found[1].upper() or 'E'}{found[2]}" if found else asked.strip().upper()


def nearest(code: str) -> str:
    from linnet.diagnostics.codes import TITLES

    if re.fullmatch(r"[EW]\d+", code):
        # Of the same family, by the distance of the numbers.
        family = [one for one in TITLES if one[:2] == code[:2]] or list(TITLES)
        near = sorted(family, key=lambda one: abs(int(one[1:]) - int(code[1:6])))[:2]
        shown = " or ".join(f"`{one}` ({TITLES[one]})" for one in near)
        return f"did you mean {shown}?"
    return "`linnet explain` lists all codes"


def listing(codes: list[str]) -> str:
    from linnet.diagnostics.codes import TITLES

    return "\n".join(f"{code}  {TITLES[code]}" for code in codes)


def rendered(code: str, color: bool) -> str:
    """A page for a terminal: programs are indented instead of fenced."""
    from linnet.diagnostics.codes import page

    return "\n".join(_lines(page(code) or "", color))


def _lines(text: str, color: bool) -> Iterator[str]:
    def paint(style: str, line: str) -> str:
        return f"\x1b[{style}m{line}\x1b[0m" if color else line

    program = False
    for line in text.rstrip("\n").split("\n"):
        if line.startswith("```"):
            program = not program
        elif program:
            mark = re.search(r"// (error|warning): .*$", line)
            if mark:
                line = line[: mark.start()] + paint("31", mark[0])
            yield f"    {line}".rstrip()
        elif line.startswith("# "):
            yield paint("1", line[2:])
        else:
            yield line
