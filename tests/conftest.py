"""Shared by all tests: `tests/` is on the path, so that `oracle` can be imported.

Paths of the founding package and of the zoo are fixtures; what needs the founding package is
skipped where the folder is absent.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# The models of the tests are small: a second thread costs more in barriers than it gives, and
# tests run side by side. Set before torch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# No test reaches for the network; those of fetching start processes of their own.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Tests check what is there, and leave nothing in the user's cache.
os.environ.setdefault("LINNET_NO_CACHE", "1")

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "models"
FOUNDING = ROOT.parent / "shared" / "seed" / "qwen3.6-35b-a3b"


@pytest.fixture(scope="session")
def founding_package() -> Path:
    if not FOUNDING.is_dir():
        pytest.skip("the founding package is not beside this checkout")
    return FOUNDING


@pytest.fixture(scope="session")
def models() -> Path:
    return MODELS
