"""Dimensions as text: Linnet syntax, Python source, and the reader of the former."""

from __future__ import annotations

import re
from collections.abc import Callable

from linnet.dims.dim import ZERO, Atom, Dim, DimTooLarge, Monomial, combine, of_atom

SUM, QUOTIENT, PRODUCT, FACTOR = 0, 1, 2, 3  # how tightly a text binds
MAX_NESTING = 100  # brackets in a text that is read


def show(dim: Dim) -> str:
    """`2 * H + 1`, `H / 2`, `H % 8`, `min(a, b)`: read back by `parse_dim`."""
    return _Writer("/", str).dim(dim)[0]


def python(dim: Dim, rename: Callable[[str], str]) -> str:
    return _Writer("//", rename).dim(dim)[0]


class _Writer:
    def __init__(self, slash: str, rename: Callable[[str], str]):
        self.slash, self.rename = slash, rename

    def dim(self, dim: Dim) -> tuple[str, int]:
        dim, parts = self.remainders(dim)
        dim, more = self.shifted(dim)
        parts += more
        for monomial, coefficient in dim.terms:
            parts.append((coefficient, *self.monomial(monomial)))
        if not parts:
            return "0", FACTOR
        # A sum reads better when it does not begin with a minus.
        first = next((i for i, part in enumerate(parts) if part[0] > 0), 0)
        parts.insert(0, parts.pop(first))
        texts = [self.scaled(*part) for part in parts]
        if len(texts) == 1:
            text, level = texts[0]
            return (_negative(text, level) if parts[0][0] < 0 else text), level
        result = _negative(*texts[0]) if parts[0][0] < 0 else texts[0][0]
        for (coefficient, _, _), (text, _) in zip(parts[1:], texts[1:], strict=True):
            result += (" - " if coefficient < 0 else " + ") + text
        return result, SUM

    def scaled(self, coefficient: int, text: str, level: int) -> tuple[str, int]:
        """The absolute value of `coefficient` times the text."""
        size = abs(coefficient)
        if not text:
            return str(size), FACTOR
        if size == 1:
            return (f"({text})", FACTOR) if level == SUM else (text, level)
        return f"{size} * {text if level == FACTOR else f'({text})'}", PRODUCT

    def monomial(self, monomial: Monomial) -> tuple[str, int]:
        if not monomial:
            return "", FACTOR
        factors = [self.atom(atom) for atom, power in monomial for _ in range(power)]
        if len(factors) == 1:
            return factors[0]
        # A plain product may be scaled without brackets: `2 * KeyHeads * KeyDim`.
        plain = all(level == FACTOR for _, level in factors)
        text = " * ".join(t if level == FACTOR else f"({t})" for t, level in factors)
        return text, FACTOR if plain or factors[0][1] == FACTOR else PRODUCT

    def atom(self, atom: Atom) -> tuple[str, int]:
        if atom.kind == "name":
            return self.rename(atom.name), FACTOR
        if atom.kind == "floor":
            return self.divided(atom.args[0], self.slash, atom.args[1])
        text = self.dim(atom.args[-1])[0]
        for arg in reversed(atom.args[:-1]):
            text = f"{atom.kind}({self.dim(arg)[0]}, {text})"
        return text, FACTOR

    def divided(self, p: Dim, operator: str, q: Dim) -> tuple[str, int]:
        left, left_level = self.dim(p)
        right, _ = self.dim(q)
        simple = q.constant is not None or re.fullmatch(r"\w+|(min|max)\([^()]*\)", right)
        left = f"({left})" if left_level <= QUOTIENT else left
        return f"{left} {operator} {right if simple else f'({right})'}", QUOTIENT

    def remainders(self, dim: Dim) -> tuple[Dim, list[tuple[int, str, int]]]:
        """Write `k * (p - q * (p / q))` as `k * (p % q)`, and the same below a quotient:
        `(a / b) - c * (a / (b c))` as `(a / b) % c`."""
        parts: list[tuple[int, str, int]] = []
        for atom in [a for a in dict.fromkeys(dim.atoms()) if a.kind == "floor"]:
            for p, q in _dividends(atom, dim):
                taken = q * of_atom(atom)
                if not taken.terms or p // q != of_atom(atom):
                    continue  # would not be read back as it was
                lead, c = taken.terms[0]
                k, odd = divmod(-dim.coefficient(lead), c)
                if not k or odd:
                    continue
                rest = combine([(1, dim), (k, taken), (-k, p)])
                if len(rest.terms) <= len(dim.terms) - 2 and atom not in rest.atoms():
                    dim = rest
                    parts.append((k, *self.divided(p, "%", q)))
                    break
        return dim, parts

    def shifted(self, dim: Dim) -> tuple[Dim, list[tuple[int, str, int]]]:
        """Write `(S + 3) / 4 - 1` as `(S - 1) / 4`."""
        constant = dim.coefficient(())
        if constant >= 0:
            return dim, []
        for monomial, coefficient in dim.terms:
            if coefficient == 1 and len(monomial) == 1 and monomial[0][0].kind == "floor":
                atom, power = monomial[0]
                p, q = atom.args
                inner = p + constant * q
                if (
                    power == 1
                    and (q.constant or 0) > 0
                    and len(inner.terms) <= len(p.terms) + 1
                    and inner // q == of_atom(atom) + constant
                ):
                    rest = combine([(1, dim), (-1, of_atom(atom))]) - constant
                    return rest, [(1, *self.divided(inner, self.slash, q))]
        return dim, []


def _negative(text: str, level: int) -> str:
    """A minus binds tighter than a slash, and floor division does not commute with it."""
    return f"-({text})" if level <= QUOTIENT else f"-{text}"


def _dividends(atom: Atom, dim: Dim) -> list[tuple[Dim, Dim]]:
    p, q = atom.args
    found = [(p, q)]
    for other in dict.fromkeys(dim.atoms()):
        if other.kind == "floor" and other is not atom and other.args[0] == p:
            ratio = q // other.args[1]
            if ratio * other.args[1] == q:
                found.append((of_atom(other), ratio))
    return found


_TOKEN = re.compile(r"\s*(?:(\d[\d_]*)|(\*?[A-Za-z_]\w*)|(==|!=|<=|>=|[-+*/%(),<>]))")


class _Reader:
    def __init__(self, text: str):
        self.text = text
        self.tokens: list[str] = []
        self.position = 0
        self.nesting = 0
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None:
                raise ValueError(f"not a dimension: {text!r}")
            token = match.group(match.lastindex or 0)
            # `*S` is a pack count only where an operand is expected.
            if token[0] == "*" and len(token) > 1 and self.after_operand():
                self.tokens.append("*")
                token = token[1:]
            self.tokens.append(token)
            at = match.end()

    def after_operand(self) -> bool:
        return bool(self.tokens) and (self.tokens[-1] == ")" or self.tokens[-1][-1] in _WORD)

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if not token or (expected is not None and token != expected):
            raise ValueError(f"not a dimension: {self.text!r}")
        self.position += 1
        return token

    def sum(self) -> Dim:
        result = self.product()
        while self.peek() in ("+", "-"):
            operator, right = self.take(), self.product()
            result = result + right if operator == "+" else result - right
        return result

    def product(self) -> Dim:
        result = self.factor()
        while self.peek() in ("*", "/", "%"):
            operator, right = self.take(), self.factor()
            if operator == "*":
                result = result * right
            else:
                result = result // right if operator == "/" else result % right
        return result

    def factor(self) -> Dim:
        negative = False
        while self.peek() in ("-", "+"):
            negative ^= self.take() == "-"
        result = self.operand()
        return ZERO - result if negative else result

    def operand(self) -> Dim:
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise DimTooLarge("the dimension nests too deeply")
        token = self.take()
        if token == "(":
            result = self.sum()
            self.take(")")
        elif token[0].isdigit():
            digits = token.replace("_", "")
            if len(digits) > 600:
                raise DimTooLarge("an integer in the dimension is too large")
            result = Dim.const(int(digits))
        elif token in ("min", "max") and self.peek() == "(":
            self.take("(")
            result = self.sum()
            while self.peek() == ",":
                self.take()
                right = self.sum()
                result = Dim.min(result, right) if token == "min" else Dim.max(result, right)
            self.take(")")
        elif token[-1] in _WORD:
            result = Dim.name(token)
        else:
            raise ValueError(f"not a dimension: {self.text!r}")
        self.nesting -= 1
        return result


_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


def parse_dim(text: str) -> Dim:
    """Read what `str(dim)` writes. ValueError where the text is not a dimension."""
    reader = _Reader(text)
    result = reader.sum()
    if reader.peek():
        raise ValueError(f"not a dimension: {text!r}")
    return result


def parse_comparison(text: str) -> tuple[str, Dim, Dim]:
    """Read `a <= b` into its operator and sides. ValueError where it is not a comparison."""
    reader = _Reader(text)
    left = reader.sum()
    operator = reader.take()
    if operator not in ("==", "!=", "<", "<=", ">", ">="):
        raise ValueError(f"not a comparison of dimensions: {text!r}")
    right = reader.sum()
    if reader.peek():
        raise ValueError(f"not a comparison of dimensions: {text!r}")
    return operator, left, right
