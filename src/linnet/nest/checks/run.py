"""`linnet nest check`: every step of one folder, in order."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from linnet.errors import Error, WeightsError, how_to_install
from linnet.nest.card import Card, read_card
from linnet.nest.checks.folder import check_card, check_files, check_readme
from linnet.nest.checks.limits import run_limited
from linnet.nest.checks.report import Report, Step
from linnet.nest.zoo import find_weights

SECONDS = 4.0  # of processor time for each step of a program; by the clock half as much again
MEMORY = 4 << 30  # bytes of address space for the checker
TRIAL_MEMORY = 16 << 30  # torch alone takes several gigabytes of it

Progress = Callable[[Step], None]


def check_folder(
    folder: Path,
    *,
    weights: Sequence[Path] = (),
    online: bool = True,
    run: bool = True,
    seconds: float = SECONDS,
    progress: Progress | None = None,
) -> Report:
    """Check a card's folder as a registry would. Nothing of it runs in this process.

    `weights` are files or a folder that stand for the card's own. Without them, and with none on
    this machine, the headers of the card's repository are read over the network if `online`.
    """
    report = Report(folder)

    def add(step: Step) -> Step:
        report.steps.append(step)
        if progress is not None:
            progress(step)
        return step

    try:
        card = read_card(folder)
    except Error as error:
        add(Step("card", problems=[str(error)]))
        return report
    add(check_card(card))
    add(check_readme(folder))
    if add(check_files(folder)).problems:
        return report
    with tempfile.TemporaryDirectory() as room:
        arguments, notes = _tensors(card, weights, online, Path(room))
        sound = True
        for record in run_limited(
            "linnet.nest.checks.program", [str(folder.resolve()), *arguments],
            seconds=seconds, memory=MEMORY,
        ):  # fmt: skip
            step = Step.read(record)
            if step.name == "tensors":
                step.notes += notes
            sound = sound and not (step.problems and step.name != "tensors")
            add(step)
    if not run or not sound:
        return report
    if importlib.util.find_spec("torch") is None:
        missing = f"torch is not installed: {how_to_install('torch')}"
        add(Step("entries", missing, skipped=True))
        return report
    for record in run_limited(
        "linnet.torch.trial", [str(folder.resolve())], seconds=seconds, memory=TRIAL_MEMORY
    ):
        add(Step.read(record))
    return report


def _tensors(
    card: Card, weights: Sequence[Path], online: bool, room: Path
) -> tuple[list[str], list[str]]:
    """The arguments that tell the check of the program where tensors are; and notes."""
    if weights:
        return [str(path.resolve()) for path in weights], []
    try:
        found = find_weights(card)
        return [str(p.resolve()) for p in (found if isinstance(found, list) else [found])], []
    except WeightsError:
        pass
    if card.weights.repo is None:
        return [], []
    if not online:
        return [], [f"{card.weights.repo}: its headers were not read: offline"]
    from linnet.weights.hub import remote_headers

    try:
        headers = remote_headers(card.weights.repo, card.weights.revision, card.weights.files)
    except Error as error:
        return [], [str(error)]
    file = room / "headers.json"
    file.write_text(json.dumps(headers), encoding="utf-8")
    return ["--headers", str(file)], [f"headers read from {card.weights.repo}, no weights"]
