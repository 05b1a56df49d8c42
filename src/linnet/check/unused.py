"""Warnings for what is declared and never used. Names that begin with `_` are exempt."""

from __future__ import annotations

from linnet.check.declare import BlockDecl, FunctionDecl
from linnet.check.modules import ModuleScope
from linnet.check.report import Reporter
from linnet.syntax import tree


def warn_unused(report: Reporter, scope: ModuleScope) -> None:
    for name, found in scope.imports.items():
        if not found.used and not name.startswith("_"):
            report.warning("W1001", found.span, f"`{name}` is imported and never used")
    for decl in scope.items.values():
        if not isinstance(decl, BlockDecl):
            continue
        for name, member in decl.members.items():
            if not member.used and not name.startswith("_"):
                report.warning("W1003", member.node.name.span, f"member `{name}` is never used")
        for name, method in decl.methods.items():
            private = isinstance(method.node, tree.Function) and not method.public
            if private and method.kind == "fn" and not method.used and not name.startswith("_"):
                report.warning("W1003", method.span, f"method `{name}` is private and never used")


__all__ = ["FunctionDecl", "warn_unused"]
