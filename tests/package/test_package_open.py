"""Opening packages: what a path may name, and what it may not reach."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from linnet.errors import PackageError
from linnet.package import ManifestError, Package, open_package, resolve, std_package

SEED = Path(__file__).parents[3] / "shared/seed/qwen3.6-35b-a3b"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def manifest(name: str, dependencies: str = "") -> str:
    head = f'[package]\nname = "{name}"\nversion = "0.1.0"\nlanguage = "0.1"\n'
    return head + (f"[dependencies]\n{dependencies}\n" if dependencies else "")


def package(root: Path, name: str, dependencies: str = "", **modules: str) -> Path:
    files = {"linnet.toml": manifest(name, dependencies), "src/lib.linnet": f"module {name}\n"}
    files.update({f"src/{path}.linnet": text for path, text in modules.items()})
    return write(root / name, files)


def ids(opened: Package) -> list[str]:
    modules = [opened.load(path) for path in opened.module_paths()]
    return [module.id for module in modules if module is not None]


def test_a_package(tmp_path: Path) -> None:
    root = package(tmp_path, "p", **{"a": "module p.a\n", "b/c": "module p.b.c\n"})
    write(root, {"src/.hidden.linnet": "", "src/notes.txt": ""})
    opened = open_package(root)
    assert (opened.name, opened.key, opened.root) == ("p", "crate", root)
    assert opened.module_paths() == [(), ("a",), ("b", "c")]
    assert ids(opened) == ["crate", "crate.a", "crate.b.c"]
    found = resolve(opened, ["crate", "b", "c"])
    assert found is not None and found is opened.load(("b", "c"))
    assert found.source.path == str(root / "src/b/c.linnet")
    for missing in (["crate", "b"], ["crate", "lib"], ["other"], ["crate", "x"], []):
        assert resolve(opened, missing) is None
    assert open_package(root / "linnet.toml").root == root


def test_paths_are_logical(tmp_path: Path) -> None:
    root = package(tmp_path, "p")
    write(tmp_path, {"secret.linnet": "module s\n"})
    opened = open_package(root)
    for path in (["..", "..", "secret"], ["../../secret"], ["a\0b"], ["/etc/passwd"], ["a" * 9999]):
        assert resolve(opened, ["crate", *path]) is None


def test_the_library(tmp_path: Path) -> None:
    opened = open_package(package(tmp_path, "p"))
    linear = resolve(opened, ["std", "nn", "linear"])
    assert linear is not None and linear.id == "std.nn.linear" and not linear.diagnostics
    assert resolve(opened, ["std", "nn", "nowhere"]) is None
    assert linear.package is std_package()
    # The library itself can be opened like a package, as what it is.
    path = Path(linear.source.path)
    assert open_package(path) is std_package() and open_package(path.parents[1]) is std_package()
    assert resolve(std_package(), ["std", "nn", "linear"]) is linear


def test_dependencies(tmp_path: Path) -> None:
    package(tmp_path, "common")
    package(tmp_path, "layers", 'shared = { path = "../common" }\nextra = { path = "../extra" }')
    package(tmp_path, "extra")
    app = package(
        tmp_path, "app", 'layers = { path = "../layers" }\ncommon = { path = "../common" }'
    )
    opened = open_package(app)
    layers = opened.dependencies["layers"]
    assert layers.key == "layers" and layers.dependencies["extra"].key == "layers/extra"
    # One folder is one package, by whatever path and key it is reached.
    assert layers.dependencies["shared"] is opened.dependencies["common"]
    found = resolve(layers, ["shared"])
    assert found is not None and found.id == "common"
    assert resolve(opened, ["shared"]) is None
    found = resolve(layers, ["crate"])
    assert found is not None and found.id == "layers"


def test_dependency_cycles_and_gaps(tmp_path: Path) -> None:
    package(tmp_path, "a", 'b = { path = "../b" }')
    package(tmp_path, "b", 'c = { path = "../c" }')
    package(tmp_path, "c", 'a = { path = "../a" }')
    with pytest.raises(ManifestError, match="a → b → c → a") as caught:
        open_package(tmp_path / "a")
    assert caught.value.diagnostics[0].code == "E5001"
    own = package(tmp_path, "own", 'me = { path = "." }')
    with pytest.raises(ManifestError, match="own → own"):
        open_package(own)
    lost = package(tmp_path, "lost", 'x = { path = "../nowhere" }')
    with pytest.raises(ManifestError, match=r"linnet.toml:6:1: dependency `x`.*no folder"):
        open_package(lost)


def test_a_file_alone(tmp_path: Path) -> None:
    write(tmp_path, {"one.linnet": "module one\n", "two.linnet": "module two\n"})
    opened = open_package(tmp_path / "one.linnet")
    assert opened.name == "one" and opened.module_paths() == [()] and ids(opened) == ["crate"]
    assert resolve(opened, ["crate", "two"]) is None
    assert resolve(opened, ["std", "nn", "linear"]) is not None


def test_a_file_in_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = package(tmp_path, "p", **{"b/c": "module p.b.c\n"})
    opened = open_package(root / "src/b/c.linnet")
    assert opened.name == "p" and opened.focus == ("b", "c")
    assert open_package(root / "src/lib.linnet").focus == ()
    write(root, {"scratch.linnet": "module s\n"})
    assert open_package(root / "scratch.linnet").name == "scratch"
    monkeypatch.chdir(root / "src")
    found = open_package("lib.linnet").load(())
    assert found is not None and found.source.path == os.path.join("..", "src", "lib.linnet")


def test_a_card(tmp_path: Path) -> None:
    card = write(
        tmp_path / "m",
        {"nest.toml": '[source]\npath = "net.linnet"\n', "net.linnet": "module net\n"},
    )
    assert ids(open_package(card)) == ["crate"]
    for path in ("../m2.linnet", "none.linnet", "nest.toml", "/etc/passwd"):
        write(card, {"nest.toml": f'[source]\npath = "{path}"\n'})
        with pytest.raises(PackageError, match=r"nest\.toml: `path`"):
            open_package(card)
    write(card, {"nest.toml": "[source\n"})
    with pytest.raises(PackageError, match="not valid TOML"):
        open_package(card)


def test_paths_that_name_nothing(tmp_path: Path) -> None:
    for path, found in [
        ("missing", "no such file or folder"),
        ("missing.linnet", "no such file or folder"),
        ("a\0b", "no such file|cannot be read"),
        ("x" * 5000, "no such file|cannot be read"),
    ]:
        with pytest.raises(PackageError, match=found):
            open_package(tmp_path / path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(PackageError, match="an empty folder; expected a package"):
        open_package(tmp_path / "empty")
    write(tmp_path, {"some/notes.txt": "", "x.py": ""})
    with pytest.raises(PackageError, match=r"a folder without linnet\.toml"):
        open_package(tmp_path / "some")
    with pytest.raises(PackageError, match=r"expected a \.linnet file"):
        open_package(tmp_path / "x.py")
    (tmp_path / "folder.linnet").mkdir()
    with pytest.raises(PackageError, match="an empty folder"):
        open_package(tmp_path / "folder.linnet")
    write(tmp_path / "bare", {"linnet.toml": manifest("bare")})
    with pytest.raises(PackageError, match="no folder `src`"):
        open_package(tmp_path / "bare")
    (tmp_path / "bare/src").mkdir()
    with pytest.raises(PackageError, match=r"no \.linnet file"):
        open_package(tmp_path / "bare")


def test_links_do_not_lead_outside(tmp_path: Path) -> None:
    root = package(tmp_path, "p", inner="module p.inner\n")
    write(tmp_path, {"outside/x.linnet": "module x\n"})
    (root / "src/out.linnet").symlink_to(tmp_path / "outside/x.linnet")
    (root / "src/same.linnet").symlink_to(root / "src/inner.linnet")
    (root / "src/folder").symlink_to(tmp_path / "outside")
    (root / "src/gone.linnet").symlink_to(root / "nothing")
    opened = open_package(root)
    for path in ("out", "folder.x"):
        with pytest.raises(PackageError, match="leads outside the package"):
            opened.load(path.split("."))
    assert opened.load(["same"]) is not None
    with pytest.raises(PackageError, match="plain file"):
        opened.load(["gone"])
    moved = write(tmp_path / "moved", {"linnet.toml": manifest("moved")})
    (moved / "src").symlink_to(root / "src")
    with pytest.raises(PackageError, match="leads outside the package"):
        open_package(moved)


def test_files_that_are_no_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = package(tmp_path, "p", **{"a-b": "module p\n"})
    with pytest.raises(PackageError, match=r"a-b\.linnet: cannot be a module"):
        open_package(root)
    (root / "src/a-b.linnet").unlink()
    (root / "src/latin.linnet").write_bytes(b"module p.latin\n// caf\xe9 \xff\nconst N = 1\n")
    latin = open_package(root).load(["latin"])
    assert latin is not None and len(latin.tree.file.items) == 1
    assert [(d.code, str(d.span).rpartition("latin.linnet")[2]) for d in latin.diagnostics] == [
        ("E1001", ":2:7")
    ]
    monkeypatch.setattr("linnet.package.module.MAX_SOURCE", 5)
    with pytest.raises(PackageError, match="larger than"):
        open_package(root).load([])


def test_the_founding_package() -> None:
    if not SEED.is_dir():
        pytest.skip("the founding package is not beside this repository")
    opened = open_package(SEED)
    assert opened.name == "qwen3_5_moe"
    assert ids(opened) == [
        "crate", *(f"crate.{n}" for n in ("attention", "deltanet", "moe", "norm", "rope")),
    ]  # fmt: skip
