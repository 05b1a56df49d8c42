"""Modules and what their names mean: items, imports, visibility."""

from __future__ import annotations

import re

from linnet.check.declare import (
    AliasDecl,
    BlockDecl,
    ConstDecl,
    Decl,
    EnumDecl,
    FunctionDecl,
    ModuleAlias,
    StructDecl,
)
from linnet.check.report import Reporter, did_you_mean, near
from linnet.diagnostics.diagnostic import Label
from linnet.ir.types import DTYPES
from linnet.package import ModuleFile, Package, resolve, siblings
from linnet.record import dataclass, field
from linnet.source import Span
from linnet.syntax import tree

PRELUDE_FUNCTIONS = frozenset(
    [
        "cast",
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "tanh",
        "abs",
        "min",
        "max",
        "shl",
        "shr",
        "select",
        "reshape",
        "permute",
        "broadcast_to",
        "concat",
        "iota",
        "fill",
        "cumsum",
    ]
)
RESERVED_FUNCTIONS = frozenset({"pad", "gather", "scatter"})
PRELUDE_TYPES = DTYPES | {"Tensor"}
PRELUDE = PRELUDE_FUNCTIONS | RESERVED_FUNCTIONS | PRELUDE_TYPES


@dataclass(eq=False, slots=True)
class Import:
    node: tree.UseName | tree.Use
    target: Decl | ModuleAlias | None  # None: an error was reported
    span: Span
    used: bool = False


@dataclass(eq=False, slots=True)
class ModuleScope:
    file: ModuleFile
    items: dict[str, Decl] = field(default_factory=dict)
    imports: dict[str, Import] = field(default_factory=dict)
    # The modules that it imports from, by the `use` that says so.
    targets: list[tuple[tree.Use, ModuleScope]] = field(default_factory=list)

    @property
    def id(self) -> str:
        return self.file.id

    @property
    def package(self) -> Package:
        return self.file.package

    def names(self) -> list[str]:
        return [*self.items, *self.imports]

    def lookup(self, name: str) -> Decl | ModuleAlias | Import | None:
        """An item, an imported one, or the failed import of that name."""
        if (decl := self.items.get(name)) is not None:
            decl.used = True
            return decl
        if (found := self.imports.get(name)) is not None:
            found.used = True
            if found.target is None:
                return found
            found.target.used = True
            return found.target
        return None


_KINDS: dict[type, type[Decl]] = {
    tree.Const: ConstDecl,
    tree.TypeAlias: AliasDecl,
    tree.Struct: StructDecl,
    tree.Enum: EnumDecl,
    tree.Function: FunctionDecl,
    tree.Block: BlockDecl,
}


# What a declaration looks like, in text that could not be parsed.
_DECLARED = re.compile(r"\b(?:const|type|struct|enum|fn|op|entry|block)\s+([A-Za-z_]\w*)", re.ASCII)


class Modules:
    """All modules reached in one check, loaded and linked once each."""

    def __init__(self, reporter: Reporter):
        self.reporter = reporter
        self.scopes: dict[str, ModuleScope] = {}

    def open(self, file: ModuleFile) -> ModuleScope:
        """A module and all that it imports: items are declared first, then linked."""
        if (scope := self.scopes.get(file.id)) is not None:
            return scope
        scope = self._read(file)
        new = [scope]
        for current in new:
            for use in current.file.tree.file.uses:
                target = resolve(current.package, [ident.text for ident in use.path])
                if target is None:
                    continue
                known = self.scopes.get(target.id)
                if known is None:
                    known = self._read(target)
                    new.append(known)
                current.targets.append((use, known))
        for current in new:
            for use in current.file.tree.file.uses:
                self._link(current, use)
        self._refuse_cycles(new)
        return scope

    def _read(self, file: ModuleFile) -> ModuleScope:
        scope = self.scopes[file.id] = ModuleScope(file)
        self.reporter.adopt(file.diagnostics)
        for diagnostic in file.diagnostics:
            self._tear(file.tree.file, diagnostic.span)
        for item in file.tree.file.items:
            self._declare(scope, item)
        if file.diagnostics:
            declared = {match[1] for match in _DECLARED.finditer(file.source.text)}
            self.reporter.lost[id(file.source)] = declared - {*scope.items}
        self._check_path(scope)
        return scope

    def _refuse_cycles(self, scopes: list[ModuleScope]) -> None:
        done: set[str] = set()
        for start in scopes:
            if start.id in done:
                continue
            path = [start]
            waiting = [iter(start.targets)]
            while waiting:
                use, target = next(waiting[-1], (None, None))
                if use is None or target is None:
                    waiting.pop()
                    done.add(path.pop().id)
                elif target is path[-1]:
                    self.reporter.error("E1206", use.span, "a module cannot import from itself")
                elif target in path:
                    names = [s.id for s in path[path.index(target) :]]
                    if len(names) > 6:
                        names[3:-2] = ["…"]
                    self.reporter.error(
                        "E1206",
                        use.span,
                        f"import cycle: {' → '.join([*names, target.id])}",
                        help="move what both need into a module of its own",
                    )
                elif target.id not in done:
                    path.append(target)
                    waiting.append(iter(target.targets))

    def _tear(self, file: tree.File, span: Span) -> None:
        """Mark the smallest function or item around a syntax error."""
        for item in file.items:
            if item.span.start <= span.start <= item.span.end:
                inner = item.functions if isinstance(item, tree.Block) else []
                around = [f for f in inner if f.span.start <= span.start <= f.span.end]
                self.reporter.torn.append(around[0].span if around else item.span)

    def _check_path(self, scope: ModuleScope) -> None:
        module = scope.file.tree.file.module
        if module is None:
            return
        for name in module.path[:1]:
            if name.text == "std" and scope.package.key != "std":
                self.reporter.error(
                    "E1209",
                    module.span,
                    "only the standard library may name its modules `std…`",
                    help="choose another first name; the path need not repeat the package's name",
                )

    def _declare(self, scope: ModuleScope, item: tree.Item) -> None:
        name = item.name.text
        if name in PRELUDE:
            self.reporter.error(
                "E1207", item.name.span, f"`{name}` is a prelude name and cannot be redeclared"
            )
            return
        if (earlier := scope.items.get(name)) is not None:
            self.reporter.error(
                "E1204",
                item.name.span,
                f"`{name}` is declared twice in this module",
                related=[Label(earlier.span, "first declared here")],
            )
            return
        decl = _KINDS[type(item)](name, scope, item, item.public)
        if isinstance(decl, FunctionDecl):
            assert isinstance(item, tree.Function)
            decl.kind = item.kind
        scope.items[name] = decl

    def _link(self, scope: ModuleScope, use: tree.Use) -> None:
        path = [ident.text for ident in use.path]
        shown = ".".join(path)
        file = resolve(scope.package, path)
        names = use.names
        if file is None:
            if names is None and len(path) > 1 and resolve(scope.package, path[:-1]):
                help = f"to import an item: `use {'.'.join(path[:-1])}::{{{path[-1]}}}`"
            elif path[0] not in ("std", "crate", *scope.package.dependencies):
                roots = ["std", "crate", *scope.package.dependencies]
                help = did_you_mean(path[0], roots) or (
                    "a path starts with `std`, `crate` or a key of [dependencies]"
                )
            else:
                meant = near(path[-1], siblings(scope.package, path))
                help = (
                    f"did you mean `{'.'.join([*path[:-1], meant])}`?"
                    if meant
                    else f"there is no file for it; `{path[0]}` has no such module"
                )
            self.reporter.error("E1202", use.span, f"module `{shown}` not found", help=help)
            for entry in names or []:
                local = entry.local
                scope.imports[local.text] = Import(entry, None, local.span)
            if names is None:
                scope.imports[path[-1]] = Import(use, None, use.span)
            return
        if file.id == scope.id:
            return  # reported as a cycle
        target = self.scopes[file.id]
        if names is None:
            alias = ModuleAlias(path[-1], target, use.span)
            self._import(scope, path[-1], Import(use, alias, use.path[-1].span))
            return
        for entry in names:
            self._import_name(scope, target, entry)

    def _import_name(self, scope: ModuleScope, target: ModuleScope, entry: tree.UseName) -> None:
        name = entry.name.text
        decl = target.items.get(name)
        if decl is None and target.file.diagnostics:
            pass  # it may stand in what could not be parsed
        elif decl is None:
            uses = target.file.tree.file.uses
            imported = any(name == e.local.text for use in uses for e in use.names or [])
            help = did_you_mean(name, [n for n, d in target.items.items() if d.public])
            if imported:
                help = f"`{target.id}` only imports it; import it from where it is declared"
            self.reporter.error(
                "E1201", entry.name.span, f"`{target.id}` has no item `{name}`", help=help
            )
        elif not decl.public and target is not scope:
            self.reporter.error(
                "E1203",
                entry.name.span,
                f"`{name}` is private to `{target.id}`",
                related=[Label(decl.span, "declared here without `pub`")],
                help=f"write `pub` before the declaration of `{name}`",
            )
        self._import(scope, entry.local.text, Import(entry, decl, entry.local.span))

    def _import(self, scope: ModuleScope, local: str, found: Import) -> None:
        if local in PRELUDE:
            self.reporter.error(
                "E1207",
                found.span,
                f"`{local}` is a prelude name and cannot be redeclared",
                help="import it under another name with `as`",
            )
            return
        earlier = scope.items.get(local) or scope.imports.get(local)
        if earlier is not None:
            self.reporter.error(
                "E1204",
                found.span,
                f"`{local}` is declared twice in this module",
                related=[Label(earlier.span, "first declared here")],
                help="import it under another name with `as`",
            )
            return
        scope.imports[local] = found
