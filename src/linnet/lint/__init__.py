"""What is correct and could be better: names, needless words, and index notation that is slow.

Findings are warnings with codes from W2001 on. A comment `// lint: allow` on the line of a
finding, or alone on the line before it, silences it.
"""

from __future__ import annotations

from linnet.check.checker import check_package
from linnet.diagnostics.diagnostic import Diagnostic
from linnet.package import Package
from linnet.source import Span

ALLOW = "// lint: allow"


def lint_package(package: Package) -> list[Diagnostic]:
    """Everything found in a package's own modules: errors alone where there are any, else
    the checker's warnings and those of lint."""
    from linnet.lint.slow import slow_definitions
    from linnet.lint.style import style

    checked = check_package(package)
    if checked.program is None:
        return checked.diagnostics
    modules = package.loaded()
    own = {id(module.source) for module in modules}
    found = [*slow_definitions(checked.program, own)]
    for module in modules:
        found += style(module.tree, checked.program)
    found = [one for one in found if not allowed(one.span)]
    found += checked.diagnostics
    return sorted(found, key=lambda one: (one.span.source.path, one.span.start, one.code))


def allowed(span: Span) -> bool:
    """Whether the source asks for silence here."""
    line = span.source.position(span.start)[0]
    if ALLOW in span.source.line(line):
        return True
    return line > 1 and span.source.line(line - 1).strip().startswith(ALLOW)
