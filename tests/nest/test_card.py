"""Cards: what is read, and table, key and line of what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.errors import CardError
from linnet.nest.card import read_card

REPOSITORY = Path(__file__).parents[2]
SEED = REPOSITORY.parent / "shared" / "seed" / "qwen3.6-35b-a3b"

CARD = """\
[model]
name = "tiny"
tags = ["a", "b"]

[links]
huggingface = "https://huggingface.co/owner/tiny"

[source]
path = "src/lib.linnet"
root = "Model"

[generics]
H = 4
T = "bf16"

[check]
B = 1

[weights]
repo = "owner/tiny"
bindings = "bindings.json"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "lib.linnet").write_text("module tiny\n")
    (tmp_path / "bindings.json").write_text("{}")
    (tmp_path / "nest.toml").write_text(CARD)
    return tmp_path


def test_a_card(folder: Path) -> None:
    card = read_card(folder)
    assert card == read_card(str(folder / "nest.toml"))
    assert (card.name, card.title, card.tags) == ("tiny", "tiny", ("a", "b"))
    assert card.source == folder / "src" / "lib.linnet"
    assert (card.root, card.entry) == ("Model", None)
    assert card.generics == {"H": 4, "T": "bf16"} and card.check == {"B": 1}
    assert card.weights.repo == "owner/tiny"
    assert card.weights.bindings == folder / "bindings.json"
    assert card.weights.files == ()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "tiny"', "", [":1: [model]", "`name` is missing"]),
        ('name = "tiny"', "name = 3", [":2: [model] name", "found 3"]),
        ('name = "tiny"', 'name = "../x"', [":2: [model] name", "plain name"]),
        ('tags = ["a", "b"]', "tags = [1]", [":3: [model] tags", "found 1"]),
        ('tags = ["a", "b"]', 'tag = ["a"]', [":3: [model] tag", "did you mean `tags`"]),
        ("[links]", "[link]", [":5: [link]", "did you mean `links`"]),
        ('huggingface = "https://', 'huggingface = "javascript:', [":6: [links] huggingface"]),
        ("src/lib.linnet", "src/none.linnet", [":9: [source] path", "no file"]),
        ("src/lib.linnet", "../lib.linnet", [":9: [source] path", "inside the folder"]),
        ("src/lib.linnet", "/etc/passwd", [":9: [source] path", "inside the folder"]),
        ("src/lib.linnet", "src", [":9: [source] path"]),
        ('root = "Model"', 'root = "a b"', [":10: [source] root", "identifier"]),
        ("H = 4", "H = -4", [":13: [generics] H", "-4"]),
        ("H = 4", "H = true", [":13: [generics] H", "True"]),
        ("H = 4", "H = 4.0", [":13: [generics] H", "4.0"]),
        ('T = "bf16"', 'T = "bf17"', [":14: [generics] T", "bf17"]),
        ("B = 1", "B = [1]", [":17: [check] B"]),
        ('"owner/tiny"\nb', '"tiny"\nb', [":20: [weights] repo", "owner/name"]),
        ('"bindings.json"', '"no.json"', [":21: [weights] bindings", "no file"]),
        ("bindings =", 'package = "llm-x"\nbindings =', [":21: [weights] package"]),
        ("bindings =", 'files = ["../a"]\nbindings =', [":21: [weights] files"]),
        ("[model]", "[model", ["not TOML", "line 1"]),
        ("[check]\nB = 1", "", []),
    ],
)
def test_what_is_wrong_and_where(folder: Path, old: str, new: str, words: list[str]) -> None:
    assert old in CARD
    (folder / "nest.toml").write_text(CARD.replace(old, new, 1))
    if not words:
        read_card(folder)
        return
    with pytest.raises(CardError) as caught:
        read_card(folder)
    for word in (str(folder / "nest.toml"), *words):
        assert word in str(caught.value), str(caught.value)


def test_a_link_out_of_the_folder(folder: Path) -> None:
    (folder / "bindings.json").unlink()
    (folder / "bindings.json").symlink_to("/etc/hostname")
    with pytest.raises(CardError, match="leads out"):
        read_card(folder)


def test_not_a_card(tmp_path: Path) -> None:
    with pytest.raises(CardError, match="no card there"):
        read_card(tmp_path)
    for content in (b"\xff", b"a" * (1 << 21), b"model = 3", b"x = " + b"[" * 3000):
        (tmp_path / "nest.toml").write_bytes(content)
        with pytest.raises(CardError, match=r"nest\.toml"):
            read_card(tmp_path)


@pytest.mark.skipif(not SEED.is_dir(), reason="the founding package is not here")
def test_the_founding_card() -> None:
    card = read_card(SEED)
    assert card.generics["MaxSeq"] == 262144 and card.check == {"B": 1, "S": 8}
    assert len(card.weights.files) == 26
    assert card.weights.revision == "995ad96eacd98c81ed38be0c5b274b04031597b0"


def test_the_zoo_has_good_cards() -> None:
    folders = [path.parent for path in (REPOSITORY / "models").glob("*/nest.toml")]
    for folder in folders:
        assert read_card(folder).name == folder.name
