# Everything runs from .venv, which is rebuilt only when pyproject.toml or constraints.txt change.

PYTHON ?= python3
PYTEST_ARGS ?=
PYTEST_WORKERS ?= 4
BENCH_ARGS ?=
DEMO_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The demo needs the command alone, which is less than development needs.
COMMAND := $(VENV)/.command
# Created by others at different times: check what is there.
SOURCES := $(wildcard src tests bench docs/build.py)

# Programs, not packages: the sandbox wants bubblewrap, searching is faster with ripgrep, tests that cut a network make one
# with iproute2. None is a reason to fail.
TOOLS = command -v bwrap >/dev/null && command -v rg >/dev/null && command -v ip >/dev/null && exit 0; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing bubblewrap, ripgrep and iproute2 …"; \
		{ apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y bubblewrap ripgrep iproute2; } \
			>/dev/null 2>&1 && exit 0; \
	fi; \
	echo "hint: install the packages bubblewrap, ripgrep and iproute2; without them commands run unconfined, searching" \
		"is slower, and tests cut connections instead of a network"

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# Where it is set, every process that a test starts compiles all of the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo setup check test bench docs clean

help:  ## Show this help
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' Makefile

demo: $(COMMAND)  ## See a team at work: no key, no network; DEMO_ARGS='--chaos' is handed on
	@$(TOOLS)
	@$(BIN)/bullpen demo $(DEMO_ARGS)

setup: $(STAMP)  ## Create .venv and install everything for development
	@$(TOOLS)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Bullpen needs Python 3.11 or newer; try: make PYTHON=python3.x")'
	@$(PYTHON) -m venv $(VENV)

$(COMMAND): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV) …"
	@$(BIN)/python -m pip install -qq -c constraints.txt -e .
	@touch $@

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing everything for development into $(VENV) …"
	@$(BIN)/python -m pip install -qq -c constraints.txt -e '.[dev]'
	@touch $@ $(COMMAND)

check: setup  ## Lint, formatting, types, architecture
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/mypy $(SOURCES)
	@$(BIN)/lint-imports

test: setup  ## Run the tests; PYTEST_ARGS='-k name' and PYTEST_WORKERS=0 to narrow down
	@$(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal $(PYTEST_ARGS)

bench: setup  ## Run the benchmarks; BENCH_ARGS are handed on
	@$(BIN)/python -m bench $(BENCH_ARGS)

docs: setup  ## Make the generated pages of docs/ anew
	@$(BIN)/python docs/build.py

clean:  ## Remove .venv, caches and build output
	@rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .coverage htmlcov
	@find src tests bench -type d \( -name __pycache__ -o -name '*.egg-info' \) -prune -exec rm -rf {} +
