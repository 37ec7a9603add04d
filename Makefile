# Every target first installs what it needs. `make setup` only creates .venv with the penstock command.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARCHIVE := $(VENV)/spark.jsa
WHEELS ?= dist

# Write bytecode, because the tests start hundreds of processes that would compile the package again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo test lint format docs wheel bench lock clean
.DEFAULT_GOAL := help

help:  ## Show the targets.
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/ \t/' | expand -t 10

setup: $(STAMP)  ## Create .venv with the penstock command.

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Penstock needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make $@ PYTHON=python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (about a minute) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: setup  ## Load files and a stream, kill the process, start it again, count the rows.
	@$(BIN)/python -m examples.demo

# Every worker starts its own servers and Spark, so more workers need more memory. Tests that share
# a slow fixture are a group and run on the same worker.
test: setup  ## Run the checks and all tests.
	@$(MAKE) --no-print-directory --jobs 2 lint $(ARCHIVE)
	@$(BIN)/python -m pytest --numprocesses logical --maxprocesses 4 --dist loadgroup

$(ARCHIVE): $(STAMP)
	@echo "Creating an archive of Spark classes for the tests (about a minute) …"
	@rm -f $@ && $(BIN)/python -m tests.spark_archive > $(VENV)/spark-archive.log 2>&1 || cat $(VENV)/spark-archive.log

lint: setup  ## Check format, lint rules, types and layers.
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports --no-logo > $(VENV)/lint-imports.log || { cat $(VENV)/lint-imports.log; exit 1; }

format: setup  ## Format the code and apply safe fixes.
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --quiet --fix .

docs: setup  ## Generate the tables of the reference from the code.
	@$(BIN)/python docs/generate.py

wheel: setup  ## Build the wheel into dist/, for pip install.
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir $(WHEELS) .
	@ls $(WHEELS)/*.whl

bench: setup  ## Compare Penstock with a plain copy, Spark's own stream and a hand-written loop.
	@$(BIN)/python benchmarks/files.py

lock: setup  ## Pin the newest allowed versions with their hashes.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip compile --quiet --upgrade --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --extra dev pyproject.toml --output-file requirements.lock

clean:  ## Remove .venv and caches.
	@rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
