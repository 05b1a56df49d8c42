"""The top of the checker: modules in, a program and its findings out."""

from __future__ import annotations

from collections.abc import Callable

from linnet.check.declare import (
    BlockDecl,
    Decl,
    FunctionDecl,
    MemberDecl,
    ModuleAlias,
)
from linnet.check.dimensions import Scope, clause_help, proof_notes, witness_text
from linnet.check.modules import Import, Modules, ModuleScope
from linnet.check.report import Reporter, TooManyErrors, did_you_mean
from linnet.check.signatures import members_of, resolve_signature
from linnet.check.typing import refuse_negative
from linnet.diagnostics.diagnostic import Diagnostic, Label
from linnet.dims import DimTooLarge, Fact, Facts
from linnet.ir.program import Block, Function, Member, Program
from linnet.ir.types import BlockRef, Substitution, Type, substitute, substitute_dim
from linnet.package import Package
from linnet.record import dataclass, field
from linnet.source import Span
from linnet.syntax import tree

Known = Callable[[Package, str], bool]


@dataclass(slots=True)
class Checked:
    """`program` is None where there are errors."""

    program: Program | None
    diagnostics: list[Diagnostic]
    # Functions of other packages whose bodies were proven, by package.
    proven: dict[Package, list[str]] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.program is not None


class Checker:
    def __init__(self, package: Package, known: Known | None = None):
        self.package = package
        self.known = known
        self.reporter = Reporter()
        self.modules = Modules(self.reporter)
        self.program = Program({}, {}, package.key)
        self.blocks: dict[str, BlockDecl] = {}
        # Warnings wait: they appear only when there are no errors.
        self.warnings: list[tuple[str, Span, str, str]] = []
        self._queue: list[FunctionDecl] = []
        self.proven: dict[Package, list[str]] = {}
        self._queued: set[int] = set()
        self._blocks_done: set[str] = set()
        self._depth = 0  # of signatures being resolved within one another

    # --- declarations ------------------------------------------------------

    def signature(self, decl: Decl) -> None:
        if decl.state != "done":
            self._depth += 1
            try:
                resolve_signature(self, decl)
            except DimTooLarge:
                decl.give_up()
                self.reporter.error(
                    "E2123", decl.span, "a dimension here is too large to reason about"
                )
            except RecursionError:
                decl.give_up()
                if self._depth > 1:
                    raise
                self.reporter.error(
                    "E2122",
                    decl.span,
                    f"`{decl.name}` needs too long a row of definitions that need one another",
                    help="declare first what is needed first",
                )
            finally:
                self._depth -= 1
            if isinstance(decl, BlockDecl):
                self.blocks[decl.id] = decl

    def members(self, decl: BlockDecl) -> dict[str, MemberDecl]:
        return members_of(self, decl)

    def block(self, ref: BlockRef) -> BlockDecl:
        return self.blocks[ref.id]

    def through_alias(
        self, found: Decl | ModuleAlias | Import | None, name: tree.Ident, span: Span
    ) -> Decl | ModuleAlias | None:
        """`module.name` for an imported module; reports and gives None if it isn't there."""
        if isinstance(found, Import):
            return None
        if found is None:
            self.reporter.error("E1201", span, f"unknown name `{span.text}`")
            return None
        if not isinstance(found, ModuleAlias):
            self.reporter.error("E1208", span, "only a module has items behind a dot here")
            return None
        decl = found.module.items.get(name.text)
        if decl is None:
            public = [n for n, d in found.module.items.items() if d.public]
            self.reporter.error(
                "E1201",
                name.span,
                f"`{found.module.id}` has no item `{name.text}`",
                help=did_you_mean(name.text, public),
            )
            return None
        if not decl.public:
            self.reporter.error(
                "E1203",
                name.span,
                f"`{name.text}` is private to `{found.module.id}`",
                related=[Label(decl.span, "declared here without `pub`")],
            )
        decl.used = True
        return decl

    def reach(self, decl: FunctionDecl) -> None:
        """Have a function's body checked and put into the program."""
        if id(decl) not in self._queued:
            self._queued.add(id(decl))
            owner = decl.module.package
            if owner is not self.package:
                if self.known is not None and self.known(owner, decl.id):
                    return
                self.proven.setdefault(owner, []).append(decl.id)
            self._queue.append(decl)

    def obligations(self, scope: Scope, ref: BlockRef, span: Span) -> None:
        """Prove a block's `where` clauses where it is named."""
        decl = self.blocks[ref.id]
        self.prove_where(
            scope, decl, {g.name: a for g, a in zip(decl.generics, ref.generics, strict=True)}, span
        )

    def prove_where(
        self, scope: Scope, decl: BlockDecl | FunctionDecl, mapping: Substitution, span: Span
    ) -> bool:
        fine = True
        facts = scope.facts
        for fact, clause in zip(decl.where, decl.where_spans, strict=True):
            if not _divisible(fact, mapping):
                continue  # the clause that its divisor is positive fails as well
            goal = Fact(
                fact.op, substitute_dim(fact.left, mapping), substitute_dim(fact.right, mapping)
            )
            proof = facts.prove(goal)
            if proof.answer == "proven":
                continue
            fine = False
            # What follows from a clause that fails is not reported besides.
            if goal.names() and not (assumed := facts.extend([goal])).contradictory:
                facts = assumed
            bound = [
                f"{name} = {mapping[name]}"
                for name in sorted(fact.names())
                if name in mapping and str(mapping[name]) != name
            ]
            here = f" with {', '.join(bound)}" if bound else ""
            if proof.answer != "refuted":
                what = f"cannot be proven{here}"
            elif goal.names():
                what = f"does not follow{here}{witness_text(proof.witness)}"
            else:
                what = f"is false{here}"
            self.reporter.error(
                "E2206",
                span,
                f"`{decl.name}` requires `{fact}`, which {what}",
                related=[Label(clause, "required here")],
                notes=proof_notes(facts, goal, proof)[1:],
                help=clause_help(scope.facts, proof, " to what encloses this"),
            )
        return fine

    # --- the run --------------------------------------------------------------

    def run(self) -> Checked:
        try:
            self._run()
        except TooManyErrors:
            pass
        diagnostics = sorted(
            self.reporter.diagnostics, key=lambda d: (d.span.source.path, d.span.start)
        )
        if diagnostics:
            from linnet.check.fixes import attach

            attach(self, diagnostics)
        if self.reporter.errors:
            return Checked(None, diagnostics)
        self.program.sources = tuple(
            (module.id, module.source)
            for owner in self.package.with_dependencies()
            for module in owner.loaded()
        )
        return Checked(self.program, diagnostics, self.proven)

    def _run(self) -> None:
        from linnet.check.recursion import check_recursion
        from linnet.check.unused import warn_unused

        scopes = []
        for path in self.package.module_paths():
            file = self.package.load(path)
            if file is not None:
                scopes.append(self.modules.open(file))
        for scope in scopes:
            self._check_module(scope)
        self._drain()
        if not self.reporter.errors:
            check_recursion(self)
        if self.reporter.errors:
            return
        for scope in scopes:
            warn_unused(self.reporter, scope)
        own = {id(scope.file.tree.source) for scope in scopes}
        for code, span, message, help in self.warnings:
            if id(span.source) in own:
                self.reporter.warning(code, span, message, help)

    def _check_module(self, scope: ModuleScope) -> None:
        for decl in scope.items.values():
            self.signature(decl)
            if isinstance(decl, FunctionDecl):
                self.reach(decl)
            elif isinstance(decl, BlockDecl):
                self.declare_block(decl)
                for method in decl.methods.values():
                    self.reach(method)

    def declare_block(self, decl: BlockDecl) -> None:
        """The block and those below it, into the program."""
        waiting = [decl]
        while waiting:
            decl = waiting.pop()
            if decl.id in self._blocks_done:
                continue
            self._blocks_done.add(decl.id)
            members = self.members(decl)
            self.program.blocks[decl.id] = Block(
                decl.id,
                decl.generics,
                decl.where,
                {
                    name: Member(
                        name, m.kind, m.type, m.length, m.optional, m.node.span, m.node.doc
                    )
                    for name, m in members.items()
                },
                {name: method.id for name, method in decl.methods.items()},
                decl.public,
                decl.span,
                decl.node.doc,
            )
            self._refuse_negative(decl, members)
            below = [m.type for m in members.values() if isinstance(m.type, BlockRef)]
            waiting += [self.blocks[ref.id] for ref in reversed(below)]

    def _refuse_negative(self, decl: BlockDecl, members: dict[str, MemberDecl]) -> None:
        """Parameters of the blocks named in `sub`s, with the generics given there."""
        scope = None
        for member in members.values():
            if not isinstance(member.type, BlockRef) or not member.type.generics:
                continue
            scope = scope or Scope(
                self, decl.module, {g.name: g for g in decl.generics}, decl.facts or Facts()
            )
            inner = self.blocks[member.type.id]
            mapping = {g.name: a for g, a in zip(inner.generics, member.type.generics)}
            for name, part in self.members(inner).items():
                if isinstance(part.type, Type):
                    type = substitute(part.type, mapping)
                    what = f"in `{inner.name}.{name}` the dimension"
                    if refuse_negative(scope, type, member.node.type.span, what):
                        break

    def _drain(self) -> None:
        from linnet.check.body import check_body

        for decl in self._queue:  # which grows on the way
            self.signature(decl)
            if decl.block is not None:
                self.declare_block(decl.block)
            try:
                region = check_body(self, decl)
            except DimTooLarge:
                self.reporter.error(
                    "E2123",
                    decl.span,
                    f"a dimension in the body of `{decl.name}` is too large to reason about",
                )
                continue
            if region is None or decl.result is None:
                continue
            self.program.functions[decl.id] = Function(
                decl.id,
                decl.kind,
                decl.block.id if decl.block else None,
                decl.generics,
                decl.where,
                [(p.name, p.type) for p in decl.params],
                decl.result,
                region,
                decl.public,
                decl.span,
                decl.node.doc,
            )


def _divisible(fact: Fact, mapping: Substitution) -> bool:
    """Whether no divisor in a clause has become 0."""
    waiting = [fact.left, fact.right]
    while waiting:
        for atom in waiting.pop().atoms():
            waiting += atom.args
            if atom.kind == "floor" and substitute_dim(atom.args[1], mapping).constant == 0:
                return False
    return True


def check_package(package: Package, known: Known | None = None) -> Checked:
    """Check every module of a package and all that they reach.

    `known(owner, function)` may tell of functions of other packages that their bodies have been
    proven before; those are left out of the program, which is then good for its findings only.
    """
    return Checker(package, known).run()
