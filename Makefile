# Two commands are enough: make train, make test. make help lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Address of another package index, for a chosen CUDA or CPU build of torch (README).
TORCH_INDEX ?=
INDEX := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
TORCH := torch==2.13.0

.DEFAULT_GOAL := help
.PHONY: help setup train test quick tutorials fire lint check docs table3 bench format clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  Options of train.py: make train ARGS='loss=listnet dataset.queries=600'; python train.py --help"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
	  || { echo "error: $(PYTHON) is not Python 3.11, 3.12 or 3.13: install one, or set PYTHON=python3.13"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing into $(VENV) (once; some minutes) ..."
	$(PIP) install --quiet --constraint constraints.txt $(INDEX) --editable '.[all]' $(TORCH)
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing what the tests need ..."
	$(PIP) install --quiet --constraint constraints.txt $(INDEX) --editable '.[dev]' $(TORCH)
	@touch $@

setup: $(VENV)/.installed ## make .venv with the pinned dependencies of every feature

train: $(VENV)/.installed ## train the default experiment (half a minute)
	$(BIN)/python train.py $(ARGS)

test quick tutorials: export PYTHONDONTWRITEBYTECODE = # what pytest rewrites is compiled once
test: $(VENV)/.installed-dev ## run the tests
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

quick: $(VENV)/.installed-dev ## run the tests that start no process and train nothing (under a minute)
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow" $(ARGS)

tutorials: $(VENV)/.installed-dev ## run the examples, benchmarks and long tutorials, which make test leaves out
	$(BIN)/python -m pytest -n auto --dist worksteal -m tutorial $(ARGS)

fire: $(VENV)/.installed-dev ## kill the program, damage its files (minutes=20; ARGS='only=flips tries=1000 seed=3')
	$(BIN)/python -m scripts.fire $(if $(minutes),minutes=$(minutes)) $(ARGS)

table3: $(VENV)/.installed ## Table 3 of NeuralNDCG, Pobrotyn and Bialobrzeski, 2021 (ARGS='dataset=istella seeds=3')
	$(BIN)/python -m ltr table table=neuralndcg_table3 $(if $(findstring dataset=,$(ARGS)),,dataset=web30k) $(ARGS)

lint: $(VENV)/.installed-dev ## format check, lint, imports and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

check: lint test ## format check, lint, imports, types and tests

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "Installing what the documentation is built with ..."
	$(PIP) install --quiet --constraint constraints.txt $(INDEX) --editable '.[docs]' $(TORCH)
	@touch $@

docs: $(VENV)/.installed-docs ## build the documentation; begin with docs/build/html/index.html
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -b html docs docs/build/html

# allRank's pins exclude this torch, and its wheel brings a folder "tests": it lies by itself.
$(VENV)/.installed-bench: $(VENV)/.installed
	@echo "Installing what the project is measured against ..."
	$(PIP) install --quiet --constraint constraints.txt $(INDEX) --editable '.[bench]' $(TORCH)
	$(PIP) install --quiet --no-deps --upgrade --target $(VENV)/peers allrank==1.4.3
	@touch $@

# what=NAME is benchmarks/NAME.py; the other words are its keys (results/benchmarks.md).
WHAT = $(or $(patsubst what=%,%,$(filter what=%,$(ARGS))),losses reader training evaluation growth serving)
bench: $(VENV)/.installed-bench ## time this project beside allRank, scikit-learn, LightGBM (ARGS='what=losses only=neuralndcg')
	@for what in $(WHAT); do $(BIN)/python benchmarks/$$what.py $(filter-out what=%,$(ARGS)) || exit; done

format: $(VENV)/.installed-dev ## format and mend what ruff can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean: ## remove .venv and caches; data and outputs stay
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist docs/build *.egg-info
