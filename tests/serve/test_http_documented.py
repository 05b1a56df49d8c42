"""The Python of `docs/serving.md`, as it stands there, against a server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from http_fakes import ScriptedEngine, served

pytest.importorskip("openai")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "serving.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.S | re.M)
CALL = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n</function>\n"
    "</tool_call>"
)


def script(prompt: str) -> str:
    last = prompt.rpartition("<|im_start|>user\n")[2]
    answers = {"rivers": "Aare, Inn.", "city": '{"name": "Bern", "people": 144}', "rain": CALL}
    return "</think>\n\n" + next(answer for word, answer in answers.items() if word in last)


def test_what_the_page_shows_runs() -> None:
    with served(ScriptedEngine(script)) as server:
        program = "".join(BLOCKS).replace("http://127.0.0.1:8000", server.url)
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 0, done.stderr[-2000:]
    rivers, city, called = done.stdout.splitlines()
    assert rivers == "Aare, Inn." and city == '{"name": "Bern", "people": 144}'
    assert "name='weather'" in called and "Bern" in called
