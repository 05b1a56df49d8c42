"""The jinja2 environment of chat templates: sandboxed, immutable and bounded.

Beside what jinja2's sandbox forbids, everything whose cost a template can choose is counted by
the rendering's `Budget`: loops and calls by what they run, strings and lists by what they make.
The syntax tree is rewritten for that before it is compiled; filters and methods that take a size
are refused or checked. Semantics are those of transformers' `apply_chat_template`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace

from linnet.text.budget import OverBudget, budget

# Filters that chat templates use and whose cost is linear in what they are given. jinja2's other
# filters (center, batch, wordwrap, pprint, random …) take sizes or have no use here.
_FILTERS = (
    *("abs", "capitalize", "dictsort", "e", "escape", "float", "forceescape", "groupby", "int"),
    *("items", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "safe"),
    *("select", "selectattr", "sort", "title", "trim", "truncate", "unique", "upper", "urlencode"),
)
_CHEAP = ("attr", "count", "d", "default", "first", "last", "length")
# A width or precision of four digits or more, or taken from an argument.
_WIDE_PERCENT = re.compile(r"%(\([^)]*\))?[#0\- +]*(\*|\d{4,}|\d*\.(\*|\d{4,}))")
_WIDE_SPEC = re.compile(r"\d{4,}")
# glibc's strftime knows widths too.
_WIDE_DATE = re.compile(r"%[_\-0^#+]*[1-9]")
_INTEGER_BITS = 4096
_INDENT = 64


class _Generation(Extension):
    """`{% generation %}` marks the model's own words for training; here it means its body."""

    tags = frozenset({"generation"})  # type: ignore[assignment]

    def parse(self, parser: jinja2.parser.Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Compiles templates that run within the budget of `linnet.text.budget.current`."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, loopcontrols],
            finalize=_finalize,
            cache_size=0,
        )
        self.concat = _concat  # type: ignore[method-assign]
        known = self.filters
        self.filters = {name: _measured(known[name]) for name in _FILTERS}
        self.filters |= {name: known[name] for name in _CHEAP}
        self.filters |= {
            "string": _string,
            "sum": _sum,
            "tojson": _tojson,
            "replace": _replace,
            "indent": _sized(known["indent"], "width", _INDENT),
            "round": _sized(known["round"], "precision", 20),
            "join": _join,
            "format": _format,
            "linnet_items": _items,
            "linnet_charge": _charge,
            "linnet_kept": _kept,
            "linnet_text": _text,
        }
        self.globals = {
            "range": _range,
            "dict": _dict,
            "namespace": _Namespace,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for found in tree.find_all((nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)):
            raise jinja2.TemplateSyntaxError("a chat template is one file", found.lineno)
        _rewrite(tree)
        return tree

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        if isinstance(obj, (int, float)) or (isinstance(obj, str) and attr in _REFUSED_METHODS):
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        if super().wrap_str_format(value) is None:
            return None
        text = str(value.__self__)

        def bounded(*args: Any, **kwargs: Any) -> str:
            b = budget()
            fields = text.count("{")
            size = sum(b.weigh(v) for v in (*args, *kwargs.values()))
            b.length(len(text) + fields * (1000 + size))
            return str(_checked(_Formatter(self).vformat(text, args, kwargs)))

        return bounded if value.__name__ == "format" else None

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        b = budget()
        b.charge(1)
        owner, name = getattr(__obj, "__self__", None), getattr(__obj, "__name__", "")
        for v in (*args, *kwargs.values()):
            if not isinstance(v, (str, int)):
                b.weigh(v)
        if isinstance(owner, str):
            b.length(len(owner))
            if name == "replace":
                return _replace(owner, *args, **kwargs)
            if name == "join":
                return _join(args[0] if args else (), owner)
        result = super().call(__context, __obj, *args, **kwargs)
        return _checked(result)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        b = budget()
        b.charge(1)
        sequences = (str, list, tuple, bytes)
        if operator == "*":
            if isinstance(left, sequences) and isinstance(right, int):
                b.length(len(left) * max(right, 0))
            elif isinstance(right, sequences) and isinstance(left, int):
                b.length(len(right) * max(left, 0))
        elif operator == "+" and isinstance(left, sequences) and isinstance(right, sequences):
            b.length(len(left) + len(right))
        elif operator == "%" and isinstance(left, str):
            return _format(left, *(right if isinstance(right, tuple) else (right,)))
        elif operator == "**" and isinstance(left, int) and isinstance(right, int):
            if left.bit_length() * max(right, 1) > _INTEGER_BITS or right < -_INTEGER_BITS:
                raise OverBudget("it computes with a number that is too large")
        return _checked(super().call_binop(context, operator, left, right))


# Methods of `str` that take a size, or make a string of another type.
_REFUSED_METHODS = frozenset(
    {"center", "ljust", "rjust", "zfill", "expandtabs", "translate", "maketrans", "encode"}
    | {"format_map"}
)


class _Formatter(SandboxedFormatter):
    """`str.format` that makes no text out of a width."""

    def format_field(self, value: Any, format_spec: str) -> Any:
        if _WIDE_SPEC.search(format_spec):
            raise OverBudget("a format asks for a width of 1000 or more")
        return super().format_field(value, format_spec)


def _rewrite(tree: nodes.Template) -> None:
    """Adds the counting to a syntax tree, in place."""
    for node in list(tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock, nodes.Concat))):
        if isinstance(node, nodes.For):
            node.iter = _filter(node.iter, "linnet_items", nodes.Const(_size(node.body)))
            if node.recursive:  # `loop(…)` runs the body over items that no filter has seen
                _charge_body(node)
        elif isinstance(node, (nodes.Macro, nodes.CallBlock)):
            _charge_body(node)
        elif isinstance(node, nodes.Concat):
            # `a ~ b`: measured before it is joined.
            node.nodes = [_filter(nodes.List(node.nodes, lineno=node.lineno), "linnet_text")]
    for assign in list(tree.find_all(nodes.Assign)):
        assign.node = _filter(assign.node, "linnet_kept")
    for scope in list(tree.find_all(nodes.With)):
        scope.values = [_filter(v, "linnet_kept") for v in scope.values]
    tree.set_environment(tree.environment)  # type: ignore[arg-type]


def _charge_body(node: nodes.For | nodes.Macro | nodes.CallBlock) -> None:
    charge = _filter(nodes.Const(_size(node.body)), "linnet_charge")
    node.body.insert(0, nodes.ExprStmt(charge, lineno=node.lineno))


def _size(body: list[nodes.Node]) -> int:
    return 1 + sum(1 for n in body for _ in n.find_all(nodes.Node))


def _filter(node: nodes.Node, name: str, *args: nodes.Expr) -> nodes.Filter:
    return nodes.Filter(node, name, list(args), [], None, None, lineno=node.lineno or 1)


# What the rewritten tree calls


def _items(values: Iterable[Any], steps: int) -> Iterable[Any]:
    if isinstance(values, jinja2.Undefined):
        return values  # iterates as nothing, or raises its own error
    return budget().items(values, steps)


def _charge(steps: int) -> str:
    budget().charge(steps)
    return ""


def _kept(value: Any) -> Any:
    """A value that a name is given to."""
    if isinstance(value, (list, tuple, dict)):
        budget().weigh(value)
    return _checked(value)


def _text(values: list[Any]) -> str:
    return _concat(map(_string, values))


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    b = budget()
    b.length(b.weigh(value))
    return str(value)


@jinja2.pass_context
def _finalize(_: Context, value: Any) -> str:
    # With the context asked for, jinja2 folds no output at compile time.
    text = _string(value)
    budget().length(len(text))
    return text


def _concat(parts: Iterable[str]) -> str:
    found, total = [], 0
    b = budget()
    for part in parts:
        total += len(part)
        if total > b.characters:
            b.length(total)
        found.append(part)
    return "".join(found)


def _checked(value: Any) -> Any:
    if isinstance(value, str):
        budget().length(len(value))
    elif isinstance(value, int):
        if value.bit_length() > _INTEGER_BITS:
            raise OverBudget("it computes with a number that is too large")
    elif isinstance(value, (list, tuple, dict)):
        budget().charge(1 + len(value))
    return value


# Filters and globals


def _measured(function: Callable[..., Any]) -> Callable[..., Any]:
    """The filter, charged for what it is given and what it gives."""
    passed = getattr(function, "jinja_pass_arg", None)
    at = 0 if passed is None else 1  # the environment or context comes first

    def measured(*args: Any, **kwargs: Any) -> Any:
        b = budget()
        value = args[at]
        if isinstance(value, str):
            b.length(len(value))
        else:
            b.charge(1 + (len(value) if isinstance(value, (list, tuple, dict)) else 0))
        return _checked(function(*args, **kwargs))

    if passed is not None:
        measured.jinja_pass_arg = passed  # type: ignore[attr-defined]
    return measured


def _sized(function: Callable[..., Any], name: str, most: int) -> Callable[..., Any]:
    """A filter whose first argument is a size."""
    inner = _measured(function)

    def sized(value: Any, size: Any = None, *args: Any, **kwargs: Any) -> Any:
        size = kwargs.pop(name, size)
        if size is not None:
            if (isinstance(size, int) and abs(size) > most) or len(str(size)) > most:
                raise OverBudget(f"{name} is {str(size)[:20]}; at most {most} is allowed")
            kwargs[name] = size
        if isinstance(value, str):
            budget().length(len(value) + most * value.count("\n"))
        return inner(value, *args, **kwargs)

    if getattr(function, "jinja_pass_arg", None) is not None:
        raise TypeError(f"{function} takes the environment")
    return sized


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers writes it: no escapes for HTML."""
    if indent is not None and (not isinstance(indent, int) or not 0 <= indent <= _INDENT):
        raise OverBudget(f"tojson: indent is {indent!r}; expected 0 to {_INDENT}")
    b = budget()
    b.length(b.weigh(value))
    text = json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    return str(_checked(text))


def _replace(value: Any, old: Any = "", new: Any = "", count: Any = None) -> str:
    text, old, new = _string(value), _string(old), _string(new)
    times = text.count(old)
    if isinstance(count, int) and count >= 0:
        times = min(times, count)
    budget().length(max(len(text), len(text) + times * (len(new) - len(old))))
    return text.replace(old, new, times)


def _join(values: Any, d: Any = "", attribute: Any = None) -> str:
    separator = _string(d)
    parts: list[str] = []
    b, total = budget(), 0
    for v in values:
        if attribute is not None:
            v = v.get(attribute, "") if isinstance(v, Mapping) else ""
        part = _string(v)
        total += len(part) + len(separator)
        b.charge(1)
        if total > b.characters:
            b.length(total)
        parts.append(part)
    return str(_checked(separator.join(parts)))


def _format(value: Any, *args: Any, **kwargs: Any) -> str:
    """`"%s" % x`, without widths that make text out of nothing."""
    text = _string(value)
    if _WIDE_PERCENT.search(text):
        raise OverBudget("a format asks for a width of 1000 or more")
    b = budget()
    b.length(len(text) + 1000 * text.count("%"))
    b.length(sum(b.weigh(v) for v in (*args, *kwargs.values())) * max(1, text.count("%(")))
    return str(_checked(text % (kwargs or args)))


def _range(*args: int) -> range:
    values = range(*args)
    if len(values) > 100_000:
        raise OverBudget("range() of more than 100000 numbers")
    return values


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    # A function, not the class: unbound methods of the class would change what they are given.
    return dict(*args, **kwargs)


def _sum(values: Any, attribute: str | None = None, start: float = 0) -> Any:
    if not isinstance(start, (int, float)):
        raise TypeError("sum starts with a number")
    numbers = (v if attribute is None else v[attribute] for v in values)
    for n in numbers:
        budget().charge(1)
        start = _checked(start + n)
    return start


class _Namespace(Namespace):
    """jinja2's namespace; its values are charged where they are set (`linnet_kept`)."""


def _raise_exception(message: object) -> None:
    raise jinja2.exceptions.TemplateError(str(message))


def _strftime_now(format: str) -> str:
    if len(format) > 200 or _WIDE_DATE.search(format):
        raise OverBudget("strftime_now takes a format of at most 200 characters without widths")
    return datetime.now().strftime(format)
