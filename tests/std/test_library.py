"""The library as source: it checks without a finding, and asks no more of its callers than its
contract allows."""

from __future__ import annotations

import re

import pytest

from linnet.check import check_package
from linnet.package import std_package
from linnet.package.roots import std_root

# The `where` clauses that each op may have, by the fact's text.
ALLOWED = {
    "write_at": {"S > 0", "B > 0", "H > 0"},
    "write_rows": {"S > 0", "B > 0", "H > 0"},
    "write_span": {"N > 0", "S > 0"},
    "write_slots": {"B > 0", "M > 0", "S > 0", "N > 0"},
    "write_slot": {"B > 0", "S > 0", "N > 0"},
    "attention": set(),
    "attention_rows": set(),
    "causal_mask": set(),
    "grouped_attention": {"Hk > 0", "H % Hk == 0"},
    "grouped_attention_rows": {"Hk > 0", "H % Hk == 0"},
    "rotate_half": {"D % 2 == 0"},
    "rope": {"D % 2 == 0"},
    "rope_rows": {"D % 2 == 0"},
    "causal_conv": {"W > 0", "S > 0"},
    "gated_delta_rule": {"Hk > 0", "Dk > 0", "Hv % Hk == 0", "S > 0"},
    "gated_delta_step": {"Hk > 0", "Dk > 0", "Hv % Hk == 0"},
    "linear_experts": {"E > 0", "K > 0"},
    "linear_experts_shared": {"E > 0", "K > 0"},
    "combine_experts": {"E > 0", "K > 0"},
    "linear": set(),
    "embedding": set(),
    "softmax": set(),
    "rms_norm": set(),
    "layer_norm": set(),
    "swiglu": set(),
    **{name: set() for name in ("relu", "sigmoid", "silu", "gelu", "gelu_erf")},
}


@pytest.fixture(scope="module")
def program():
    checked = check_package(std_package())
    assert checked.diagnostics == []
    assert checked.program is not None
    return checked.program


def test_the_library_checks(program):
    assert program.functions


def test_where_clauses_stay_within_the_contract(program):
    from linnet.dims import Fact, parse_dim

    def fact(text: str) -> Fact:
        left, op, right = re.fullmatch(r"(.+) (==|>) (.+)", text).groups()
        return Fact(op, parse_dim(left), parse_dim(right))

    for name, allowed in ALLOWED.items():
        (op,) = [f for f in program.functions.values() if f.name == name and f.kind == "op"]
        facts = {str(clause) for clause in op.where}
        assert facts <= {str(fact(text)) for text in allowed}, name


def test_blocks_ask_for_nothing(program):
    for name in ("Linear", "Embedding", "SwiGlu", "RmsNorm", "LayerNorm"):
        (block,) = [b for b in program.blocks.values() if b.name == name]
        assert block.where == (), name


def test_every_public_item_says_what_it_is(program):
    for function in program.functions.values():
        if function.public and function.block is None:
            assert function.doc, function.id
    for block in program.blocks.values():
        assert block.doc, block.id


def test_every_file_is_a_module_of_its_own_name():
    for path in std_root().rglob("*.linnet"):
        name = ".".join(("std", *path.relative_to(std_root()).with_suffix("").parts))
        assert re.search(rf"^module {re.escape(name)}$", path.read_text(), re.MULTILINE), path
