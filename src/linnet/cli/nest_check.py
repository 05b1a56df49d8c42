"""`linnet nest check`: what a registry asks of a package, folder by folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linnet.nest.checks.report import Report

HELP = """\
Check folders as a registry does: the card, the README and the files; the source, at the
card's sizes; every parameter against its tensor's shape and dtype, from headers alone; and
every entry, run at the [check] sizes on random weights.

The program is checked and run in processes of their own, with limits of time and memory."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", metavar="DIR", nargs="*", help="default: the whole zoo")
    parser.add_argument(
        "--weights", metavar="PATH", nargs="+", type=Path, default=[],
        help="a folder or files to compare with, in place of the card's",
    )  # fmt: skip
    parser.add_argument(
        "--offline", action="store_true", help="don't read headers from the card's repository"
    )
    parser.add_argument("--no-run", action="store_true", help="leave the entries out")
    parser.add_argument(
        "--seconds", type=float, default=None, metavar="S",
        help="processor time for each step (default: 4); by the clock half as much again",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the reports as JSON")
    parser.add_argument(
        "--record", action="store_true",
        help="write what was found, and the sizes of the weight files, into DIR/checked.json",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    import os

    from linnet.cli.nest_site import folders
    from linnet.cli.terminal import UsageError
    from linnet.nest.checks.run import SECONDS, check_folder

    if args.weights and len(args.models) != 1:
        raise UsageError("--weights goes with one DIR")
    seconds = SECONDS if args.seconds is None else args.seconds
    if not 0 < seconds <= 3600:
        raise UsageError(f"--seconds takes a time up to 3600, found {seconds:g}")
    online = not args.offline and os.environ.get("HF_HUB_OFFLINE", "0").upper() not in _TRUE
    reports = []
    for folder in folders(args.models):
        report = check_folder(
            folder, weights=args.weights, online=online, run=not args.no_run, seconds=seconds
        )
        reports.append(report)
        if args.record:
            _record(folder, report, online)
        if not args.json:
            print(report.text(), flush=True)
    if args.json:
        from json import dumps

        document = {"version": 1, "reports": [report.document() for report in reports]}
        print(dumps(document, indent=2))
    return 0 if all(report.ok for report in reports) else 1


def _record(folder: Path, report: Report, online: bool) -> None:
    """For the pages; the sizes as far as the hub tells them."""
    from linnet.errors import Error, WeightsError
    from linnet.nest.card import read_card
    from linnet.nest.checked import record_check
    from linnet.nest.fetch import plan_card

    try:
        card = read_card(folder)
    except Error:
        return  # the report says so
    sizes: dict[str, int] = {}
    if online and card.weights.repo is not None:
        try:
            sizes = {file.name: file.size for file in plan_card(card).files}
        except WeightsError:
            pass  # the report has a note of it
    steps = [
        {"name": s.name, "detail": s.detail, "ok": not s.problems, "skipped": s.skipped}
        for s in report.steps
    ]
    counted = next((s.figures for s in report.steps if s.name == "sizes" and s.figures), None)
    record_check(card, steps, sizes, counted)


_TRUE = ("1", "ON", "YES", "TRUE")
