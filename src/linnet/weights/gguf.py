"""GGUF files of the llama family, presented under the names of Hugging Face checkpoints.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The header is read here;
quantized blocks are unpacked by the `gguf` package, which is imported when the first one is.
"""

from __future__ import annotations

import re
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.errors import WeightsError, how_to_install
from linnet.weights.dtypes import CHUNK, SIZES, floats, is_float, packed
from linnet.weights.gguf_header import FLOAT_TYPES, GgufHeader, StoredTensor
from linnet.weights.gguf_qwen import ARCHITECTURES, PREFIX, Heads, Source, sources
from linnet.weights.mapped import MappedFile
from linnet.weights.packed import BLOCKS, Packed
from linnet.weights.room import room
from linnet.weights.tensor_info import TensorInfo
from linnet.weights.threads import each

if TYPE_CHECKING:
    import numpy as np

# Of these only llama keeps the halves of its heads interleaved.
SUPPORTED = ("llama", "qwen2", "qwen3", *ARCHITECTURES)
# The parts of a block, and of the whole, as llama.cpp's converter names them.
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_MODEL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


class GgufFile:
    """A GGUF file: its metadata, and its tensors as they are called elsewhere.

    `tensors` are read through `read` in any float dtype. Query and key rows, which the format
    keeps with the two halves of each head interleaved for its rotary embedding, are put back.
    A file without `output.weight` has a tied head, listed as an alias of the embedding.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._file = MappedFile(self.path)
        try:
            self._header = GgufHeader(self._file)
        except BaseException:
            self._file.close()
            raise
        self._tensors: dict[str, TensorInfo] | None = None
        self._stored: dict[str, StoredTensor] = {}
        self._sources: dict[str, Source] = {}
        self._lent: set[tuple[int, int]] = set()

    @property
    def architecture(self) -> str:
        return str(self.metadata("general.architecture", "unknown"))

    def keys(self) -> list[str]:
        return list(self._header.values)

    def metadata(self, key: str, default: Any = None) -> Any:
        """A metadata value: int, float, bool, str or a list of those."""
        return self._header.value(key, default)

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """By checkpoint name. Raises `WeightsError` for an architecture not supported."""
        if self._tensors is None:
            self._tensors = self._present()
        return self._tensors

    def read(
        self, name: str, dtype: str | None = None, out: memoryview | None = None
    ) -> memoryview:
        """A tensor's elements as packed bytes of a float dtype (f32 where none is given).

        Rounded to nearest even. Works through a bounded part at a time, and fills `out` where
        it is given, so that nothing but the result stays in memory.
        """
        info = self.tensors[name]
        stored_name = info.alias or name
        if stored_name in self._sources:
            return self._read_source(self._sources[stored_name], dtype or "f32", out)
        stored = self._stored[stored_name]
        dtype = dtype or "f32"
        if not is_float(dtype):
            raise self._fail(f"cannot be read as {dtype}: it holds {info.dtype}", stored.name)
        heads = self._heads(stored_name)
        # A bias has one element a row, but its rows are not stored apart: it is read whole.
        columns = info.shape[-1] if len(info.shape) > 1 or not heads else 1
        rows = prod(info.shape) // columns if columns else 0
        size = SIZES[dtype] * columns
        if out is None:
            out = room(rows * size)
        out = out.cast("B")
        if out.nbytes != rows * size:
            raise self._fail(f"the memory to fill has {out.nbytes} bytes, expected {rows * size}")
        if not rows * columns:
            return out
        # Whole heads at a time where rows move within a head.
        unit = rows // heads if heads else 1
        step = rows if columns == 1 else max(1, CHUNK // (columns * unit)) * unit
        target = out

        def fill(start: int) -> None:
            stop = min(start + step, rows)
            raw = self._file.view(
                stored.start + stored.nbytes * start // rows,
                stored.start + stored.nbytes * stop // rows,
            )
            part = self._unpack(raw, stored).reshape(stop - start, columns)
            if heads:
                part = _halves(part, unit)
            target[start * size : stop * size] = packed(part, dtype)

        each(fill, range(0, rows, step))
        self._file.release(stored.start, stored.start + stored.nbytes)
        return out

    def packed(self, name: str) -> Packed:
        """A quantized tensor in its blocks as stored; rows that the format keeps elsewhere are
        put back, which copies them."""
        info = self.tensors[name]
        stored_name = info.alias or name
        if stored_name in self._sources:
            return self._pack_source(self._sources[stored_name])
        stored = self._stored[stored_name]
        if stored.dtype not in BLOCKS:
            raise self._fail(f"holds {stored.dtype}, which is not run as stored", stored.name)
        raw = self._file.view(stored.start, stored.start + stored.nbytes)
        heads = self._heads(stored_name)
        if heads:
            import numpy as np

            rows = info.shape[0]
            blocks = np.frombuffer(raw, np.uint8).reshape(rows, -1)
            raw = _halves(blocks, rows // heads).data.cast("B")
            self._file.release(stored.start, stored.start + stored.nbytes)
        else:
            self._lent.add((stored.start, stored.start + stored.nbytes))
        return Packed(stored.dtype, info.shape, BLOCKS[stored.dtype][0], raw, None)

    @property
    def lent(self) -> tuple[MappedFile, list[tuple[int, int]]]:
        """The file and the ranges of its bytes that were handed out."""
        return self._file, list(self._lent)

    def close(self) -> None:
        self._file.close()

    def _present(self) -> dict[str, TensorInfo]:
        if self.architecture not in SUPPORTED:
            raise self._fail(
                f"architecture `{self.architecture}` is not supported as a source of weights; "
                f"supported: {', '.join(SUPPORTED)}"
            )
        tensors: dict[str, TensorInfo] = {}
        if self.architecture in ARCHITECTURES:
            return self._family()
        for stored in self._header.tensors:
            name = checkpoint_name(stored.name)
            if name in tensors:
                raise self._fail(f"stands twice, also as `{self._stored[name].name}`", stored.name)
            self._stored[name] = stored
            tensors[name] = TensorInfo(
                name, stored.dtype, stored.shape, stored.nbytes, self.path, importer=True
            )
            heads = self._heads(name)
            if heads and (not stored.shape or stored.shape[0] % (2 * heads)):
                raise self._fail(
                    f"shape {list(stored.shape)} does not divide into {heads} heads of an even "
                    "number of rows",
                    stored.name,
                )
        table = tensors.get("model.embed_tokens.weight")
        if table and "lm_head.weight" not in tensors:
            tensors["lm_head.weight"] = TensorInfo(
                "lm_head.weight",
                table.dtype,
                table.shape,
                table.nbytes,
                self.path,
                True,
                table.name,
            )
        return tensors

    def _family(self) -> dict[str, TensorInfo]:
        """The tensors of the Qwen3.5 family, several of them made of others."""
        kind = self.architecture

        def number(key: str) -> int:
            value = self.metadata(f"{kind}.ssm.{key}")
            if type(value) is not int or value <= 0:
                raise self._fail(
                    f"metadata `{kind}.ssm.{key}` is {value!r}, expected a positive integer"
                )
            return value

        keys, values = number("group_count"), number("time_step_rank")
        inner = number("inner_size")
        if values % keys or inner % values:
            raise self._fail(f"{values} value heads of {inner} do not go with {keys} key heads")
        heads = Heads(keys, number("state_size"), values, inner // values)
        stored = {tensor.name: tensor for tensor in self._header.tensors}
        self._sources = sources(stored, heads, self._fail)
        found: dict[str, TensorInfo] = {}
        for name, source in self._sources.items():
            dtypes = {part.dtype for part in source.parts}
            dtype = dtypes.pop() if len(dtypes) == 1 else "mixed"
            nbytes = sum(part.nbytes for part in source.parts)
            if dtype in BLOCKS and not self._whole_blocks(source):
                dtype = "mixed"  # its columns go elsewhere one by one
            found[name] = TensorInfo(name, dtype, source.shape, nbytes, self.path, importer=True)
        table = found.get(f"{PREFIX}embed_tokens.weight")
        if table is not None and "lm_head.weight" not in found:
            found["lm_head.weight"] = TensorInfo(
                "lm_head.weight",
                table.dtype,
                table.shape,
                table.nbytes,
                self.path,
                True,
                table.name,
            )
        return found

    def _whole_blocks(self, source: Source) -> bool:
        if source.value is not None:
            return False
        if source.columns is None:
            return True
        block = BLOCKS[source.parts[0].dtype][0]
        starts = source.columns.reshape(-1, block) if source.width % block == 0 else None
        return starts is not None and bool(
            ((starts - starts[:, :1]) == range(block)).all() and (starts[:, 0] % block == 0).all()
        )

    def _rows(self, source: Source, part: StoredTensor, start: int, stop: int) -> Any:
        """Stored rows as bytes `[n, bytes of a row]`."""
        import numpy as np

        each = part.nbytes // max(1, prod(part.shape) // source.width)
        raw = np.frombuffer(self._file.view(part.start, part.start + part.nbytes), np.uint8)
        rows = raw.reshape(-1, each)
        return rows[start:stop] if source.order is None else rows[source.order[start:stop]]

    def _read_source(self, source: Source, dtype: str, out: memoryview | None) -> memoryview:
        width = source.width
        count = prod(source.shape) // max(1, width)
        size = SIZES[dtype] * width
        if out is None:
            out = room(count * size)
        out = out.cast("B")
        step = max(1, CHUNK // max(1, width))
        at = 0
        for start in range(0, count if width else 0, step):
            for part, lo, hi in source.segments(start, min(start + step, count)):
                raw = memoryview(self._rows(source, part, lo, hi).tobytes())
                values = source.changed(self._unpack(raw, part).reshape(hi - lo, width))
                out[at * size : (at + hi - lo) * size] = packed(values, dtype)
                at += hi - lo
        for part in source.parts:
            self._file.release(part.start, part.start + part.nbytes)
        return out

    def _pack_source(self, source: Source) -> Packed:
        import numpy as np

        first = source.parts[0]
        if first.dtype not in BLOCKS or not self._whole_blocks(source):
            raise self._fail(f"holds {first.dtype}, which is not run as stored", first.name)
        block, size, _ = BLOCKS[first.dtype]
        width, shape = source.width, source.shape
        if len(source.parts) == 1 and source.order is None and source.columns is None:
            self._lent.add((first.start, first.start + first.nbytes))
            raw = self._file.view(first.start, first.start + first.nbytes)
            return Packed(first.dtype, shape, block, raw, None)
        count = prod(shape) // width
        data = np.empty((count, width // block * size), np.uint8)
        step = max(1, CHUNK // width)
        at = 0
        for start in range(0, count, step):
            for part, lo, hi in source.segments(start, min(start + step, count)):
                rows = self._rows(source, part, lo, hi)
                if source.columns is not None:
                    order = source.columns.reshape(-1, block)[:, 0] // block
                    rows = rows.reshape(hi - lo, -1, size)[:, order].reshape(hi - lo, -1)
                data[at : at + hi - lo] = rows
                at += hi - lo
        for part in source.parts:
            if (part.start, part.start + part.nbytes) not in self._lent:
                self._file.release(part.start, part.start + part.nbytes)
        return Packed(first.dtype, shape, block, data.data.cast("B"), None)

    def _heads(self, name: str) -> int:
        """How many heads' rows are interleaved in this tensor; 0 where none are."""
        if self.architecture != "llama":
            return 0
        if ".self_attn.q_proj." in name:
            key = "head_count"
        elif ".self_attn.k_proj." in name:
            key = "head_count_kv"
        else:
            return 0
        all_heads = self.metadata(f"{self.architecture}.attention.head_count")
        heads = self.metadata(f"{self.architecture}.attention.{key}", all_heads)
        if type(heads) is not int or heads <= 0:
            raise self._fail(
                f"metadata `{self.architecture}.attention.{key}` is {heads!r}, expected a "
                "positive integer"
            )
        return heads

    def _unpack(self, raw: memoryview, stored: StoredTensor) -> np.ndarray[Any, Any]:
        if stored.type in FLOAT_TYPES:
            return floats(raw, stored.dtype)
        if stored.dtype in SIZES:
            raise self._fail(f"holds {stored.dtype}, not floats", stored.name)
        try:
            from gguf import GGMLQuantizationType
            from gguf.quants import dequantize
        except ImportError as error:
            raise WeightsError(
                f"{self.path}: tensor `{stored.name}` is stored as {stored.dtype}; unpacking it "
                f"needs the package `gguf`: {how_to_install('gguf')}"
            ) from error
        import numpy as np

        # One long row: the package works through rows in Python.
        blocks = np.frombuffer(raw, np.uint8).reshape(1, -1)
        try:
            with np.errstate(all="ignore"):
                elements: np.ndarray[Any, Any] = dequantize(
                    blocks, GGMLQuantizationType(stored.type)
                )
            return elements
        except (NotImplementedError, ValueError) as error:
            raise self._fail(
                f"the installed `gguf` package cannot unpack {stored.dtype}", stored.name
            ) from error

    def _fail(self, message: str, tensor: str | None = None) -> WeightsError:
        where = f"{self.path}: tensor `{tensor}`" if tensor else f"{self.path}"
        return WeightsError(f"{where}: {message}")


def checkpoint_name(name: str) -> str:
    """A GGUF tensor's name in Hugging Face checkpoints; unknown names stay as they are."""
    if name in _MODEL_NAMES:
        return _MODEL_NAMES[name]
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match and match[2] in _LAYER_NAMES:
        return f"model.layers.{match[1]}.{_LAYER_NAMES[match[2]]}.{match[3]}"
    return name


def _halves(rows: np.ndarray[Any, Any], head: int) -> np.ndarray[Any, Any]:
    """Rows `2 i + j` of each head to `j (head / 2) + i`: pairs side by side become halves."""
    import numpy as np

    columns = rows.shape[-1]
    split = rows.reshape(-1, head // 2, 2, columns)
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(-1, columns)
