"""Importers of one's own: what their rules make of a checkpoint, and what they refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from linnet.errors import WeightsError
from linnet.weights.checkpoint import Checkpoint, open_checkpoint
from linnet.weights.header import Headers
from linnet.weights.importer_file import read_importer

RANDOM = np.random.default_rng(4)


def numbers(*shape: int) -> Any:
    return RANDOM.normal(size=shape).astype(np.float32)


FUSED = {f"h.{i}.attn.c_attn.weight": numbers(4, 12) for i in range(2)}
BIAS = {f"h.{i}.attn.c_attn.bias": numbers(12) for i in range(2)}
GATE = {"layers.0.mlp.gate_up.weight": numbers(10, 4)}
EXPERTS = {
    f"layers.{i}.experts.{e}.w{w}": numbers(3, 5) for i in range(2) for e in range(3) for w in "12"
}
QKV = """
[[tensor]]
from = "h.*.attn.c_attn.weight"
to = ["h.*.attn.q.weight", "h.*.attn.k.weight", "h.*.attn.v.weight"]
transpose = true
split = 0
"""
ALL = f"""{QKV}
[[tensor]]
from = "layers.*.mlp.gate_up.weight"
to = ["layers.*.mlp.gate.weight", "layers.*.mlp.up.weight"]
split = 0
sizes = [6, 4]

[[tensor]]
from = ["layers.*.experts.#.w1", "layers.*.experts.#.w2"]
to = "layers.*.experts.both"
transpose = [1, 0]
join = 1

[[tensor]]
from = "h.*.attn.c_attn.bias"
cast = "bf16"
"""


def rules(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "importer.toml"
    path.write_text(text)
    return read_importer(path)


def checkpoint(tmp_path: Path, tensors: dict[str, Any]) -> Checkpoint:
    save_file(tensors, tmp_path / "model.safetensors")
    return open_checkpoint(tmp_path / "model.safetensors")


def array(found: Checkpoint, name: str, dtype: str = "f32") -> Any:
    kind = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}[dtype]
    return np.frombuffer(found.read(name, dtype), kind).reshape(found.tensors[name].shape)


def test_split_transpose_join_stack_and_cast(tmp_path: Path) -> None:
    with checkpoint(tmp_path, FUSED | BIAS | GATE | EXPERTS) as found:
        found.adapt([], rules(tmp_path, ALL))
        assert not {*FUSED, *GATE, *EXPERTS} & found.tensors.keys()
        for i in range(2):
            whole = FUSED[f"h.{i}.attn.c_attn.weight"].T
            for at, name in enumerate("qkv"):
                got = array(found, f"h.{i}.attn.{name}.weight")
                np.testing.assert_array_equal(got, whole[4 * at : 4 * at + 4])
            half = array(found, f"h.{i}.attn.q.weight", "f16")
            np.testing.assert_array_equal(half, whole[:4].astype(np.float16))
            want = np.stack(
                [
                    np.concatenate([EXPERTS[f"layers.{i}.experts.{e}.w{w}"].T for w in "12"], 1)
                    for e in range(3)
                ]
            )
            np.testing.assert_array_equal(array(found, f"layers.{i}.experts.both"), want)
            name = f"h.{i}.attn.c_attn.bias"
            assert found.tensors[name].dtype == "bf16"
            rounded = array(found, name, "bf16").astype(np.uint32) << 16
            np.testing.assert_allclose(rounded.view(np.float32), BIAS[name], rtol=2**-8)
            # Once rounded it stays so, whatever is asked for.
            np.testing.assert_array_equal(array(found, name), rounded.view(np.float32))
        gate = GATE["layers.0.mlp.gate_up.weight"]
        np.testing.assert_array_equal(array(found, "layers.0.mlp.gate.weight"), gate[:6])
        np.testing.assert_array_equal(array(found, "layers.0.mlp.up.weight"), gate[6:])
        into = memoryview(bytearray(4 * 4 * 4))
        found.read("layers.0.mlp.up.weight", "f32", into)
        assert bytes(into) == gate[6:].tobytes()


def test_headers_alone_give_the_same_names_and_shapes(tmp_path: Path) -> None:
    tensors = FUSED | BIAS | GATE | EXPERTS
    with checkpoint(tmp_path, tensors) as found:
        made = rules(tmp_path, ALL)
        found.adapt([], made)
        headers = Headers.of({"f": {n: ["F32", list(t.shape)] for n, t in tensors.items()}})
        headers.adapt([], made)
        want = {n: (t.dtype, t.shape) for n, t in found.tensors.items()}
        assert {n: (t.dtype, t.shape) for n, t in headers.tensors.items()} == want


def test_a_checkpoint_that_has_the_names_already_is_left_alone(tmp_path: Path) -> None:
    with checkpoint(tmp_path, {"h.0.attn.q.weight": numbers(4, 4)}) as found:
        found.adapt(["h.0.attn.q.weight"], rules(tmp_path, QKV))
        assert not found.adapted


STACK = '[[tensor]]\nfrom = "e.#.w"\nto = "all"\n'


@pytest.mark.parametrize(
    ("tensors", "text", "wanted", "said"),
    [
        (FUSED, QKV + QKV, [], "`h.0.attn.c_attn.weight` is used already, by [[tensor]] 1"),
        (FUSED, QKV, ["h.1.attn.c_attn.weight"], "`h.1.attn.c_attn.weight` is used here, and"),
        ({"e.0.w": numbers(2), "e.2.w": numbers(2)}, STACK, [], "`e.1.w` is missing"),
        ({"e.0.w": numbers(2), "e.1.w": numbers(3)}, STACK, [], "they do not go together"),
        (
            {"e.0.w": numbers(2), "e.1.w": numbers(2).astype(np.float16)}, STACK, [],
            "`e.1.w` is f16, `e.0.w` f32",
        ),
        (
            {"a.x": numbers(2), "b.x": numbers(2), "b.y": numbers(2)},
            '[[tensor]]\nfrom = ["*.x", "*.y"]\nto = "*.z"\njoin = 0\n', [],
            "`a.y` is missing beside `a.x`",
        ),
        (
            {"x": numbers(2, 3), "y": numbers(2, 4)},
            '[[tensor]]\nfrom = ["x", "y"]\nto = "z"\njoin = 0\n', [], "do not go together",
        ),
        (FUSED, QKV.replace("split = 0", "split = 0\nsizes = [4, 4, 5]"), [], "add up to 13"),
        (FUSED, QKV.replace("split = 0", "split = 1"), [], "no 3 equal parts"),
        (FUSED, QKV.replace("split = 0", "split = 2"), [], "there is no axis 2"),
        (BIAS, '[[tensor]]\nfrom = "h.*.attn.c_attn.bias"\ntranspose = [1, 0]\n', [], "1 axes"),
        (
            {"x": numbers(2), "y": numbers(2)}, '[[tensor]]\nfrom = "x"\nto = "y"\n', [],
            "is in the checkpoint too",
        ),
        (
            {"x": numbers(2), "y": numbers(2)},
            '[[tensor]]\nfrom = "x"\nto = "z"\n[[tensor]]\nfrom = "y"\nto = "z"\n', [],
            "`z` is made twice",
        ),
        (
            {"x": np.ones(2, np.int32)}, '[[tensor]]\nfrom = "x"\ncast = "f32"\n', [],
            "only floats are cast",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(
    tmp_path: Path, tensors: dict[str, Any], text: str, wanted: list[str], said: str
) -> None:
    with checkpoint(tmp_path, tensors) as found:
        with pytest.raises(WeightsError) as caught:
            found.adapt(wanted, rules(tmp_path, text))
        assert said in str(caught.value) and "importer.toml" in str(caught.value)
        assert set(found.tensors) == set(tensors)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "expected tables `[[tensor]]`"),
        ("tensor = 1", "expected tables `[[tensor]]`"),
        ('[[tensor]]\nfrom = "x"\nto = "y"\nshape = 1', "shape: unknown key"),
        ("[[tensor]]\nfrom = 1", "from: expected a name"),
        ('[[tensor]]\nfrom = "x.**"', "from: expected the name of a tensor"),
        ('[[tensor]]\nfrom = ["x", "x"]\nto = "y"', "a name stands twice"),
        ('[[tensor]]\nfrom = ["x", "y"]', "to: expected a name"),
        ('[[tensor]]\nfrom = ["x", "y"]\nto = "z"', "join: missing"),
        ('[[tensor]]\nfrom = "x"\nto = "z"\njoin = 0', "join: there is one source"),
        ('[[tensor]]\nfrom = "x"\nto = ["y", "z"]', "split: missing"),
        ('[[tensor]]\nfrom = "x"\nto = "z"\nsplit = 0', "split: there is one name"),
        ('[[tensor]]\nfrom = "x.*"\nto = "z"', "expected 1 `*`"),
        ('[[tensor]]\nfrom = ["x.#", "y"]\nto = "z"\njoin = 0', "one `#` in each"),
        ('[[tensor]]\nfrom = "x.#"\nto = "z.#"', "`#` counts sources"),
        ('[[tensor]]\nfrom = "x"\ntranspose = [0, 0]', "each axis from 0 once"),
        ('[[tensor]]\nfrom = "x"\ntranspose = "yes"', "true or the order of axes"),
        ('[[tensor]]\nfrom = "x"\nto = ["y", "z"]\nsplit = true', "expected an axis"),
        ('[[tensor]]\nfrom = "x"\nto = ["y", "z"]\nsplit = 0\nsizes = [1]', "a size for each"),
        ('[[tensor]]\nfrom = "x"\ncast = "i8"', "expected f16, bf16"),
        ("[[tensor]\n", "not TOML"),
        ("x = " + "[" * 100_000, "not TOML"),
        ('[[tensor]]\nfrom = "x"\n' * 1001, "expected at most 1000"),
    ],
)
def test_a_file_is_checked_before_it_is_used(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(WeightsError) as caught:
        rules(tmp_path, text)
    assert said in str(caught.value) and "importer.toml" in str(caught.value)


def test_a_model_with_projections_of_its_own_loads_from_gpt2(tmp_path: Path, models: Path) -> None:
    """Fused queries, keys and values, stored input first, for a package that has three plain
    linear maps; the logits are those of transformers."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from oracle import share_of_scale
    from oracle.checkpoint import randomize

    import linnet
    from linnet.nest.checks.run import check_folder

    torch.manual_seed(1)
    config = transformers.GPT2Config(vocab_size=61, n_embd=32, n_head=4, n_layer=2, n_positions=48)
    reference = transformers.GPT2LMHeadModel(config).float().eval()
    randomize(reference, 2)
    reference.save_pretrained(tmp_path / "from")
    folder = tmp_path / "plain"
    shutil.copytree(models / "gpt2", folder)
    source = folder / "src" / "layer.linnet"
    text = source.read_text()
    for old, new in (
        ("Tensor[In, Out; T]", "Tensor[Out, In; T]"),
        ("weight[i, o]", "weight[o, i]"),
        (
            "sub c_attn: Projection<Heads * D, 3 * Heads * D, T>",
            "\n    ".join(f"sub {n}: Projection<Heads * D, Heads * D, T>" for n in "qkv"),
        ),
        ("let (q, k, v) = split(x)", "let (queries, keys, values) = split(x)"),
        (
            "let three = permute(reshape(c_attn.forward(x), [B, S, 3, Heads, D]), [2, 0, 3, 1, 4])"
            "\n        return (three[0], three[1], three[2])",
            "return (heads(q.forward(x)), heads(k.forward(x)), heads(v.forward(x)))\n    }\n\n"
            "    fn heads<B: Dim, S: Dim>(x: Tensor[B, S, Heads * D; T]) -> "
            "Tensor[B, Heads, S, D; T] {\n"
            "        return permute(reshape(x, [B, S, Heads, D]), [0, 2, 1, 3])",
        ),
        ("attention(q, k, v,", "attention(queries, keys, values,"),
        ("attention(q, cache", "attention(queries, cache"),
        ("attention_rows(q, cache", "attention_rows(queries, cache"),
        ("cache_k, k,", "cache_k, keys,"),
        ("cache_v, v,", "cache_v, values,"),
    ):  # fmt: skip
        assert old in text, old
        text = text.replace(old, new)
    source.write_text(text)
    bindings = json.loads((folder / "bindings.json").read_text())
    named: dict[str, str] = {}
    prefix = "transformer."
    for path, name in bindings.items():
        if path.startswith("h.") and int(path.split(".")[1]) >= 2:
            continue
        name = name if name.startswith(prefix) else prefix + name
        if ".c_attn." in path:
            for one in "qkv":
                named[path.replace("c_attn", one)] = name.replace("c_attn", one)
        else:
            named[path] = name
    (folder / "bindings.json").write_text(json.dumps(named))
    (folder / "importer.toml").write_text(
        "".join(
            f'[[tensor]]\nfrom = "transformer.h.*.attn.c_attn.{kind}"\n'
            f"to = {[f'transformer.h.*.attn.{one}.{kind}' for one in 'qkv']}\n"
            f"split = 0\n{'transpose = true' if kind == 'weight' else ''}\n\n"
            for kind in ("weight", "bias")
        )
        + "".join(
            f'[[tensor]]\nfrom = "transformer.h.*.{part}.weight"\ntranspose = true\n\n'
            for part in ("attn.c_proj", "mlp.c_fc", "mlp.c_proj")
        )
    )
    card = folder / "nest.toml"
    text = card.read_text().replace('name = "gpt2"', 'name = "plain"')
    text = text.replace(
        'bindings = "bindings.json"', 'bindings = "bindings.json"\nimporter = "importer.toml"'
    )
    sizes = {"Vocab": 61, "Positions": 48, "Heads": 4, "D": 8, "Inner": 128, "Layers": 2}
    for name, size in sizes.items():
        line = next(line for line in text.splitlines() if line.startswith(f"{name} = "))
        text = text.replace(line, f"{name} = {size}")
    card.write_text(text.replace("MaxSeq = 1024", "MaxSeq = 48"))
    report = check_folder(folder, weights=[tmp_path / "from"], run=False)
    assert report.ok, report.text()
    model: Any = linnet.load(folder, weights=tmp_path / "from")
    tokens = torch.randint(0, 61, (2, 17), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        want = reference(input_ids=tokens).logits
    assert share_of_scale(model.forward(tokens), want) < 1e-4
