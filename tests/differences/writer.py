"""The state of one routine being written: what is in scope, what is known of its axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

from differences.statement import Statement
from differences.value import FLOATS, INTEGERS, NUMERIC, Value, limits, product, type_text

FLOAT_LITERALS = (
    "0.0", "1.0", "-1.0", "0.5", "-0.25", "3.0", "0.1", "-2.5", "7.75", "1e-3", "100.0", "1e4",
)  # fmt: skip


class Writer:
    """`least` gives for each dimension name the size that a `where` promises.

    `close`: only floats' sums, exponentials and the like, whose last bits may differ; nothing is
    decided by them. Without it every value is the same in all evaluators to the bit. `rows`: axis
    0 of every value that has `B` is a batch, and no row knows of another.
    """

    def __init__(self, random: Random, least: dict[str, int], close: bool, rows: bool = False):
        self.random, self.least, self.close, self.rows = random, least, close, rows
        self.pool: list[Value] = []
        self.statements: list[Statement] = []
        self.count = 0
        self.depth = 0
        self.library: list[Callable[[Writer], bool]] = []

    # --- Chance ------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def one(self, options):  # type: ignore[no-untyped-def]
        return self.random.choice(list(options))

    def pick(self, wanted: Callable[[Value], bool] = lambda v: True) -> Value | None:
        """Some value in scope, the newer ones more often."""
        found = [v for v in self.pool if wanted(v)]
        if not found:
            return None
        return found[max(self.random.randrange(len(found)), self.random.randrange(len(found)))]

    def tensor(self, wanted: Callable[[Value], bool] = lambda v: True) -> Value | None:
        return self.pick(lambda v: bool(v.dims) and wanted(v))

    def fresh(self, stem: str = "v") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    # --- Dimensions ----------------------------------------------------------------

    def floor(self, dim: str) -> int:
        """A size that the dimension certainly has."""
        if dim.isdigit():
            return int(dim)
        if dim in self.least:
            return self.least[dim]
        if " + " in dim and "(" not in dim and "*" not in dim:
            return sum(self.floor(part) for part in dim.split(" + "))
        return 0

    def any_dim(self) -> str:
        names = [name for name in self.least if not (self.rows and name == "B")]
        return self.one([*names, *names, "1", "2", "3", "4"])

    def allowed(self, dims: tuple[str, ...]) -> bool:
        """Whether a value of that shape keeps rows apart; and is small enough."""
        if len(dims) > 4:
            return False
        if not self.rows:
            return True
        inner = dims[1:] if dims and dims[0] == "B" else dims
        return not any("B" in dim for dim in inner)

    def batched(self, value: Value) -> bool:
        return self.rows and bool(value.dims) and value.dims[0] == "B"

    # --- Text --------------------------------------------------------------------------

    def literal(self, dtype: str, small: bool = False) -> str:
        if dtype == "bool":
            return self.one(("true", "false"))
        if dtype in FLOATS:
            return self.one(FLOAT_LITERALS)
        low, high = limits(dtype)
        high = min(high, 2**63 - 1)  # a literal fits i64
        near = [n for n in (0, 1, 2, 3, 5, 7, -1, -2, -3, -7) if low <= n <= high]
        if small or self.chance(0.7):
            return str(self.one(near))
        at = self.one((low, low + 1, high, high - 1, self.random.randint(low, high)))
        return "0" if at == -(2**63) else str(at)

    def let(
        self, text: str, dtype: str, dims: tuple[str, ...] = (), exact: bool = True
    ) -> Value | None:
        if not self.allowed(dims):
            return None
        name = self.fresh()
        value = Value(name, dtype, dims, exact)
        stated = f": {value.type}" if self.chance(0.15) else ""
        self.statements.append(
            Statement(f"let {name}{stated} = {text}", (name,), types={name: value.type})
        )
        self.pool.append(value)
        return value

    def filled(self, dtype: str, dims: tuple[str, ...], text: str | None = None) -> str:
        """An expression of that type out of a scalar."""
        text = text or self.literal(dtype)
        return f"fill<{dtype}>([{', '.join(dims)}], {text})" if dims else self.typed(dtype, text)

    def typed(self, dtype: str, text: str) -> str:
        """A literal that stands alone has no context to take its dtype from."""
        if dtype in ("bool", "i64", "f64") and not text.startswith("-"):
            return text if dtype != "f64" or "." in text or "e" in text else f"cast<f64>({text})"
        return f"cast<{dtype}>({text})" if dtype in FLOATS else f"fill<{dtype}>([1], {text})[0]"

    def like(self, dtype: str, dims: tuple[str, ...], exact: bool = False) -> tuple[str, bool]:
        """An expression of a type, out of what is in scope, and whether it is exact."""
        found = self.pick(lambda v: v.dtype == dtype and v.dims == dims and (v.exact or not exact))
        if found is not None and self.chance(0.85):
            return found.name, found.exact
        other = self.pick(lambda v: v.dims == dims and (v.exact or (not exact and dtype in FLOATS)))
        if other is not None and (other.exact or other.dtype in FLOATS) and self.chance(0.8):
            if other.dtype == dtype:
                return other.name, other.exact
            return f"cast<{dtype}>({other.name})", other.exact and not self.rounds(dtype, other)
        scalar = self.pick(lambda v: v.dtype == dtype and not v.dims and (v.exact or not exact))
        if scalar is not None and self.chance(0.6):
            return self.filled(dtype, dims, scalar.name) if dims else scalar.name, scalar.exact
        return self.filled(dtype, dims), True

    def rounds(self, dtype: str, source: Value) -> bool:
        """Whether a cast is an operation whose result counts as inexact here."""
        return self.close and dtype in FLOATS and source.dtype in FLOATS and dtype != source.dtype

    def broadcast(self, a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...] | None:
        """The shape of an elementwise operation, where it is certain."""
        made: list[str] = []
        for i in range(max(len(a), len(b))):
            p = a[-1 - i] if i < len(a) else "1"
            q = b[-1 - i] if i < len(b) else "1"
            if p != q and "1" not in (p, q):
                return None
            made.append(q if p == "1" else p)
        result = tuple(reversed(made))
        if self.rows:
            # A batch stands at the front of both, or one has none of it.
            for dims in (a, b):
                if "B" in dims and (len(dims) != len(result)):
                    return None
        return result if self.allowed(result) else None

    def partner(self, value: Value) -> tuple[str, tuple[str, ...], bool]:
        """A second operand of the same dtype: (text, shape of the result, exact)."""
        if self.chance(0.25):
            return self.literal(value.dtype), value.dims, True
        other = self.pick(
            lambda v: (
                v.dtype == value.dtype
                and v.name != value.name
                and self.broadcast(value.dims, v.dims) is not None
            )
        )
        if other is not None and self.chance(0.8):
            dims = self.broadcast(value.dims, other.dims)
            assert dims is not None
            return other.name, dims, other.exact
        dims = value.dims
        if dims and self.chance(0.3):
            dims = dims[1:] if self.chance(0.5) and not self.rows else dims
            dims = tuple("1" if self.chance(0.3) and d != "B" else d for d in dims)
        text, exact = self.like(value.dtype, dims)
        return text, value.dims, exact

    # --- Nested regions -----------------------------------------------------------------

    @contextmanager
    def nested(self) -> Iterator[list[Statement]]:
        """Statements of a body; what they define is gone afterwards."""
        outer, pool = self.statements, list(self.pool)
        self.statements = []
        self.depth += 1
        try:
            yield self.statements
        finally:
            self.statements, self.pool = outer, pool
            self.depth -= 1


__all__ = ["FLOATS", "INTEGERS", "NUMERIC", "Writer", "product", "type_text"]
