"""Binding files: what is read, and the line of what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.errors import WeightsError
from linnet.weights.bindings import read_bindings

SEED = Path(__file__).parents[3] / "shared" / "seed" / "qwen3.6-35b-a3b"


def test_mapping_file_and_nothing(tmp_path: Path) -> None:
    assert read_bindings(None) == {}
    assert read_bindings({"a": "x", "b": "x"}) == {"a": "x", "b": "x"}
    path = tmp_path / "bindings.json"
    path.write_text('\n{ "a" : "x",\n"b.0":"x" , "ü\\n": "\\u00e4" } \n')
    assert read_bindings(path) == {"a": "x", "b.0": "x", "ü\n": "ä"}
    path.write_text("{}")
    assert read_bindings(str(path)) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": "x",\n "b": "y",\n "a": "z"}', ["line 3", "`a` is bound twice", "line 1"]),
        ('{\n"a": 3}', ["line 2", "`a`", "3"]),
        ('{"a":\n ["x", "y"]}', ["line 2", "`a`"]),
        ('{"a": {"pattern": "x"}}', ["line 1", "`a`"]),
        ('{"a": ""}', ["`a`"]),
        ('{"a": null}', ["`a`", "null"]),
        ('{"a": "x",}', ["line 1", "expected"]),
        ('{"a": "x"\n', ["line 2", "end of the file"]),
        ('{"a" "x"}', ["expected :"]),
        ("{a: 1}", ["line 1"]),
        ('{"a": "x"} {}', ["text after"]),
        ("[]", ["expected an object"]),
        ("", ["line 1"]),
        ('{"a": ' + "[" * 9999, ["line 1"]),
        ('{"a": "x', ["line 1"]),
        ('{"a": "\\ud800"}', ["Unicode"]),
    ],
)
def test_what_is_wrong_and_where(tmp_path: Path, text: str, words: list[str]) -> None:
    path = tmp_path / "bindings.json"
    path.write_text(text)
    with pytest.raises(WeightsError) as caught:
        read_bindings(path)
    for word in (str(path), *words):
        assert word in str(caught.value), str(caught.value)


def test_not_a_file_not_text_not_a_string(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b'{"\xff": 1}')
    for source in (tmp_path, tmp_path / "none", tmp_path / "b", {"a": 3}, {"a": ""}):
        with pytest.raises(WeightsError):
            read_bindings(source)  # type: ignore[arg-type]


@pytest.mark.skipif(not SEED.is_dir(), reason="the founding package is not here")
def test_the_founding_package() -> None:
    bindings = read_bindings(SEED / "bindings.json")
    assert len(bindings) == 693
    assert bindings["lm_head.weight"] == "lm_head.weight"
