"""The chat page in headless Chromium, over a scripted engine."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_fakes import ScriptedEngine, Served, served, until

from linnet.serve.http.page import FILES, POLICY

sync_api = pytest.importorskip("playwright.sync_api")

BROWSER = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
ANSWER = """The question is about code.
I think of `<b>`.
</think>

Use `len(x)` & <b>no tags</b>:

```python
def size(x: list[int]) -> int:
    return len(x)  # <script>document.title = "wrong"</script>
```

## All of it

- **One** point
  1. and one of `its` own

2 * 3 ** 2 is all."""


def script(prompt: str) -> str:
    last = prompt.rpartition("<|im_start|>user\n")[2]
    if last.startswith("long"):
        return "</think>\n\n" + "word " * 3000
    answer = ANSWER
    return answer if prompt.endswith("<think>\n") else answer.partition("</think>\n\n")[2]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if BROWSER is None:
        pytest.skip("there is no Chromium: apt-get install chromium, or set CHROMIUM")
    with sync_api.sync_playwright() as play:
        found = play.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(script, pause=0.001)


@pytest.fixture
def server(engine: ScriptedEngine) -> Iterator[Served]:
    with served(engine) as found:
        yield found


@pytest.fixture
def page(browser: Any, server: Served) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1000, "height": 800})
    made = context.new_page()
    made.trouble = []
    made.on("pageerror", lambda e: made.trouble.append(str(e)))
    made.on(
        "console",
        lambda m: made.trouble.append(m.text) if "Content Security Policy" in m.text else None,
    )
    asked: list[str] = []
    made.on("request", lambda r: asked.append(r.url))
    made.goto(server.url)
    yield made
    assert made.trouble == []
    assert all(url.startswith(server.url) for url in asked), asked  # nothing from elsewhere
    context.close()


def ask(page: Any, text: str) -> None:
    # The page gives the focus back by itself, a moment after a dialog closes or an answer ends.
    # (Asked from here: a page with this policy may not evaluate what it would have to wait for.)
    until(lambda: bool(page.evaluate("document.activeElement.id === 'question'")))
    page.keyboard.type(text)
    page.keyboard.press("Enter")


def ended(page: Any) -> None:
    page.wait_for_selector("#send:visible")


def picture(page: Any, name: str) -> None:
    """Kept where somebody asks for it, to be looked at."""
    if folder := os.environ.get("LINNET_PICTURES"):
        page.screenshot(path=str(Path(folder) / f"{name}.png"))


def test_a_question_by_keyboard(page: Any, engine: ScriptedEngine) -> None:
    until(lambda: "tiny" in page.title())
    assert page.evaluate("document.activeElement.id") == "question"
    ask(page, "How long is it?")
    ended(page)
    answer = page.locator("article.assistant")
    details = answer.locator("details")
    assert not details.evaluate("d => d.open")  # folded
    assert "I think of" in details.locator(".text").text_content()
    assert answer.locator("pre code").text_content().startswith("def size(x: list[int])")
    assert answer.locator(".code span").text_content() == "python"
    text = answer.locator("> .text")
    assert text.locator("p code").first.text_content() == "len(x)"
    # Headings, points and what is bold; the rest as it was written.
    assert text.locator(".head").text_content() == "All of it"
    assert text.locator(".item").all_text_contents() == ["• One point", "1. and one of its own"]
    assert text.locator("strong").all_text_contents() == ["One"]
    assert text.locator("p").last.text_content() == "2 * 3 ** 2 is all."
    # Nothing of an answer is ever HTML.
    assert "<b>no tags</b>" in text.text_content() and text.locator("b, script").count() == 0
    assert "wrong" not in page.title()
    assert "tokens in" in answer.locator(".end").text_content()
    picture(page, "answer")
    assert page.evaluate("document.activeElement.id") == "question"
    details.locator("summary").click()
    picture(page, "thoughts")
    page.get_by_label("Message", exact=True).focus()
    ask(page, "And now?")
    ended(page)
    assert page.locator("article").count() == 4
    assert "How long is it?" in engine.prompts[-1] and "Use `len(x)`" in engine.prompts[-1]


def test_it_streams_and_stops(page: Any, engine: ScriptedEngine) -> None:
    ask(page, "long")
    page.get_by_text("word word word").wait_for()
    assert page.locator("#stop").is_visible() and not page.locator("#send").is_visible()
    picture(page, "streaming")
    page.keyboard.press("Escape")
    ended(page)
    until(lambda: engine.running == 0 and engine.cancelled == 1)
    assert "stopped" in page.locator(".end").text_content()
    ask(page, "long")
    page.wait_for_selector("#stop:visible")
    until(lambda: engine.running == 1)  # a request stopped on its way there would cancel nothing
    page.locator("#stop").focus()
    page.keyboard.press("Enter")
    ended(page)
    until(lambda: engine.cancelled == 2)


def test_settings_act_and_are_kept(page: Any, engine: ScriptedEngine) -> None:
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("System message").fill("Be brief.")
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_label("Longest answer").fill("7")
    page.get_by_label("Seed").fill("3")
    page.get_by_label("Thinking").select_option("off")
    picture(page, "settings")
    page.keyboard.press("Escape")
    until(lambda: not page.locator("#settings").is_visible())
    ask(page, "hello")
    until(lambda: bool(engine.requests))
    ended(page)
    request = engine.requests[-1]
    assert request.sampling.temperature == 0.5 and request.sampling.seed == 3
    assert request.max_tokens == 7 and engine.prompts[-1].endswith("</think>\n\n")
    assert "<|im_start|>system\nBe brief.<|im_end|>" in engine.prompts[-1]
    assert "cut at" in page.locator(".end").text_content()
    page.reload()
    assert page.get_by_label("System message").input_value() == "Be brief."


def test_errors_are_said(page: Any, engine: ScriptedEngine) -> None:
    engine.room = 0
    ask(page, "hello")
    page.wait_for_selector("#error:visible")
    assert "429" in page.locator("#error").text_content()
    assert page.locator("#question").input_value() == "hello"  # to be sent again
    picture(page, "error")
    engine.room = 4
    page.keyboard.press("Enter")
    ended(page)
    page.wait_for_selector(".end")
    assert not page.locator("#error").is_visible()
    page.get_by_role("button", name="New chat").click()
    assert page.locator("article").count() == 0


def test_a_server_that_goes_in_mid_stream_is_said(browser: Any, engine: ScriptedEngine) -> None:
    with served(engine) as server:
        page = browser.new_page()
        page.goto(server.url)
        until(lambda: "tiny" in page.title())
        ask(page, "long")
        page.get_by_text("word word word").wait_for()
        server.server.stop()
        server.server.stop()
        page.wait_for_selector("#error:visible")
        assert page.locator("#error").text_content() == "The server broke off."
        assert "word" in page.locator("article.assistant").text_content()  # what came is kept
    ask(page, "again")
    until(lambda: page.locator("#error").text_content() == "The server cannot be reached.")
    assert page.locator("#question").input_value() == "again"
    page.close()


def test_a_key_is_asked_for(browser: Any, engine: ScriptedEngine) -> None:
    with served(engine, keys=["k"]) as server:
        page = browser.new_page()
        page.goto(server.url)
        page.wait_for_selector("#error:visible")
        assert "Settings" in page.locator("#error").text_content()
        page.get_by_role("button", name="Settings").click()
        page.get_by_label("API key").fill("k")
        page.keyboard.press("Enter")
        until(lambda: "tiny" in page.title())
        ask(page, "hello")
        ended(page)
        page.wait_for_selector(".end")
        page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(browser: Any, server: Served, scheme: str) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 640}, color_scheme=scheme)
    page = context.new_page()
    page.goto(server.url)
    ask(page, "How long is it?")
    ended(page)
    picture(page, f"phone-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.get_by_role("button", name="Settings").click()
    picture(page, f"phone-settings-{scheme}")
    context.close()


def test_the_files_are_served_with_a_policy(server: Served) -> None:
    for path in FILES:
        status, body, headers = server.ask(path)
        assert status == 200 and body and headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        text = body.decode()
        assert "http://" not in text and "https://" not in text  # nothing from elsewhere
    assert "unsafe" not in POLICY and "default-src 'none'" in POLICY
