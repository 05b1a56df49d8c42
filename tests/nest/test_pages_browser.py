"""The pages in a real browser: phone and desktop widths, with and without scripts."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from linnet.ir.memory import held
from linnet.nest.pages.serve import server
from linnet.nest.pages.shown import Shown
from linnet.nest.pages.site import build

playwright = pytest.importorskip("playwright.sync_api")
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
if CHROMIUM is None:
    pytest.skip("no Chromium here", allow_module_level=True)

MODEL = "qwen3.6-35b-a3b"
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def address(models: Path) -> Iterator[str]:
    files, refused = build([models / MODEL, models / "smollm2-135m-instruct"])
    assert not refused
    running = server(files, "127.0.0.1", 0)
    Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_address[1]}"
    running.shutdown()
    running.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def open_page(browser: Any, address: str) -> Iterator[Any]:
    """Opens a path of the site; afterwards nothing may have failed or come from elsewhere."""
    problems: list[str] = []
    contexts = []

    def go(path: str, size: dict[str, int] = DESKTOP, **options: Any) -> Any:
        context = browser.new_context(viewport=size, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda m: m.type == "error" and problems.append(m.text))
        page.on(
            "request",
            lambda r: r.url.startswith(address) or problems.append(f"from elsewhere: {r.url}"),
        )
        page.goto(f"{address}/{path}")
        return page

    yield go
    for context in contexts:
        context.close()
    assert problems == []


@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
@pytest.mark.parametrize(
    "path", ["", f"{MODEL}/", "smollm2-135m-instruct/", "std/", "std/nn.attention.html"]
)
def test_fits_the_window_and_shows_in_time(open_page: Any, path: str, size: dict) -> None:
    page = open_page(path, size)
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    timing = page.evaluate(
        "(() => { const t = performance.getEntriesByType('navigation')[0];"
        "return t.domContentLoadedEventEnd - t.responseStart })()"
    )
    assert timing < 3000  # a second on a machine with nothing else to do


def test_search_and_filters(open_page: Any) -> None:
    page = open_page("")
    shown = lambda: page.locator("#models > .card:visible").count()  # noqa: E731
    assert shown() == 2
    page.fill("#find-models input", "small chat")
    assert shown() == 1 and "1 of 2" in page.inner_text("#find-models output")
    page.fill("#find-models input", "")
    page.select_option("select[name=size]", "large")
    assert page.inner_text("#models > .card:visible h2") == "Qwen3.6 35B-A3B"
    page.select_option("select[name=size]", "")
    page.select_option("select[name=family]", "llama")
    assert shown() == 1


def test_the_script_draws_what_the_file_shows(open_page: Any) -> None:
    """Both layouts are one: boxes, lines and the height agree."""
    count = (
        "(() => { const s = document.querySelector('#picture svg');"
        "return [s.querySelectorAll('.box').length, s.querySelectorAll('.wire').length,"
        "s.querySelectorAll('.value').length, s.getAttribute('viewBox'),"
        "[...s.querySelectorAll('.wire')].map((w) => w.getAttribute('d')).sort()] })()"
    )
    still = open_page(f"{MODEL}/", java_script_enabled=False)
    drawn = open_page(f"{MODEL}/")
    # A page without scripts can still be asked by the driver.
    assert drawn.evaluate(count) == still.evaluate(count)


def test_boxes_open_by_mouse_and_keyboard(open_page: Any) -> None:
    page = open_page(f"{MODEL}/")
    boxes = lambda: page.locator("#picture .box").count()  # noqa: E731
    before = boxes()
    closed = page.locator("#picture .opens[aria-expanded=false]").first
    closed.locator("> .box").click(position={"x": 120, "y": 36})
    assert boxes() > before
    opened = page.evaluate(
        "document.querySelectorAll('#picture .opens[aria-expanded=true]').length"
    )
    page.locator("#picture .opens[aria-expanded=true]").last.focus()
    page.keyboard.press("Enter")
    after = page.evaluate("document.querySelectorAll('#picture .opens[aria-expanded=true]').length")
    assert after < opened
    assert page.evaluate("document.activeElement.classList.contains('opens')")


def test_every_box_of_every_entry_opens(open_page: Any) -> None:
    page = open_page("smollm2-135m-instruct/")
    for entry in page.evaluate("Object.keys(data.entries)"):
        page.click(f".tabs [data-entry={entry}]")
        page.evaluate(
            """() => { for (let round = 0; round < 9; round += 1) {
                 const closed = [...document.querySelectorAll('#picture .opens[aria-expanded=false]')];
                 if (!closed.length) break;
                 for (const g of closed) state.open.get(state.entry).add(g.dataset.path);
                 drawDiagram(); } }"""
        )
        assert page.locator("#picture .opens[aria-expanded=false]").count() == 0
        text = page.inner_text("#picture")
        assert "NaN" not in text and "undefined" not in text


def test_sizes_move_shapes_and_memory(open_page: Any, models: Path) -> None:
    page = open_page(f"{MODEL}/")
    shown = Shown.open(models / MODEL)
    page.click(".tabs [data-entry=decode]")
    page.evaluate(
        """() => { for (const [name, n] of [['Batch', 16], ['MaxSeq', 32768]]) {
             const range = document.querySelector(`input[name=${name}]`);
             const values = steps(Number(range.max) > 10 ? 262144 : 256);
             range.value = values.indexOf(n); range.dispatchEvent(new Event('input')); } }"""
    )
    assert "[16, 1, 2048] bf16" in page.text_content("#picture")
    amounts = page.evaluate("memory()")
    sizes = {**shown.sizes, "Batch": 16, "MaxSeq": 32768}
    expected = held(
        [*shown.weights, *shown.states], {**shown.generics, **sizes}, frozenset(shown.free)
    )
    assert amounts["weights"] == expected["weights"] == sum(shown.bytes_by_dtype.values())
    assert amounts["caches"] == expected["caches"]
    assert amounts["fixed"] == expected["states"]
    work = shown.peaks()["decode"][2]
    assert amounts["work"] == max(d.evaluate(sizes) for d in work)
    page.select_option("#controls select >> nth=1", "4")
    less = held([*shown.weights, *shown.states], shown.generics, frozenset(shown.free), 4)
    assert page.evaluate("Math.floor(memory().weights)") == less["weights"]
    page.select_option("#controls select >> nth=0", "f32")
    assert "[16, 1, 2048] f32" in page.text_content("#picture")


def test_parameters_are_found(open_page: Any) -> None:
    page = open_page(f"{MODEL}/")
    page.fill("#find-parameters input", "conv_weight")
    assert page.locator("#parameter-table tbody tr:visible").count() == 1


def test_a_line_in_a_folded_module_is_shown(open_page: Any) -> None:
    page = open_page(f"{MODEL}/#crate.experts-L30")
    assert page.locator("[id='crate.experts-L30']").is_visible()
    page.hover("[id='crate.experts-L30'] [title] >> nth=0")
    assert page.locator(".tip").is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_of_text(open_page: Any, scheme: str) -> None:
    """WCAG 2.1's formula: at least 4.5 for text, in both schemes."""
    page = open_page(f"{MODEL}/", color_scheme=scheme)
    worst = page.evaluate(
        """() => {
          const light = (c) => { const [r, g, b] = c.map((v) => { v /= 255;
            return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const parse = (name) => { const probe = document.createElement('i');
            probe.style.color = `var(${name})`; document.body.append(probe);
            const found = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(Number);
            probe.remove(); return found; };
          const ratio = (a, b) => { const [x, y] = [light(parse(a)), light(parse(b))].sort((p, q) => q - p);
            return (x + 0.05) / (y + 0.05); };
          const found = {};
          for (const ground of ['--ground', '--panel', '--code'])
            for (const ink of ['--ink', '--soft', '--link', '--keyword', '--number', '--comment',
                               '--type', '--yes', '--no', '--accent'])
              found[`${ink} on ${ground}`] = ratio(ink, ground);
          return found; }"""
    )
    low = {name: round(value, 2) for name, value in worst.items() if value < 4.5}
    assert low == {}


def test_reads_without_scripts(open_page: Any) -> None:
    page = open_page(f"{MODEL}/", java_script_enabled=False)
    assert page.locator("#picture svg").is_visible()
    assert page.locator("#about .readme").is_visible()
    assert page.locator("#sizes .fold summary").is_visible()
    assert not page.locator("#controls").is_visible()
    assert "6 GB" in page.inner_text(".facts") or "69.3 GB" in page.inner_text(".facts")


def test_entries_have_pictures_of_their_own(open_page: Any) -> None:
    page = open_page(f"{MODEL}/", java_script_enabled=False)
    page.click(".tabs [data-entry=decode]")
    assert page.url.endswith("/decode.svg")


def test_hostile_readme_runs_nothing(browser: Any, models: Path, tmp_path: Path) -> None:
    folder = tmp_path / "hostile"
    shutil.copytree(models / "smollm2-135m-instruct", folder)
    (folder / "README.md").write_text(
        "<script>window.hacked = 1</script>\n\n[x](javascript:window.hacked=1)\n\n"
        "<img src=x onerror='window.hacked=1'>\n\n<details open ontoggle='window.hacked=1'>",
        encoding="utf-8",
    )
    files, _ = build([folder])
    running = server(files, "127.0.0.1", 0)
    Thread(target=running.serve_forever, daemon=True).start()
    page = browser.new_page()
    page.goto(f"http://127.0.0.1:{running.server_address[1]}/smollm2-135m-instruct/")
    assert page.evaluate("window.hacked === undefined")
    page.close()
    running.shutdown()
    running.server_close()
