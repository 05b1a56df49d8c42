"""The site's pages as text: links lead somewhere, sizes stay small, nothing hostile gets through."""

from __future__ import annotations

import json
import re
import shutil
import urllib.error
import urllib.request
from html.parser import HTMLParser
from pathlib import Path
from posixpath import join, normpath
from threading import Thread

import pytest

from linnet.cli.main import main
from linnet.nest.pages.readme import readme_html
from linnet.nest.pages.serve import server
from linnet.nest.pages.shown import Shown, common_name
from linnet.nest.pages.site import build, write

LIMIT = 300_000  # bytes of a page without its source text


@pytest.fixture(scope="module")
def site(models: Path) -> dict[str, str]:
    """The whole zoo's."""
    files, refused = build(sorted(card.parent for card in models.glob("*/nest.toml")))
    assert refused == {}
    return files


class Page(HTMLParser):
    """Ids, addresses and the nesting of a page."""

    VOID = frozenset({"meta", "link", "input", "br", "hr", "img"})

    def __init__(self, text: str):
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.inline: list[str] = []
        self.open: list[str] = []
        self.unclosed: list[str] = []
        self.feed(text)
        assert self.open == [] and self.unclosed == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name == "id":
                self.ids.append(value or "")
            elif name == "href" and tag == "a":
                self.links.append(value or "")
            elif name in ("src", "href"):
                self.loaded.append(value or "")
            elif name == "style" or name.startswith("on"):
                self.inline.append(f"{tag} {name}")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.unclosed.append(tag)


def test_every_link_leads_somewhere(site: dict[str, str]) -> None:
    pages = {path: Page(text) for path, text in site.items() if path.endswith(".html")}
    count = 0
    for path, page in pages.items():
        assert len(page.ids) == len(set(page.ids)), path
        assert page.inline == [], path
        for link in page.links:
            if link.startswith(("https://", "http://")):
                continue
            file, _, fragment = link.partition("#")
            target = normpath(join(path, "..", file)) if file else path
            assert target in site, (path, link)
            if fragment:
                assert fragment in pages[target].ids, (path, link)
            count += 1
        for address in page.loaded:
            assert normpath(join(path, "..", address)) in site, (path, address)
    assert count > 2000


def test_pages_are_small_without_their_source(site: dict[str, str]) -> None:
    for path, text in site.items():
        rest = re.sub(r'<pre class="source".*?</pre>', "", text, flags=re.DOTALL)
        assert len(rest.encode()) <= LIMIT, path


def test_names_lead_to_their_declarations(site: dict[str, str]) -> None:
    text = site["qwen3.6-35b-a3b/index.html"]
    for name, target in [
        ("gated_delta_rule", r"\.\./std/nn\.recurrent\.html#std\.nn\.recurrent-L\d+"),
        ("Linear", r"\.\./std/nn\.linear\.html#std\.nn\.linear-L\d+"),
        ("Group", r"#crate\.stack-L\d+"),
    ]:
        found = re.search(rf'<a href="({target})" class="d" title="[^"]*">{name}</a>', text)
        assert found, name
        page, _, anchor = found[1].partition("#")
        where = normpath(join("qwen3.6-35b-a3b", page)) if page else "qwen3.6-35b-a3b/index.html"
        line = re.search(rf'id="{re.escape(anchor)}">.*?\n', site[where])
        assert line and name in re.sub("<[^>]*>", "", line[0])


def test_names_show_inferred_types(site: dict[str, str]) -> None:
    text = site["qwen3.6-35b-a3b/index.html"]
    assert "here: Tensor[R, TopK, 2 * ExpertInner; T]" in text  # the result of an op
    assert 'title="pair: Tensor[R, TopK, 2 * ExpertInner; T]"' in text  # a local
    assert 'title="index e"' in text


def test_facts(models: Path) -> None:
    shown = Shown.open(models / "qwen3.6-35b-a3b")
    assert shown.bytes_by_dtype == {"bf16": 69_321_221_376}
    assert 34e9 < shown.parameters < 36e9 and 3e9 < shown.active < 4e9
    assert shown.unbound() == [] and shown.free == ["Batch", "MaxSeq"]
    small = Shown.open(models / "smollm2-135m-instruct")
    assert small.tied == {"lm_head.weight"} and small.parameters == small.active == 134_515_008


def test_the_founding_package_has_a_page(founding_package: Path) -> None:
    files, refused = build([founding_package])
    assert refused == {} and "qwen3.6-35b-a3b/prefill_slots.svg" in files


def test_common_name() -> None:
    assert common_name(["a.0.w"]) == "a.0.w"
    assert common_name(["a.0.w", "a.10.w", "a.2.w"]) == "a.{0 … 10}.w"
    assert common_name(["a.0.w", "b.0.w"]) == "a.0.w …"


# --- safety -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("markdown", "refused"),
    [
        ("<script>alert(1)</script>", "<script"),
        ('<img src=x onerror="alert(1)">', "<img"),
        ("[x](javascript:alert(1))", 'href="javascript'),
        ("[x](JaVaScRiPt:alert(1))", "href"),
        ("[x](data:text/html,<script>alert(1)</script>)", "href"),
        ("[x](vbscript:x) [y](file:///etc/passwd)", "href"),
        ("![x](https://elsewhere.example/track.png)", "<img"),
        ("[x](//elsewhere.example)", "href"),
        ("[x](../../../etc/passwd)", "href"),
        ("<style>body{display:none}</style>", "<style"),
        ('<a href="https://e.example" onclick="x()">x</a>', "<a "),
        ('```x" onload="alert(1)\ncode\n```', 'onload="'),
    ],
)
def test_markdown_can_do_nothing(markdown: str, refused: str) -> None:
    html = readme_html(markdown)
    assert refused not in html
    Page(html)


def test_links_out_are_marked() -> None:
    html = readme_html('[a **b**](https://e.example/?a=1&b=2 "t") and <https://f.example>')
    assert html.count('rel="noopener noreferrer nofollow external"') == 2
    assert html.count("leaves this site") == 2
    assert 'href="https://e.example/?a=1&amp;b=2"' in html


@pytest.fixture
def hostile(models: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "hostile"
    shutil.copytree(models / "smollm2-135m-instruct", folder)
    return folder


def page_of(folder: Path) -> str:
    files, refused = build([folder])
    assert refused == {}
    return next(text for path, text in files.items() if path.endswith("instruct/index.html"))


def test_hostile_texts_of_a_card_are_text(hostile: Path) -> None:
    card = hostile / "nest.toml"
    text = card.read_text(encoding="utf-8")
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    text = re.sub(r"(?m)^(title|summary|license|family) = .*$", rf"\1 = '{evil}'", text)
    text = re.sub(r"(?m)^tags = .*$", f"tags = ['{evil}']", text)
    card.write_text(text, encoding="utf-8")
    (hostile / "README.md").write_text(evil, encoding="utf-8")
    source = hostile / "src" / "lib.linnet"
    source.write_text(source.read_text(encoding="utf-8") + f"// {evil}\n", encoding="utf-8")
    text = page_of(hostile)
    page = Page(text)
    assert "<script>alert" not in text and "<img" not in text
    assert page.inline == []
    data = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)
    assert data and json.loads(data[1])["entries"]


def test_files_that_lead_out_are_not_shown(hostile: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret", encoding="utf-8")
    (hostile / "stolen.txt").symlink_to(secret)
    (hostile / "up").symlink_to(tmp_path)
    names = [name for name, _ in Shown.open(hostile).files()]
    assert "stolen.txt" not in names and not any(name.startswith("up/") for name in names)
    (hostile / "README.md").unlink()
    (hostile / "README.md").symlink_to(secret)
    _, refused = build([hostile])
    assert "leads out of the card's folder" in refused["hostile"]


def test_huge_and_broken_packages_are_refused_and_the_rest_is_shown(
    hostile: Path, models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (hostile / "README.md").write_text("a" * (2 << 20), encoding="utf-8")
    broken = tmp_path / "broken"
    shutil.copytree(models / "smollm2-135m-instruct", broken)
    (broken / "src" / "lib.linnet").write_text("module m\nfn f( {\n", encoding="utf-8")
    out = tmp_path / "out"
    good = models / "smollm2-135m-instruct"
    assert main(["nest", "site", "-o", str(out), str(hostile), str(broken), str(good)]) == 1
    said = capsys.readouterr().err
    assert "hostile is not shown" in said and "broken is not shown" in said
    index = (out / "index.html").read_text(encoding="utf-8")
    assert "This package is refused" in index and "SmolLM2" in index
    assert (out / "smollm2-135m-instruct" / "index.html").is_file()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("Layers = 1000000000", "too many"),
        ("Layers = 9223372036854775807", "too many"),
        ("Heads = 8", "requires"),
    ],
)
def test_sizes_without_bounds_are_refused(hostile: Path, change: str, said: str) -> None:
    card = hostile / "nest.toml"
    text = card.read_text(encoding="utf-8")
    name = change.split()[0]
    card.write_text(re.sub(rf"(?m)^{name} = .*$", change, text), encoding="utf-8")
    _, refused = build([hostile])
    assert said in refused["hostile"]


def test_a_taken_name_is_refused(hostile: Path, models: Path) -> None:
    _, refused = build([models / "smollm2-135m-instruct", hostile])
    assert "is taken" in refused["hostile"]


# --- serving and the command -----------------------------------------------------------------


def test_server_shows_only_the_site(site: dict[str, str]) -> None:
    running = server(site, "127.0.0.1", 0)
    Thread(target=running.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{running.server_address[1]}"
    try:
        with urllib.request.urlopen(f"{base}/") as answer:
            assert b"Models one can read" in answer.read()
            assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
        with urllib.request.urlopen(f"{base}/std") as answer:
            assert answer.url.endswith("/std/")
        for path in ("/../pyproject.toml", "/%2e%2e/pyproject.toml", "/_/../../x", "//etc/passwd"):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(base + path)
            assert caught.value.code == 404
    finally:
        running.shutdown()
        running.server_close()


def test_write_says_what_it_cannot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    from linnet.errors import PackageError

    with pytest.raises(PackageError, match="cannot be written"):
        write({"index.html": "x"}, tmp_path / "file")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["nest"], 2, "subcommands:"),
        (["nest", "nothing"], 2, "unknown subcommand"),
        (["nest", "site", "-o", "x", "no-such-model"], 1, "no model `no-such-model`"),
    ],
)
def test_command_line(
    arguments: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == status
    assert said in capsys.readouterr().err
