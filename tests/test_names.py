"""Test modules have names of their own: folders without `__init__.py` share one name space."""

from __future__ import annotations

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
