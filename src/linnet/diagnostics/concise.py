"""One line a finding, for `grep` and for editors: `file:line:column: error[E2202]: message`."""

from __future__ import annotations

from linnet.diagnostics.columns import visible
from linnet.diagnostics.diagnostic import Diagnostic


def render(diagnostic: Diagnostic) -> str:
    message = visible(diagnostic.message).replace("\n", " ")
    where = visible(str(diagnostic.span))
    return f"{where}: {diagnostic.severity}[{diagnostic.code}]: {message}"
