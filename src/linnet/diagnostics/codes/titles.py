"""Every code with its short title, in the order of the language reference."""

from __future__ import annotations

TITLES: dict[str, str] = {
    # Text
    "E1001": "bad character",
    "E1002": "unclosed block comment",
    "E1003": "bad string",
    "E1004": "reserved word as a name",
    "E1005": "bad number",
    # Syntax
    "E1101": "unexpected token",
    "E1102": "no `module` first",
    "E1103": "reserved syntax",
    # Names and modules
    "E1201": "unknown name",
    "E1202": "module not found",
    "E1203": "private item",
    "E1204": "item declared twice",
    "E1205": "parameter, generic, field, member or variant declared twice",
    "E1206": "import cycle",
    "E1207": "prelude name redeclared",
    "E1208": "name of the wrong kind",
    "E1209": "module path not allowed",
    # Types
    "E2101": "wrong type",
    "E2102": "wrong arguments",
    "E2103": "dtypes differ",
    "E2104": "operator not defined for the type",
    "E2105": "literal does not fit",
    "E2106": "not callable",
    "E2107": "no such field, member, method or variant",
    "E2108": "assignment to something not assignable",
    "E2109": "assignment changes the type",
    "E2110": "generic cannot be inferred",
    "E2111": "wrong generic arguments",
    "E2112": "dtype constraint not met",
    "E2113": "`none` without a type",
    "E2114": "condition is not `bool`",
    "E2115": "branches differ",
    "E2116": "`&& || !` on a non-scalar",
    "E2117": "pattern cannot match",
    "E2118": "match not exhaustive",
    "E2119": "recursion",
    "E2120": "missing or misplaced `return`",
    "E2121": "loop over something not compile-time",
    "E2122": "definition refers to itself",
    "E2123": "not a compile-time integer",
    # Dimensions
    "E2201": "index with two extents",
    "E2202": "shape differs",
    "E2203": "`reshape` count unproven",
    "E2204": "wrong number of indices",
    "E2205": "divisor not provably positive",
    "E2206": "`where` unproven at a use",
    "E2207": "broadcast unproven",
    "E2208": "negative dimension",
    "E2209": "bad index or slice",
    "E2210": "bad axis or permutation",
    # Index notation
    "E3101": "index neither output nor bound",
    "E3102": "unused reduction index",
    "E3103": "unused output index",
    "E3104": "not valid in index notation",
    "E3105": "index listed twice",
    "E3106": "pack index misuse",
    # Members of blocks
    "E4101": "member with a type it cannot have",
    "E4102": "`param` with a value",
    # Packages
    "E5001": "manifest unreadable",
    # Warnings
    "W1001": "unused import",
    "W1002": "unused local",
    "W1003": "unused member",
    # Of `linnet lint`
    "W2001": "slow definition",
    "W2002": "name unlike others of its kind",
    "W2003": "variable that never varies",
    "W2004": "needless cast",
}
