"""The Qwen3.5 family from GGUF: a file in the format's own order gives the checkpoint's model, and
the logits of llama.cpp on the same file."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.errors import WeightsError
from linnet.weights.checkpoint import open_checkpoint

gguf = pytest.importorskip("gguf")
torch = pytest.importorskip("torch")

K, V, D = 2, 4, 64  # key heads, value heads, their size
H = 256
SIZES: dict[str, Any] = {
    "Groups": 1, "Vocab": 512, "H": H, "Experts": 8, "TopK": 2, "ExpertInner": 128,
    "SharedInner": 128, "Heads": 4, "KvHeads": 2, "HeadDim": 64, "KeyHeads": K, "KeyDim": D,
    "ValueHeads": V, "ValueDim": D, "Conv": 2 * K * D + V * D, "MaxSeq": 64, "Batch": 1, "T": "f32",
}  # fmt: skip


def tiled(x: np.ndarray, axis: int, each: int) -> np.ndarray:
    """Value heads grouped by their key head, put round the key heads instead."""
    shape = x.shape
    split = x.reshape(*shape[:axis], K, V // K, each, *shape[axis + 1 :])
    return np.ascontiguousarray(split.swapaxes(axis, axis + 1)).reshape(shape)


def stored(path: str, x: np.ndarray) -> list[tuple[str, np.ndarray]]:
    """A parameter under the format's names and in its order, written from its description."""
    simple = {"embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight"}
    if path in simple:
        return [(simple[path], x)]
    if path == "norm.weight":
        return [("output_norm.weight", x + 1)]
    head, _, rest = path.partition("groups.0.")[2].partition(".")
    layer = 3
    if head == "linear":
        number, _, rest = rest.partition(".")
        layer = int(number)
    keys = 2 * K * D
    tails = {
        "input_layernorm.weight": [("attn_norm.weight", x + 1)],
        "post_attention_layernorm.weight": [("post_attention_norm.weight", x + 1)],
        "self_attn.q_norm.weight": [("attn_q_norm.weight", x + 1)],
        "self_attn.k_norm.weight": [("attn_k_norm.weight", x + 1)],
        "self_attn.q_proj.weight": [("attn_q.weight", x)],
        "self_attn.k_proj.weight": [("attn_k.weight", x)],
        "self_attn.v_proj.weight": [("attn_v.weight", x)],
        "self_attn.o_proj.weight": [("attn_output.weight", x)],
        "linear_attn.norm.weight": [("ssm_norm.weight", x)],
        "mlp.gate.weight": [("ffn_gate_inp.weight", x)],
        "mlp.shared_expert.gate.weight": [("ffn_gate_shexp.weight", x)],
        "mlp.shared_expert.up.weight": [("ffn_up_shexp.weight", x)],
        "mlp.shared_expert.down.weight": [("ffn_down_shexp.weight", x)],
        "mlp.down_proj": [("ffn_down_exps.weight", x)],
    }
    found = tails.get(rest)
    if rest == "mlp.shared_expert_gate.weight":
        found = [("ffn_gate_inp_shexp.weight", x[0])]
    elif rest == "mlp.gate_up_proj":
        half = x.shape[1] // 2
        found = [("ffn_gate_exps.weight", x[:, :half]), ("ffn_up_exps.weight", x[:, half:])]
    elif rest == "linear_attn.A_log":
        found = [("ssm_a", tiled(-np.exp(x), 0, 1))]
    elif rest == "linear_attn.dt_bias":
        found = [("ssm_dt.bias", tiled(x, 0, 1))]
    elif rest == "linear_attn.conv_weight":
        x = x[:, 0]
        found = [("ssm_conv1d.weight", np.concatenate([x[:keys], tiled(x[keys:], 0, D)]))]
    elif rest == "linear_attn.in_proj_qkv.weight":
        found = [("attn_qkv.weight", np.concatenate([x[:keys], tiled(x[keys:], 0, D)]))]
    elif rest == "linear_attn.in_proj_z.weight":
        found = [("attn_gate.weight", tiled(x, 0, D))]
    elif rest == "linear_attn.in_proj_a.weight":
        found = [("ssm_alpha.weight", tiled(x, 0, 1))]
    elif rest == "linear_attn.in_proj_b.weight":
        found = [("ssm_beta.weight", tiled(x, 0, 1))]
    elif rest == "linear_attn.out_proj.weight":
        found = [("ssm_out.weight", tiled(x, 1, D))]
    assert found is not None, path
    return [(f"blk.{layer}.{name}", y) for name, y in found]


# Blocks of 256 elements that nobody here can write: where their f16 scales stand (those of the
# steps, those of the least values), and the bytes of a block.
FIELDS = {
    "Q4_K": ((0,), (2,), 144), "Q5_K": ((0,), (2,), 176), "Q6_K": ((208,), (), 210),
    "IQ4_XS": ((0,), (), 136),
}  # fmt: skip


def made_up(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Random blocks of a format, whose values are about as large as weights are."""
    steps, least, size = FIELDS[kind]
    random = np.random.default_rng(seed)
    raw = random.integers(0, 256, (*shape[:-1], shape[-1] // 256, size)).astype(np.uint8)

    def put(places: tuple[int, ...], scale: float) -> None:
        for at in places:
            raw[..., at : at + 2] = np.frombuffer(np.float16(scale).tobytes(), np.uint8)

    flat = raw.reshape(*shape[:-1], -1)
    put(steps, 1e-4)
    put(least, 1e-4)
    # A least value is at most 63 steps of its own; what it takes off is about half of the rest.
    spread = float(gguf.quants.dequantize(flat, gguf.GGMLQuantizationType[kind]).std())
    put(steps, 2e-6 / spread)
    put(least, 2e-6 / spread)
    return flat


def write(file: Path, model: Any, kinds: dict[str, str], widened: bool = False) -> None:
    """`kinds`: the format of each tensor whose name holds a key; the last that fits counts.
    `widened`: the values that those blocks mean, in f32."""
    w = gguf.GGUFWriter(file, "qwen35moe")
    w.add_block_count(4)
    w.add_context_length(256)
    w.add_embedding_length(H)
    w.add_feed_forward_length(128)
    w.add_head_count(4)
    w.add_head_count_kv(2)
    w.add_key_length(64)
    w.add_value_length(64)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_freq_base(1e7)
    w.add_rope_dimension_count(16)
    w.add_rope_dimension_sections([3, 3, 2, 0])
    w.add_expert_count(8)
    w.add_expert_used_count(2)
    w.add_expert_feed_forward_length(128)
    w.add_expert_shared_feed_forward_length(128)
    w.add_ssm_conv_kernel(4)
    w.add_ssm_inner_size(V * D)
    w.add_ssm_state_size(D)
    w.add_ssm_time_step_rank(V)
    w.add_ssm_group_count(K)
    w.add_uint32("qwen35moe.full_attention_interval", 4)
    w.add_vocab_size(512)
    w.add_tokenizer_model("none")
    for path, tensor in model.state_dict().items():
        for name, x in stored(path, tensor.float().numpy()):
            x = np.ascontiguousarray(x, np.float32)
            kind = "F32"
            if x.ndim > 1 and not any(n in name for n in ("conv1d", "inp", "alpha", "beta")):
                kind = [k for part, k in kinds.items() if part in name][-1] if kinds else "F32"
            if kind == "F32":
                w.add_tensor(name, x)
                continue
            number = gguf.GGMLQuantizationType[kind]
            if kind in FIELDS:
                raw = made_up(kind, x.shape, zlib.crc32(name.encode()))
                values = gguf.quants.dequantize(raw, number)
            else:
                raw = gguf.quants.quantize(x, number)
                values = gguf.quants.dequantize(raw, number)
            if widened:
                w.add_tensor(name, np.ascontiguousarray(values, np.float32))
            else:
                w.add_tensor(name, raw, raw_dtype=number)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


MIXED = {"": "Q8_0", "exps": "Q4_0", "ffn_up_exps": "Q4_1", "attn_qkv": "Q4_0"}
TOKENS = [(7 + 37 * i) % 512 for i in range(24)]


@pytest.fixture(scope="module")
def exact() -> Any:
    return linnet.load("qwen3.6-35b-a3b", weights="random", generics=SIZES)


@pytest.fixture(scope="module", params=["f32", "q8_0", "mixed"])
def file(request: Any, exact: Any, tmp_path_factory: Any) -> Path:
    path = tmp_path_factory.mktemp("qwen") / f"{request.param}.gguf"
    kinds = {"f32": {}, "q8_0": {"": "Q8_0"}, "mixed": MIXED}[request.param]
    write(path, exact, kinds)
    return path


def load(file: Path, **options: Any) -> Any:
    return linnet.load("qwen3.6-35b-a3b", weights=file, generics=SIZES, **options)


def test_parameters(exact: Any, file: Path) -> None:
    model = load(file)
    assert not model.unused_tensors
    near = {"f32": 1e-6, "q8_0": 0.01, "mixed": 0.2}[file.stem]
    for path, tensor in model.state_dict().items():
        wanted = exact.state_dict()[path]
        assert float((tensor - wanted).norm()) <= near * float(wanted.norm()), path


def test_the_same_logits_as_llama_cpp(file: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    other = llama_cpp.Llama(str(file), n_ctx=64, n_threads=1, verbose=False, logits_all=True)
    other.eval(TOKENS)
    theirs = np.array(other.scores[: len(TOKENS)])
    ours = load(file).forward([TOKENS])[0].numpy()
    # llama.cpp rounds activations to 8 bits before it multiplies quantized weights, and a random
    # model makes much of that.
    near = {"f32": 1e-3, "q8_0": 0.2, "mixed": 0.5}[file.stem]
    assert np.linalg.norm(ours - theirs) < near * np.linalg.norm(theirs)


def test_as_stored(file: Path) -> None:
    model = load(file, quantize="stored")
    kinds = {p: t.source.kind for p, t in model.state_dict().items() if hasattr(t, "source")}
    layer = "groups.0.linear.0."
    if file.stem == "f32":
        assert not kinds
        return
    assert kinds[f"{layer}linear_attn.out_proj.weight"] == "q8_0"  # columns moved, by blocks
    assert kinds[f"{layer}linear_attn.in_proj_z.weight"] == "q8_0"  # rows moved
    if file.stem == "q8_0":
        assert kinds[f"{layer}mlp.gate_up_proj"] == "q8_0"
    else:
        assert kinds[f"{layer}mlp.down_proj"] == "q4_0"
        assert f"{layer}mlp.gate_up_proj" not in kinds  # its halves are of two types
    opened = load(file)
    for path in kinds:
        assert torch.equal(model.state_dict()[path] + 0, opened.state_dict()[path]), path


# Formats of other blocks in one file; gate and up of the experts have two of them.
MORE = {
    "": "Q8_0", "token_embd": "Q6_K", "output.weight": "Q6_K", "attn_qkv": "Q5_K",
    "attn_gate": "IQ4_XS", "attn_q.": "Q4_K", "attn_k.": "IQ4_XS", "attn_v.": "Q5_K",
    "ffn_gate_exps": "IQ4_XS", "ffn_up_exps": "Q5_K", "ffn_gate_shexp": "Q4_K",
}  # fmt: skip


def test_files_of_more_formats(exact: Any, tmp_path: Path) -> None:
    """Read as stored or widened, the values are those that `gguf` finds in the blocks."""
    few, wide = tmp_path / "few.gguf", tmp_path / "wide.gguf"
    write(few, exact, MORE)
    write(wide, exact, MORE, widened=True)
    wanted = load(wide).state_dict()
    stored = load(few, quantize="stored")
    kinds = {p: t.source.kind for p, t in stored.state_dict().items() if hasattr(t, "source")}
    assert set(kinds.values()) == {"q8_0", "q6_k", "q4_k"}  # the others are widened
    for path, tensor in load(few).state_dict().items():
        assert torch.equal(tensor, wanted[path]), path
        assert torch.equal(stored.state_dict()[path] + 0, wanted[path]), path
    ours = stored.forward([TOKENS])[0]
    exactly = load(wide).forward([TOKENS])[0]
    assert float((ours - exactly).norm()) < 0.5 * float(exactly.norm())


@pytest.mark.parametrize("kinds", [MIXED, MORE], ids=["mixed", "more"])
def test_llama_cpp_on_the_values_of_a_file(
    kinds: dict[str, str], exact: Any, tmp_path: Path
) -> None:
    """Where nothing rounds activations, its logits are ours: every tensor is in its place."""
    llama_cpp = pytest.importorskip("llama_cpp")
    few, wide = tmp_path / "few.gguf", tmp_path / "wide.gguf"
    write(few, exact, kinds)
    write(wide, exact, kinds, widened=True)
    ours = load(few).forward([TOKENS])[0].numpy()
    near = {"wide": 1e-3, "few": 0.5}
    for file in (wide, few):
        other = llama_cpp.Llama(str(file), n_ctx=64, n_threads=1, verbose=False, logits_all=True)
        other.eval(TOKENS)
        theirs = np.array(other.scores[: len(TOKENS)])
        far = float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))
        print(file.stem, far)
        assert far < near[file.stem]


def test_heads_that_do_not_go_together(exact: Any, tmp_path: Path) -> None:
    path = tmp_path / "wrong.gguf"
    write(path, exact, {})
    raw = path.read_bytes()
    key = b"qwen35moe.ssm.time_step_rank"
    at = raw.index(key) + len(key) + 4
    path.write_bytes(raw[:at] + (8).to_bytes(4, "little") + raw[at + 4 :])
    with pytest.raises(WeightsError, match="does not go with heads of"):
        open_checkpoint(path)
