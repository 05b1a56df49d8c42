"""A diagram shows what the program computes: its wires are the IR's values, with their types."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from linnet.check import check_package
from linnet.dims import Dim
from linnet.ir.bound import Instance
from linnet.ir.program import (
    Call,
    Const,
    DimValue,
    Function,
    Intrinsic,
    MakeNone,
    MakeSome,
    MakeTuple,
    Op,
    Program,
    ReadMember,
    Region,
    StateWrite,
    TupleGet,
    Value,
)
from linnet.ir.specialize import specialize
from linnet.ir.types import ScalarType, substitute, substitute_arg
from linnet.nest.card import Card, read_card
from linnet.nest.diagram import Diagram, Row, Sheet, draw
from linnet.nest.diagram.graph import all_rows
from linnet.package import open_package

ROOT = "crate::Model"
ENTRIES = ("forward", "next_token", "prefill", "decode", "decode_rows", "prefill_slots")


@pytest.fixture(scope="module", params=["founding", "zoo", "small"])
def model(request: pytest.FixtureRequest) -> tuple[Program, Card]:
    if request.param == "founding":
        folder: Path = request.getfixturevalue("founding_package")
    else:
        names = {"zoo": "qwen3.6-35b-a3b", "small": "smollm2-135m-instruct"}
        folder = request.getfixturevalue("models") / names[request.param]
    program = check_package(open_package(folder)).program
    assert program is not None
    return program, read_card(folder)


# --- wires are the def-use pairs of the IR --------------------------------------------


def values_read(region: Region) -> dict[Op | None, set[Value]]:
    """For each operation of a region (None: its results) the values that it, or what is in it,
    reads from that region, traced back through what only renames, packs or is literal."""
    made: dict[Value, Op] = {v: op for op in region.ops for v in op.results}
    here = {*region.params, *made}

    def literal(value: Value) -> bool:
        op = made.get(value)
        if op is None:
            return False
        if isinstance(op, (Const, DimValue, MakeNone)):
            return True
        if isinstance(op, (Call, StateWrite, Intrinsic, ReadMember)) or op.regions():
            return False
        if isinstance(op, MakeSome):
            return literal(op.x)
        if isinstance(op, (TupleGet, MakeTuple)):
            return False
        return isinstance(op.result.type, ScalarType) and all(map(literal, op.operands()))

    def sources(value: Value) -> set[Value]:
        op = made.get(value)
        if literal(value) or isinstance(op, ReadMember):
            return set()
        if isinstance(op, MakeTuple):
            return {v for item in op.items for v in sources(item)}
        if isinstance(op, MakeSome):
            return sources(op.x)
        if isinstance(op, TupleGet) and isinstance(made.get(op.x), MakeTuple):
            return sources(made[op.x].operands()[op.index])
        return {value}

    def everything(op: Op) -> list[Value]:
        found = list(op.operands())
        for inner in op.regions():
            for below in inner.ops:
                found += everything(below)
            found += inner.results
        return found

    result: dict[Op | None, set[Value]] = {}
    for op in region.ops:
        result[op] = {s for v in everything(op) if v in here for s in sources(v)}
    result[None] = {s for v in region.results if v in here for s in sources(v)}
    return result


def compare(sheet: Sheet, region: Region) -> int:
    expected = values_read(region)
    checked = 0
    for position, row in enumerate(sheet.rows):
        drawn = {w.value for w in sheet.wires if w.target == position}
        candidates = [op for op in region.ops if op.span is row.span or op.span == row.span]
        # A merged loop has the span of the call in it.
        loops = [op for op in region.ops if row.repeat is not None and op.regions()
                 and any(inner.span == row.span for r in op.regions() for inner in r.ops)]  # fmt: skip
        wanted = [expected[op] for op in candidates + loops]
        assert drawn in wanted, (row.label, row.note)
        checked += len(drawn)
    drawn = {w.value for w in sheet.wires if w.target == len(sheet.rows)}
    assert drawn == expected[None]
    return checked + len(drawn)


def test_wires_are_values_that_operations_read(model: tuple[Program, Card]) -> None:
    program, _ = model
    total = 0
    for entry in ENTRIES:
        for id, sheet in draw(program, f"{ROOT}.{entry}").items():
            total += compare(sheet, program.functions[id].body)
    assert total > 200


def test_every_operation_has_a_row_or_a_reason(model: tuple[Program, Card]) -> None:
    program, _ = model
    for entry in ENTRIES:
        for id, sheet in draw(program, f"{ROOT}.{entry}").items():
            function = program.functions[id]
            calls = Counter(op.callee for op in every_op(function.body) if isinstance(op, Call))
            drawn = Counter(row.target for row in all_rows(sheet) if row.target is not None)
            assert calls == drawn
            writes = [op.name for op in every_op(function.body) if isinstance(op, StateWrite)]
            assert [f"{n} =" for n in writes] == [
                row.label for row in all_rows(sheet) if row.kind == "state"
            ]


def every_op(region: Region) -> list[Op]:
    return [
        found
        for op in region.ops
        for found in [op, *(below for inner in op.regions() for below in every_op(inner))]
    ]


# --- labels are the types that specialization gives -----------------------------------


def check_types(
    program: Program, bound: object, sheets: dict[str, Sheet], instance: Instance, sizes: dict
) -> int:
    """Walks a sheet and the instance for the same generics side by side, calls included."""
    done: set[tuple[str, str]] = set()
    count = 0

    def walk(id: str, instance: Instance, sizes: dict) -> None:
        nonlocal count
        if (id, instance.id) in done:
            return
        done.add((id, instance.id))
        sheet = sheets[id]
        for port, (_, type) in zip(sheet.params, instance.params, strict=True):
            assert str(substitute(port.type, sizes)) == str(type)
        made: dict[object, list[Op]] = {}
        for op in every_op(instance.body):
            made.setdefault((op.span.start, op.span.end) if op.span else None, []).append(op)
        for row in all_rows(sheet):
            assert row.span is not None
            ops = made.get((row.span.start, row.span.end), [])
            outs = [str(substitute(p.type, sizes)) for p in row.outs if p.value is not None]
            found = {str(v.type) for op in ops for v in op.results}
            found |= {
                str(t) for op in ops for v in op.results for t in getattr(v.type, "items", ())
            }
            if ops:  # what an optional decides may have gone
                assert set(outs) <= found, (id, row.label, outs, found)
                count += len(outs)
            if row.target is None:
                continue
            for op in ops:
                if isinstance(op, Call):
                    callee = bound.functions[op.callee]
                    if callee.source.id != row.target:
                        continue
                    below = {n: substitute_arg(a, sizes) for n, a in row.bindings.items()}
                    # In its own names, as the instance is written.
                    own = {**below, **callee.arguments}
                    for name, argument in callee.arguments.items():
                        if isinstance(argument, Dim) and argument.constant is not None:
                            assert below[name] == argument
                    walk(row.target, callee, own)

    walk(instance.source.id, instance, sizes)
    return count


def test_labels_are_the_types_of_the_specialized_program(model: tuple[Program, Card]) -> None:
    program, card = model
    bound = specialize(program, ROOT, card.generics)
    kind = bound.kinds[bound.root]
    for name in ENTRIES:
        entry = program.functions[f"{ROOT}.{name}"]
        instance = bound.functions[bound.entries[name]]
        sizes = {**kind.bindings, **instance.arguments}
        assert check_types(program, bound, draw(program, entry.id), instance, sizes) > 30


# --- pictures ---------------------------------------------------------------------------


def test_the_picture_is_well_formed_and_folds_layers(model: tuple[Program, Card]) -> None:
    from xml.etree import ElementTree

    program, card = model
    for name in ENTRIES:
        entry: Function = program.functions[f"{ROOT}.{name}"]
        diagram = Diagram(program, draw(program, entry.id), entry.id, card.generics)
        root = ElementTree.fromstring(diagram.text())
        texts = [t.text for t in root.iter("{http://www.w3.org/2000/svg}text")]
        assert any(t and t.startswith("× ") for t in texts)
        assert "result" in texts
        # Nothing is drawn outside of the picture.
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        for box in root.iter("{http://www.w3.org/2000/svg}rect"):
            assert float(box.attrib["x"]) + float(box.attrib["width"]) <= width
            assert float(box.attrib["y"]) + float(box.attrib["height"]) <= height


def test_rails_of_one_sheet_do_not_share_a_place() -> None:
    from linnet.nest.diagram.graph import Wire
    from linnet.nest.diagram.svg import Leaf, route

    wires = [Wire(Value(ScalarType("f32")), s, 0, t) for s, t in [(-1, 3), (0, 2), (1, 4), (2, 5)]]
    rows = [Row("plain", "", "", None, []) for _ in range(5)]
    leaf = Leaf(Sheet([], rows, wires, []), [], [])
    route(leaf)
    for a in wires:
        for b in wires:
            if a is not b and leaf.rails[a.source, 0] == leaf.rails[b.source, 0]:
                assert a.target <= b.source or b.target <= a.source


def test_command(models: Path) -> None:
    command = [sys.executable, "-m", "linnet", "inspect", "--diagram"]
    model = str(models / "smollm2-135m-instruct")
    done = subprocess.run([*command, model, "--entry", "decode"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("<svg ")
    wrong = subprocess.run([*command, model, "--entry", "x"], capture_output=True, text=True)
    assert wrong.returncode == 1 and "no entry `x`" in wrong.stderr
