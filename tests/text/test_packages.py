"""What text needs is imported when it is used, and missed with a way out."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from linnet.errors import how_to_install
from linnet.text.errors import TextError, require


def test_a_missing_package_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(TextError, match=re.escape(how_to_install("text"))):
        require("jinja2")


def test_the_package_itself_imports_nothing_heavy() -> None:
    code = (
        "import sys, linnet.text, linnet.cli.generate, linnet.cli.chat;"
        "print([m for m in ('torch', 'tokenizers', 'jinja2', 'transformers') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
