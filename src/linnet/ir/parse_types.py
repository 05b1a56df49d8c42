"""The scanner under `parse.py`, and types and generic arguments as text."""

from __future__ import annotations

import re

from linnet.dims import Dim, parse_dim
from linnet.ir.types import (
    BITS,
    EnumType,
    GenericArg,
    OptionalType,
    Pack,
    ScalarType,
    Shape,
    StructType,
    TupleType,
    Type,
    tensor,
)

_SPACE = re.compile(r"(?:\s|//[^\n]*)*")


class Scanner:
    """Reads words, names and bracketed text; white space and comments separate."""

    def __init__(self, text: str):
        self.text = text
        self.at = 0

    def error(self, message: str) -> ValueError:
        line = self.text.count("\n", 0, self.at) + 1
        near = self.text[self.at : self.at + 30].split("\n")[0]
        return ValueError(f"line {line}: {message}, near `{near}`")

    def fail(self, message: str) -> None:
        raise self.error(message)

    def skip(self) -> None:
        match = _SPACE.match(self.text, self.at)
        assert match is not None
        self.at = match.end()

    def end(self) -> bool:
        self.skip()
        return self.at >= len(self.text)

    def peek(self, word: str) -> bool:
        self.skip()
        if not self.text.startswith(word, self.at):
            return False
        after = self.text[self.at + len(word) : self.at + len(word) + 1]
        return not (word[-1].isalnum() and (after.isalnum() or after == "_"))

    def peek_match(self, pattern: str) -> bool:
        self.skip()
        return re.compile(pattern).match(self.text, self.at) is not None

    def take(self, word: str) -> bool:
        if not self.peek(word):
            return False
        self.at += len(word)
        return True

    def word(self, word: str) -> None:
        if not self.take(word):
            raise self.error(f"expected `{word}`")

    def match(self, pattern: str) -> str:
        self.skip()
        found = re.compile(pattern).match(self.text, self.at)
        if found is None:
            raise self.error(f"expected {pattern}")
        self.at = found.end()
        return found.group()

    def name(self) -> str:
        return self.match(r"\w+")

    def id(self) -> str:
        return self.match(r"[\w.]+(::[\w.]+)?")

    def line(self) -> str:
        return self.match(r"[^\n]*")

    def until(self, stops: str) -> str:
        """Text up to one of the characters, outside of any brackets opened on the way."""
        start = at = self.at
        depth = 0
        while at < len(self.text):
            c = self.text[at]
            if depth == 0 and c in stops:
                break
            depth += (c in "([{") - (c in ")]}")
            at += 1
        self.at = at
        return self.text[start:at]

    def literal(self) -> int | float | bool:
        text = self.match(r"true\b|false\b|-?(?:inf|nan|[\d.]+(?:e[+-]?\d+)?)")
        if text in ("true", "false"):
            return text == "true"
        return int(text) if re.fullmatch(r"-?\d+", text) else float(text)

    def integer(self) -> int:
        return int(self.match(r"-?\d+"))

    def integers(self) -> tuple[int, ...]:
        self.word("[")
        text = self.until("]")
        self.word("]")
        return tuple(int(part) for part in text.split(",") if part.strip())

    def bracketed_dim(self) -> Dim:
        self.word("[")
        dim = parse_dim(self.until("]"))
        self.word("]")
        return dim

    # --- generic arguments ---------------------------------------------------------

    def arguments(self) -> tuple[GenericArg, ...]:
        found: list[GenericArg] = []
        if self.take("<"):
            while not self.take(">"):
                found.append(self.argument())
                self.take(",")
        return tuple(found)

    def argument(self) -> GenericArg:
        if self.take("["):
            shape = self.shape("]")
            self.word("]")
            return shape
        text = self.until(",>").strip()
        # A dtype and a dimension look alike; upper-case names are dimensions unless a bound
        # dtype generic is meant, which the printer marks with a quote.
        if text in BITS:
            return text
        if text.startswith("'"):
            return text[1:]
        return parse_dim(text)

    def shape(self, stops: str) -> Shape:
        items: list[Dim | Pack] = []
        while not self.peek_any(stops):
            text = self.until("," + stops).strip()
            if re.fullmatch(r"\*\w+", text):
                items.append(Pack(text[1:]))
            else:
                items.append(parse_dim(text))
            self.take(",")
        return tuple(items)

    def peek_any(self, stops: str) -> bool:
        self.skip()
        return self.at < len(self.text) and self.text[self.at] in stops


def parse_type(scanner: Scanner) -> Type:
    type = _plain(scanner)
    while scanner.take("?"):
        type = OptionalType(type)
    return type


def _plain(scanner: Scanner) -> Type:
    if scanner.take("Tensor["):
        shape = scanner.shape(";")
        scanner.word(";")
        dtype = scanner.name()
        scanner.word("]")
        return tensor(shape, dtype)
    if scanner.take("("):
        items: list[Type] = []
        while not scanner.take(")"):
            items.append(parse_type(scanner))
            scanner.take(",")
        return TupleType(tuple(items))
    if scanner.take("struct "):
        id = scanner.id()
        generics = scanner.arguments()
        scanner.word("{")
        fields: list[tuple[str, Type]] = []
        while not scanner.take("}"):
            name = scanner.name()
            scanner.word(":")
            fields.append((name, parse_type(scanner)))
            scanner.take(",")
        return StructType(id, generics, tuple(fields))
    if scanner.take("enum "):
        id = scanner.id()
        scanner.word("{")
        variants: list[str] = []
        while not scanner.take("}"):
            variants.append(scanner.name())
            scanner.take(",")
        return EnumType(id, tuple(variants))
    return ScalarType(scanner.name())
