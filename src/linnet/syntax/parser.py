"""Tokens to a tree: recursive descent that reports every error once and goes on.

The rules are spread over one file a construct, each a class on top of the one
before: `cursor`, `parse_expr`, `parse_type`, `parse_stmt`, `parse_item`.

What stands in the tree after an error:

- a right side, condition or clause that cannot be parsed is an `ErrorExpr`;
- a type that cannot be parsed is an `ErrorType`;
- a statement that declares nothing certain is an `ErrorStmt`: a body that holds one
  may lack names and a `return`;
- a function whose header cannot be parsed has an `ErrorType` as its result and one
  `ErrorStmt` as its body; its parameters may be incomplete;
- a block whose header cannot be parsed has an `ErrorExpr` among its `where` clauses.
"""

from __future__ import annotations

from linnet.diagnostics.diagnostic import Diagnostic
from linnet.source import Source
from linnet.syntax.lexer import tokenize
from linnet.syntax.parse_item import ItemParser
from linnet.syntax.tree import Tree


def parse(source: Source) -> tuple[Tree, list[Diagnostic]]:
    """The tree of a file and E1001 … E1103, in the order of the text. Never raises."""
    tokens, problems = tokenize(source)
    parser = ItemParser(source, tokens, problems)
    file = parser.file()
    problems.sort(key=lambda problem: problem.span.start)
    return Tree(source, tokens, file), problems
