"""Long runs: the kernels' tests under sanitizers; every op and packed weights at random sizes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from linnet.native import compiler

pytestmark = pytest.mark.fuzz
HERE = Path(__file__).parent


def runtime(name: str) -> str | None:
    """A sanitizer's library, which must be loaded before Python's own."""
    cc = compiler.find_cc()
    if cc is None:
        return None
    done = subprocess.run([cc, f"-print-file-name={name}"], capture_output=True, text=True)
    found = done.stdout.strip()
    return found if os.path.isabs(found) else None


FILES = (
    "test_native_packed.py", "test_native_models.py", "test_native_caches.py",
    "test_native_slices.py", "test_native_kernels.py", "test_native_attention.py", "test_choose.py",
    "test_native_many.py", "test_native_sharpness.py",
)  # fmt: skip
# Their tests are of one instruction set each, by their names.
BY_LEVEL = ("packed", "caches", "kernels", "attention", "many", "sharpness")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("level", "optimize"),
    [("avx512", "-O1"), ("avx512", "-O2"), ("avx2vnni", "-O1"), ("avx2", "-O2"), ("plain", "-O1")],
)
def test_under_sanitizers(
    level: str, optimize: str, name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    needs, _ = compiler.LEVELS[level]
    if not set(needs) <= compiler.cpu_features():
        pytest.skip(f"this machine lacks {level}")
    libraries = [runtime("libasan.so"), runtime("libubsan.so")]
    if None in libraries:
        pytest.skip("the compiler has no sanitizers")
    # What is compiled of the kernels serves the other files too.
    kept = tmp_path_factory.getbasetemp() / f"kernels{level}{optimize}"
    environment = {
        **os.environ,
        "LD_PRELOAD": ":".join(str(library) for library in libraries),
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        # Rows of bf16 begin anywhere, and vector types are declared to allow it.
        "LINNET_NATIVE_CFLAGS": f"{optimize} -g -fsanitize=address,undefined "
        "-fno-sanitize=alignment -fno-omit-frame-pointer",
        "LINNET_NATIVE_LEVEL": level,
        "XDG_CACHE_HOME": str(kept),
        "OMP_NUM_THREADS": "2",
    }
    chosen: list[str] = []
    if name.removeprefix("test_native_").removesuffix(".py") in BY_LEVEL:
        others = [f"{other}{end}" for other in compiler.LEVELS if other != level for end in "-]"]
        chosen = ["-k", f"not ({' or '.join(others)})"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *chosen,
         str(HERE / name)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.parametrize(
    "name", ["test_native_kernels.py", "test_native_packed.py", "test_native_many.py"]
)
@pytest.mark.parametrize("seed", range(20))
def test_random_sizes(seed: int, name: str) -> None:
    environment = {**os.environ, "LINNET_TEST_SEED": str(seed)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", str(HERE / name)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
