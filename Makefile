# Every target sets up what it needs first; `make setup` alone builds .venv with the penstock command.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARCHIVE := $(VENV)/spark.jsa

# Hundreds of processes of the tests would each compile the package anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo test lint format docs bench lock clean
.DEFAULT_GOAL := help

help:  ## Show the targets.
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/ \t/' | expand -t 10

setup: $(STAMP)  ## Create .venv with the penstock command in it.

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Penstock needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make $@ PYTHON=python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (about a minute) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup  ## Load files and a stream, kill the process in the middle, start again, count the rows.
	@$(BIN)/python -m examples.demo

# Every worker has servers and a Spark of its own, so more of them need more memory; tests that
# share what is slow to make are one group and stay together.
test: setup  ## Run the checks and all tests.
	@$(MAKE) --no-print-directory --jobs 2 lint $(ARCHIVE)
	@$(BIN)/python -m pytest --numprocesses logical --maxprocesses 4 --dist loadgroup

$(ARCHIVE): $(STAMP)
	@echo "Archiving what Spark loads, for the tests (about a minute) …"
	@rm -f $@ && $(BIN)/python -m tests.spark_archive > $(VENV)/spark-archive.log 2>&1 || cat $(VENV)/spark-archive.log

lint: setup  ## Check format, rules, types and layers.
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo > $(VENV)/lint-imports.log || { cat $(VENV)/lint-imports.log; exit 1; }

format: setup  ## Format the code and apply safe fixes.
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

docs: setup  ## Write the tables of the reference from the code.
	@$(BIN)/python docs/generate.py

bench: setup  ## Measure against plain copies, Spark's own stream and a hand-written loop.
	@$(BIN)/python benchmarks/files.py

lock: setup  ## Pin the newest allowed versions with their hashes.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --extra dev pyproject.toml --output-file requirements.lock

clean:  ## Remove .venv and caches.
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
