"""Test modules have names of their own: folders without `__init__.py` share one name space."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent


def test_no_two_modules_have_one_name() -> None:
    names = Counter(
        path.name
        for path in HERE.rglob("*.py")
        if path.name != "conftest.py" and not (path.parent / "__init__.py").exists()
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_none_imports_a_conftest() -> None:
    """Which folder's it would be depends on which tests are run together."""
    imports = re.compile(r"^\s*(from|import) conftest\b", re.MULTILINE)
    assert [str(p) for p in HERE.rglob("*.py") if imports.search(p.read_text("utf-8"))] == []
