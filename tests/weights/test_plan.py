"""Plans: every parameter exactly once, and everything wrong in one error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from clock import seconds

from linnet.errors import WeightsError
from linnet.weights.dtypes import bytes_of
from linnet.weights.plan import Entry, plan
from linnet.weights.tensor_info import TensorInfo


@dataclass(frozen=True)
class Parameter:
    path: str
    shape: tuple[int, ...] = (2, 3)
    dtype: str = "bf16"
    kind: str = "param"
    optional: bool = False
    within: tuple[str, ...] = ()
    alone: bool = False


@dataclass(frozen=True)
class Stored:
    tensors: Mapping[str, TensorInfo]


def stored(**forms: tuple[str, tuple[int, ...]]) -> Stored:
    """Tensors by name (`__` for a dot) as (dtype, shape)."""
    infos = {}
    for key, (dtype, shape) in forms.items():
        name = key.replace("__", ".")
        infos[name] = TensorInfo(name, dtype, shape, bytes_of(dtype, shape), Path("f"))
    return Stored(infos)


M = ("bf16", (2, 3))


def problems(*args: object, **options: object) -> list[str]:
    with pytest.raises(WeightsError) as caught:
        plan(*args, **options)  # type: ignore[arg-type]
    for problem in caught.value.problems:
        assert problem in str(caught.value)
    return caught.value.problems


def test_paths_are_names_without_bindings() -> None:
    result = plan(
        [Parameter("a.w"), Parameter("b", kind="buffer"), Parameter("cache", kind="state")],
        stored(a__w=M, b=M, extra=M),
    )
    assert result.entries == (
        Entry(("a.w",), "a.w", "bf16", "bf16", (2, 3)),
        Entry(("b",), "b", "bf16", "bf16", (2, 3)),
    )
    assert result.unused == ("extra",) and result.nbytes == 24
    assert "2 parameters" in result.summary() and "1 tensors ignored" in result.summary()


def test_tied_tensors_are_one_entry() -> None:
    result = plan(
        [Parameter("table"), Parameter("head"), Parameter("wide", dtype="f32")],
        stored(t=M),
        {"table": "t", "head": "t", "wide": "t"},
    )
    assert [(e.paths, e.dtype) for e in result.entries] == [
        (("table", "head"), "bf16"),
        (("wide",), "f32"),
    ]
    assert result.unused == ()


def test_an_alias_is_the_tensor_it_stands_for() -> None:
    tensors = dict(stored(table=M).tensors)
    tensors["head"] = TensorInfo("head", *M, 12, Path("f"), True, alias="table")
    result = plan([Parameter("table"), Parameter("head")], Stored(tensors))
    assert [(e.paths, e.tensor) for e in result.entries] == [(("table", "head"), "table")]
    assert plan([Parameter("table")], Stored(tensors)).unused == ()


def test_all_problems_at_once() -> None:
    found = problems(
        [
            Parameter("gone"),
            Parameter("turned"),
            Parameter("flat"),
            Parameter("other"),
            Parameter("wide"),
            Parameter("count", dtype="i64"),
            Parameter("half", dtype="f16"),
            Parameter("fine"),
        ],
        stored(
            turned=("bf16", (3, 2)), flat=("bf16", (6,)), other=("bf16", (5,)),
            wide=("f32", (2, 3)), count=("i32", (2, 3)), half=M, fine=M,
        ),
    )  # fmt: skip
    assert len(found) == 7
    gone, turned, flat, other, wide, count, half = found
    assert gone.startswith("missing tensor: `gone`") and "bf16 [2, 3]" in gone
    assert "`turned`" in turned and "[3, 2]" in turned and "transposed" in turned
    assert "reshaped" in flat
    assert "found [5], expected [2, 3]" in other and "(" not in other
    assert "dtype too wide: `wide`" in wide and "found f32, expected bf16" in wide
    assert "cast" in wide
    assert "found i32, expected i64" in count and "cast" not in count
    assert half.startswith("dtype: `half`") and "found bf16, expected f16" in half


def test_permuted_axes() -> None:
    [problem] = problems([Parameter("w", (2, 3, 4))], stored(w=("bf16", (3, 2, 4))))
    assert "axes are permuted" in problem


def test_dtype_rules() -> None:
    narrow = plan([Parameter("w", dtype="f32")], stored(w=M))
    assert narrow.entries[0].stored == "bf16" and narrow.entries[0].dtype == "f32"
    cast = plan([Parameter("w")], stored(w=("f32", (2, 3))), cast=True)
    assert cast.entries[0].stored == "f32" and cast.entries[0].dtype == "bf16"
    [problem] = problems([Parameter("w")], stored(w=("i32", (2, 3))), cast=True)
    assert "found i32, expected bf16" in problem


def test_an_importer_converts_without_being_asked() -> None:
    tensors = {n: TensorInfo(n, d, (2, 3), 9, Path("f"), True) for n, d in
               {"a": "q4_1", "b": "f32", "c": "i32"}.items()}  # fmt: skip
    parameters = [Parameter("a"), Parameter("b")]
    assert [e.stored for e in plan(parameters, Stored(tensors)).entries] == ["q4_1", "f32"]
    [problem] = problems([*parameters, Parameter("c")], Stored(tensors))
    assert "`c`" in problem


def test_a_quantized_form_that_no_importer_reads() -> None:
    tensors = {"a": TensorInfo("a", "f8_e4m3", (2, 3), 6, Path("f"))}
    [problem] = problems([Parameter("a")], Stored(tensors))
    assert "found f8_e4m3, expected bf16" in problem


def test_bindings_of_paths_not_there() -> None:
    bindings = {"w": "t", "groups.9.w": "u"}
    result = plan([Parameter("w")], stored(t=M, u=M), bindings)
    assert result.ignored_bindings == ("groups.9.w",) and result.unused == ("u",)
    [problem] = problems([Parameter("w")], stored(t=M), bindings, strict=True)
    assert "`groups.9.w`" in problem


def test_a_bound_tensor_that_is_missing_names_both() -> None:
    [problem] = problems([Parameter("w")], stored(x=M), {"w": "model.w"})
    assert "`w` from `model.w`" in problem


def test_renamed_tensors_get_a_near_name() -> None:
    layers = {f"model.layers.{i}.self_attn.q_proj.weight": f"a.{i}.q" for i in range(12)}
    bindings = {path: name for name, path in layers.items()}
    parameters = [Parameter(path) for path in bindings]
    names = [name.replace("7.self_attn.q_proj", "7.self_attn.wq_proj") for name in layers]
    infos = {name: TensorInfo(name, *M, 12, Path("f")) for name in names}
    [problem] = problems(parameters, Stored(infos), bindings)
    assert "did you mean `model.layers.7.self_attn.wq_proj.weight`" in problem


def test_another_prefix_is_seen_as_one_and_quickly() -> None:
    wanted = [
        f"model.language_model.layers.{i}.mlp.p{j}.weight" for i in range(60) for j in range(20)
    ]
    infos = {
        name: TensorInfo(name, *M, 12, Path("f"))
        for name in (n.replace("language_model.", "") for n in wanted)
    }
    bindings = {f"g.{k}": name for k, name in enumerate(wanted)}

    def refused() -> pytest.ExceptionInfo[WeightsError]:
        with pytest.raises(WeightsError) as caught:
            plan([Parameter(path) for path in bindings], Stored(infos), bindings)
        return caught

    found: list[pytest.ExceptionInfo[WeightsError]] = []
    assert seconds(lambda: found.append(refused())) < 2
    (caught,) = found
    assert len(caught.value.problems) == 1200
    assert "begin with `model.language_model.`" in str(caught.value)
    assert "did you mean `model.layers.3.mlp.p4.weight`" in str(caught.value)


def test_a_tied_head_left_out_is_explained() -> None:
    bindings = {"head": "lm_head.weight", "table": "model.embed_tokens.weight"}
    [problem] = problems(
        [Parameter("head"), Parameter("table")], stored(model__embed_tokens__weight=M), bindings
    )
    assert "tied" in problem


def part(path: str, *within: str, alone: bool = False) -> Parameter:
    return Parameter(path, optional=True, within=within, alone=alone)


SHARED = [
    Parameter("w"),
    part("bias", alone=True),
    part("s.a", "s"),
    part("s.b", "s"),
    part("s.bias", "s", alone=True),
    part("s.t.c", "s", "s.t"),
    part("s.t.d", "s", "s.t"),
]


@pytest.mark.parametrize(
    ("there", "present", "absent"),
    [
        ({"w"}, set(), {"bias", "s", "s.t"}),
        ({"w", "bias"}, {"bias"}, {"s", "s.t"}),
        ({"w", "s.a", "s.b"}, {"s"}, {"bias", "s.bias", "s.t"}),
        ({"w", "s.a", "s.b", "s.bias"}, {"s", "s.bias"}, {"bias", "s.t"}),
        ({"w", "s.a", "s.b", "s.t.c", "s.t.d"}, {"s", "s.t"}, {"bias", "s.bias"}),
    ],
)
def test_optional_parts(there: set[str], present: set[str], absent: set[str]) -> None:
    result = plan(SHARED, stored(**{name.replace(".", "__"): M for name in there}))
    assert result.present == present
    assert set(result.absent) == absent
    assert {path for entry in result.entries for path in entry.paths} == there


def test_a_part_of_an_optional_part() -> None:
    [problem] = problems(SHARED, stored(w=M, s__a=M))
    assert "`s.b`" in problem and "`s` is there only in part" in problem
    inner = problems(SHARED, stored(w=M, s__t__c=M))
    assert [p.split("`")[1] for p in inner] == ["s.a", "s.b", "s.t.d"]
    assert "`s.t` is there only in part" in inner[2]
    assert len(problems(SHARED, stored(w=M, s__bias=M))) == 2
