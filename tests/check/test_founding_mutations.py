"""Copies of the founding package with one dimension changed are refused where it collides."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path

import pytest
from programs import findings

from linnet.check import check_package
from linnet.check.checker import Checked
from linnet.package import open_package

# In a file's line, one text for another; what is found for it, in which file and line.
MUTATIONS = [
    ("norm", 8, "[H;", "[H + 1;", "E2201", "norm", 12),
    ("norm", 9, "Tensor[*S, H; T] {", "Tensor[*S; T] {", "E2202", "norm", 13),
    ("norm", 12, "weight[h]", "weight[0]", "E2209", "norm", 12),
    ("norm", 20, "[D;", "[2 * D;", "E2207", "norm", 25),
    ("norm", 21, "gate: Tensor[*S, D; T]", "gate: Tensor[*S, D + 1; T]", "E2202", "deltanet", 193),
    ("rope", 10, "D % 2 == 0", "D > 0", "E2202", "rope", 14),
    ("rope", 11, "D / 2", "D", "E2202", "rope", 14),
    ("rope", 12, "(S)", "(D)", "E2202", "rope", 14),
    ("rope", 13, "axis = -1", "axis = 0", "E2202", "rope", 14),
    ("moe", 22, "H, Experts", "Experts, H", "E2202", "moe", 29),
    ("moe", 23, "2 * ExpertInner", "ExpertInner", "E2209", "moe", 42),
    ("moe", 24, "Experts, H", "H, Experts", "E2207", "moe", 45),
    ("moe", 25, "H, SharedInner", "SharedInner, H", "E2202", "moe", 44),
    ("moe", 26, "H, 1", "H, 2", "E2207", "moe", 44),
    ("moe", 28, "B * S", "B + S", "E2203", "moe", 28),
    ("moe", 30, "B * S", "B", "E2202", "moe", 30),
    ("moe", 31, "Experts", "TopK", "E2201", "moe", 33),
    ("moe", 39, "places[k]", "places[e]", "E2201", "moe", 39),
    ("moe", 42, "0:ExpertInner", "0:SharedInner", "E2209", "moe", 42),
    ("moe", 42, "2 * ExpertInner", "ExpertInner", "E2207", "moe", 42),
    ("moe", 45, "[B, S, H]", "[S, B, H]", "E2202", "moe", 45),
    ("moe", 49, "Experts; T", "TopK; T", "E2202", "moe", 30),
    ("moe", 53, "sum<i32>", "sum<i64>", "E2103", "moe", 53),
    ("attention", 30, "Heads % KvHeads == 0,", "", "E2206", "attention", 47),
    ("attention", 31, "(HeadDim / 4)", "HeadDim", "E2206", "attention", 45),
    ("attention", 35, "* 2", "* 3", "E2203", "attention", 155),
    ("attention", 36, "KvHeads", "Heads", "E2203", "attention", 158),
    ("attention", 38, "Heads * HeadDim, H", "H, Heads * HeadDim", "E2202", "attention", 173),
    ("attention", 39, "HeadDim", "H", "E2202", "attention", 156),
    ("attention", 41, "MaxSeq, HeadDim", "HeadDim, MaxSeq", "E2202", "attention", 64),
    ("attention", 42, "KvHeads", "Heads", "E2202", "attention", 65),
    ("attention", 45, "HeadDim / 4", "HeadDim / 2", "E2206", "attention", 45),
    ("attention", 48, "Heads, S", "KvHeads, S", "E2202", "attention", 48),
    ("deltanet", 38, "KeyDim > 0,", "", "E2206", "deltanet", 70),
    ("deltanet", 39, "ValueHeads % KeyHeads", "KeyHeads % ValueHeads", "E2205", "deltanet", 39),
    ("deltanet", 40, "2 * KeyHeads", "KeyHeads", "E2209", "deltanet", 160),
    ("deltanet", 41, "Width > 1", "Width > 0", "E2206", "deltanet", 112),
    ("deltanet", 45, "ValueHeads * ValueDim", "KeyHeads * KeyDim", "E2203", "deltanet", 192),
    ("deltanet", 46, "ValueHeads", "KeyHeads", "E2202", "deltanet", 185),
    ("deltanet", 48, "ValueDim", "KeyDim", "E2202", "deltanet", 193),
    ("deltanet", 49, "Heads * ValueDim, H", "Heads * H, ValueDim", "E2202", "deltanet", 193),
    ("deltanet", 50, "1, Width", "1, Width - 1", "E2203", "deltanet", 196),
    ("deltanet", 51, "ValueHeads", "KeyHeads", "E2201", "deltanet", 184),
    ("deltanet", 53, "Width - 1", "Width", "E2203", "deltanet", 65),
    ("deltanet", 54, "KeyDim, ValueDim", "ValueDim, KeyDim", "E2202", "deltanet", 76),
    ("deltanet", 58, "[B]", "[S]", "E2202", "deltanet", 59),
    ("deltanet", 59, "S>(", "B>(", "E2202", "deltanet", 59),
    ("deltanet", 65, "axis = 1", "axis = 2", "E2202", "deltanet", 65),
    ("deltanet", 67, "1:Width", "0:Width", "E2203", "deltanet", 67),
    ("deltanet", 72, "KeyHeads, KeyDim", "KeyDim, KeyHeads", "E2202", "deltanet", 72),
    ("lib", 46, "KeyDim, ValueDim", "ValueDim, KeyDim", "E2206", "lib", 46),
    ("lib", 47, "H", "KeyDim", "E2202", "lib", 72),
    ("lib", 99, "KvHeads, HeadDim", "HeadDim, KvHeads", "E2206", "lib", 99),
    ("lib", 121, "M, S, H", "S, M, H", "E2202", "lib", 126),
    ("lib", 252, "Width > 1,", "", "E2206", "lib", 257),
    ("lib", 256, "H, T", "Vocab, T", "E2202", "lib", 275),
    ("lib", 259, "H, Vocab", "Vocab, H", "E2202", "lib", 264),
    ("lib", 261, "Vocab; T", "H; T", "E2202", "lib", 264),
    ("lib", 263, "B * S", "S", "E2203", "lib", 263),
    ("lib", 269, "S - 1", "S", "E2209", "lib", 269),
    ("lib", 277, "0, :", "1, :", "E2209", "lib", 277),
    ("lib", 317, "- 1, h", "- 1, b", "E2201", "lib", 317),
]


@pytest.fixture
def copy(founding_package: Path, tmp_path: Path) -> Path:
    target = tmp_path / "copy"
    shutil.copytree(founding_package, target, ignore=shutil.ignore_patterns("*.json", "*.md"))
    return target


def check_with(copy: Path, file: str, line: int, old: str, new: str) -> Checked:
    path = copy / "src" / f"{file}.linnet"
    before = path.read_text(encoding="utf-8")
    lines = before.split("\n")
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    path.write_text("\n".join(lines), encoding="utf-8")
    try:
        return check_package(open_package(copy))
    finally:
        path.write_text(before, encoding="utf-8")


def test_one_dimension_changed(copy: Path) -> None:
    assert check_package(open_package(copy)).ok
    for file, line, old, new, code, where, at in MUTATIONS:
        checked = check_with(copy, file, line, old, new)
        found = findings(checked.diagnostics)
        assert not checked.ok, (file, line, old, new)
        assert (f"{where}.linnet", at, code) in found, (file, line, old, new, found)
        for item in checked.diagnostics:
            assert item.message and item.span.end > item.span.start, item


WORD = re.compile(
    r"\b(H|Heads|KvHeads|HeadDim|KeyHeads|ValueHeads|KeyDim|ValueDim|Conv|Width|Experts|TopK"
    r"|ExpertInner|SharedInner|Batch|MaxSeq|Vocab|S|B|M|R|N|D|T|f32|i32|i64|0|1|2|4)\b"
)
OTHERS = ["H", "Heads", "HeadDim", "KeyDim", "ValueDim", "Batch", "S", "T", "f32", "i32", "1", "3"]
FILES = ["attention", "deltanet", "lib", "moe", "norm", "rope"]


# Seeded mutants that are still sound programs: nothing that a shape rests on has changed.
BENIGN = {
    ("lib", 244, "0", "HeadDim"),  # a clause that asks for more
    ("lib", 249, "0", "KeyDim"),
    ("lib", 170, "MaxSeq", "Heads"),  # a size that only this block's own state has
    ("lib", 101, "SharedInner", "3"),
    ("attention", 72, "HeadDim", "Heads"),  # a number, no dimension
    ("attention", 72, "HeadDim", "3"),
    ("rope", 6, "0", "3"),
}


def run_words(copy: Path, count: int) -> None:
    rng = random.Random(20)
    for _ in range(count):
        file = rng.choice(FILES)
        lines = (copy / "src" / f"{file}.linnet").read_text(encoding="utf-8").split("\n")
        numbered = enumerate(lines, start=1)
        line = rng.choice([i for i, text in numbered if WORD.search(text) and "//" not in text])
        old = rng.choice(WORD.findall(lines[line - 1]))
        new = rng.choice([other for other in OTHERS if other != old])
        checked = check_with(copy, file, line, old, new)
        assert checked.ok == ((file, line, old, new) in BENIGN), (file, line, old, new)


def test_any_word_changed(copy: Path) -> None:
    run_words(copy, 25)


@pytest.mark.fuzz
def test_many_words_changed(copy: Path) -> None:
    run_words(copy, 300)
