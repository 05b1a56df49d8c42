"""Compile-time integers: expressions that stand for dimensions, and `where` clauses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from linnet.check.declare import ConstDecl, Decl, ModuleAlias
from linnet.check.modules import PRELUDE, Import
from linnet.check.report import Reporter, did_you_mean
from linnet.diagnostics.diagnostic import Label
from linnet.dims import Dim, DimTooLarge, Fact, Facts, Proof
from linnet.ir.program import Generic
from linnet.record import dataclass
from linnet.source import Span
from linnet.syntax import tree

if TYPE_CHECKING:
    from linnet.check.checker import Checker
    from linnet.check.modules import ModuleScope

# The prover's time grows with the assumptions; real items state a handful.
MAX_CLAUSES = 100
COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(eq=False, slots=True)
class Scope:
    """What dimension and type expressions can see: generics, the module, known facts."""

    checker: Checker
    module: ModuleScope
    generics: dict[str, Generic]
    facts: Facts
    # While `where` clauses are read, divisors are checked once all clauses are known.
    divisors: list[tuple[Dim, Span]] | None = None
    # Where a value of that name was declared, for dimensions written inside a body.
    value_at: Callable[[str], Span | None] = lambda name: None

    @property
    def report(self) -> Reporter:
        return self.checker.reporter

    def generic_names(self, *kinds: str) -> list[str]:
        return [g.name for g in self.generics.values() if not kinds or g.kind in kinds]


def dimension(scope: Scope, node: tree.Expr) -> Dim | None:
    """The value of a compile-time integer expression; None after an error was reported."""
    try:
        return _dimension(scope, node)
    except DimTooLarge:
        scope.report.error(
            "E2123", node.span, "this dimension expression is too large to reason about"
        )
        return None


def _dimension(scope: Scope, node: tree.Expr) -> Dim | None:
    match node:
        case tree.IntLit(value=value):
            return Dim.const(value)
        case tree.Paren(inner=inner):
            return _dimension(scope, inner)
        case tree.Name(text=text):
            return _named(scope, node, text)
        case tree.Member(object=tree.Name(text=module), name=name):
            found = None if scope.value_at(module) else scope.module.lookup(module)
            if isinstance(found, (Import, ModuleAlias)):
                target = scope.checker.through_alias(found, name, node.span)
                if isinstance(target, ConstDecl):
                    return _constant(scope, target, node.span)
                if target is None:
                    return None
        case tree.Unary(op="-" | "+" as op, operand=operand):
            inner_dim = _dimension(scope, operand)
            return (
                None
                if inner_dim is None
                else (Dim.const(0) - inner_dim if op == "-" else inner_dim)
            )
        case tree.Binary(op="+" | "-" | "*" | "/" | "%" as op, left=left, right=right):
            a, b = _dimension(scope, left), _dimension(scope, right)
            if a is None or b is None:
                return None
            return arithmetic(scope, op, a, b, right.span)
        case tree.Binary(op="&" | "|" | "^" as op, left=left, right=right):
            a, b = _dimension(scope, left), _dimension(scope, right)
            if a is None or b is None:
                return None
            return bitwise(scope, op, a, b, node.span)
        case tree.Call(callee=tree.Name(text="min" | "max" | "shl" | "shr" as name), generics=None):
            parts = [_dimension(scope, argument.value) for argument in node.arguments]
            if any(part is None for part in parts):
                return None
            if len(parts) != 2:
                scope.report.error("E2102", node.span, f"`{name}` takes two arguments")
                return None
            a, b = parts[0], parts[1]
            assert a is not None and b is not None
            if name in ("shl", "shr"):
                return bitwise(scope, name, a, b, node.span)
            return Dim.min(a, b) if name == "min" else Dim.max(a, b)
        case tree.ErrorExpr():
            return None
    scope.report.error(
        "E2123",
        node.span,
        "expected a compile-time integer",
        help="integers, `Dim` generics, integer consts, `+ - * / %`, `min` and `max` are allowed",
    )
    return None


def arithmetic(scope: Scope, op: str, a: Dim, b: Dim, divisor: Span) -> Dim | None:
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
    if scope.divisors is not None:
        if b.constant is None or b.constant <= 0:
            scope.divisors.append((b, divisor))
    elif not positive(scope, b, divisor):
        return None
    if b.constant == 0:
        return None
    return a // b if op == "/" else a % b


def bitwise(scope: Scope, op: str, a: Dim, b: Dim, span: Span) -> Dim | None:
    x, y = a.constant, b.constant
    if x is None or y is None:
        scope.report.error("E2123", span, f"`{op}` needs constants on both sides here")
        return None
    if op in ("shl", "shr") and not 0 <= y < 64:
        scope.report.error("E2105", span, f"a shift by {y} is not between 0 and 63")
        return None
    value = {
        "&": lambda: x & y,
        "|": lambda: x | y,
        "^": lambda: x ^ y,
        "shl": lambda: x << y,
        "shr": lambda: x >> y,
    }[op]()
    return Dim.const(value)


def positive(scope: Scope, divisor: Dim, span: Span) -> bool:
    proof = scope.facts.prove(Fact(">", divisor, Dim.const(0)))
    if proof.answer == "proven":
        return True
    witness = witness_text(proof.witness) if proof.answer == "refuted" else ""
    scope.report.error(
        "E2205",
        span,
        f"divisor `{divisor}` is not provably positive",
        f"may be zero{witness}",
        help=f"add `where {divisor} > 0`" if divisor.constant is None else None,
    )
    return False


def clause_help(facts: Facts, proof: Proof, where: str = "") -> str | None:
    """The `where` clause that would prove a goal, unless it would leave only empty tensors."""
    fact = proof.missing
    if fact is None or (fact.op == "==" and _vanish(fact.left, fact.right)):
        return None
    if fact.left.constant is not None and fact.right.constant is None:
        fact = Fact(_MIRRORED.get(fact.op, fact.op), fact.right, fact.left)
    return f"if it must hold, add `where {fact}`{where}"


def _vanish(a: Dim, b: Dim) -> bool:
    """Whether `a == b` says that sizes are 0; `N % 2 == 0` says no such thing."""
    rest = b if a.constant == 0 else a if b.constant == 0 else None
    return rest is not None and all(atom.kind == "name" for atom in rest.atoms())


def proof_notes(facts: Facts, goal: Fact, proof: Proof) -> list[str]:
    """What is known of a goal that is not proven: where it fails, or what is left to prove."""
    if proof.answer == "refuted":
        return [f"`{goal}` is false{witness_text(proof.witness)}"]
    notes = [f"`{goal}` is needed"]
    if proof.residual and proof.residual != str(goal):
        notes.append(f"what is left to prove: `{proof.residual}`")
    names = goal.names()
    notes += [
        f"`{fact}` is stated, in a form that the prover cannot use"
        for fact in facts.unused
        if not names.isdisjoint(fact.names())
    ]
    return notes


def witness_text(witness: dict[str, int] | None) -> str:
    if not witness:
        return ""
    shown = ", ".join(f"{name} = {value}" for name, value in sorted(witness.items()))
    return f", for example at {shown}"


def _named(scope: Scope, node: tree.Expr, text: str) -> Dim | None:
    generic = scope.generics.get(text)
    if generic is not None:
        if generic.kind == "Dim":
            return Dim.name(text)
        scope.report.error(
            "E1208", node.span, f"`{text}` is a {kind_text(generic)}, not a dimension"
        )
        return None
    declared = scope.value_at(text)
    if declared is not None:
        scope.report.error(
            "E2123",
            node.span,
            f"`{text}` is a value, and here a compile-time integer is expected",
            related=[Label(declared, "declared here")],
            help="sizes are `Dim` generics, integer consts and arithmetic on them",
        )
        return None
    found = scope.module.lookup(text)
    if isinstance(found, ConstDecl):
        return _constant(scope, found, node.span)
    if isinstance(found, Import):
        return None
    if found is None and text in PRELUDE:
        scope.report.error("E2123", node.span, f"`{text}` is not a compile-time integer")
        return None
    if found is None:
        near = did_you_mean(text, [*scope.generic_names("Dim"), *scope.module.names()])
        help = near or f"a size that varies is declared as a generic: `<{text}: Dim>`"
        scope.report.error("E1201", node.span, f"unknown name `{text}`", help=help)
        return None
    scope.report.error("E2123", node.span, f"`{text}` is not a compile-time integer")
    return None


def _constant(scope: Scope, decl: Decl, span: Span) -> Dim | None:
    assert isinstance(decl, ConstDecl)
    scope.checker.signature(decl)
    if decl.failed:
        return None
    if decl.dim is None:
        scope.report.error(
            "E2123",
            span,
            f"`{decl.name}` is not an integer constant",
            related=[Label(decl.span, "declared here")],
        )
    return decl.dim


def kind_text(generic: Generic) -> str:
    return {"Dim": "dimension", "Shape": "shape pack"}.get(generic.kind, "dtype")


def where_facts(scope: Scope, clauses: list[tree.Expr]) -> tuple[list[Fact], list[Span]]:
    """The clauses as facts. Their own divisors are proven from all of them together."""
    facts: list[Fact] = []
    spans: list[Span] = []
    if len(clauses) > MAX_CLAUSES:
        scope.report.error(
            "E2101", clauses[MAX_CLAUSES].span, f"more than {MAX_CLAUSES} `where` clauses"
        )
        clauses = clauses[:MAX_CLAUSES]
    scope.divisors = []
    plain: list[Fact] = []
    for clause in clauses:
        node = clause
        while isinstance(node, tree.Paren):
            node = node.inner
        if isinstance(node, tree.ErrorExpr):
            continue
        if not isinstance(node, tree.Binary) or node.op not in COMPARISONS:
            scope.report.error(
                "E2101",
                clause.span,
                "a `where` clause compares two dimension expressions",
                help="write `A == B`, `A % B == 0`, `A > 0` …, several separated by commas",
            )
            continue
        before = len(scope.divisors)
        left, right = dimension(scope, node.left), dimension(scope, node.right)
        if left is None or right is None:
            continue
        fact = Fact(node.op, left, right)
        facts.append(fact)
        spans.append(clause.span)
        if len(scope.divisors) == before:
            plain.append(fact)
    divisors, scope.divisors = scope.divisors, None
    if divisors:
        # First from clauses that divide nothing, so that `N % D == 0` cannot stand for `D > 0`.
        saved, scope.facts = scope.facts, scope.facts.extend(plain)
        for divisor, span in divisors:
            positive(scope, divisor, span)
        scope.facts = saved
    return facts, spans
