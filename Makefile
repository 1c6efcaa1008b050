# Every target makes .venv by itself: with uv where it is installed, else with python3 -m venv and pip.
# On a fresh Debian machine: apt-get install -y git make python3 python3-venv

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# A test that hangs ends its worker, which names it, instead of holding up all others.
HANGS := -o faulthandler_timeout=120 -o faulthandler_exit_on_timeout=true
SOURCES := cdd_agent pytest_tdd_agent tests
DEV = $(shell $(PYTHON) -c 'import shlex, tomllib; \
  print(*map(shlex.quote, tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"]))')

unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test check suite bench libraries projects matrix soak soak-kills soak-slow soak-search soak-verdicts format clean venv-package

help: ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@if command -v uv >/dev/null 2>&1; then \
	  uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) \
	  && uv pip install --quiet --python $(BIN)/python -e . $(DEV); \
	else \
	  $(PYTHON) -c 'import ensurepip' 2>/dev/null || $(MAKE) --no-print-directory venv-package; \
	  $(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --disable-pip-version-check -e . $(DEV); \
	fi
	@touch $(READY)

venv-package: # Debian keeps what `python3 -m venv` needs in a package of its own
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null; \
	else \
	  echo "python3 -m venv does not work here; on Debian: apt-get install -y python3-venv" >&2; exit 1; \
	fi

demo: $(READY) ## a ticket becomes tested commits, from a recording, in a new folder
	@$(BIN)/cdd demo

test: $(READY) ## all checks and tests side by side, and what they cost
	@MAKE='$(MAKE)' $(BIN)/python tests/timed.py check suite

check: $(READY) ## format, lint, types, layers
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

suite: $(READY) ## the tests
	-@$(BIN)/python -m pytest --collect-only -qq >/dev/null # compiles the tests, which each worker would do
	$(BIN)/python -m pytest -n 4 --dist worksteal -m "not slow" $(HANGS)

bench: $(READY) ## what start-up and the plugin cost, beside its peers
	$(BIN)/python -m tests.bench

libraries: $(READY) ## the tests of libraries, with and without the plugin, and rebuilt from their planning graphs, by files and by cdd generate
	$(BIN)/python -m tests.libraries
	$(BIN)/python -m tests.libraries.rebuild
	$(BIN)/python -m tests.libraries.generation cachetools deprecated tinydb

projects: $(READY) ## whole runs in projects that need care, at each level of the sandbox
	$(BIN)/python -m tests.projects

matrix: $(READY) ## the plugin on every interpreter found, from pytest 7.0 to 9
	$(BIN)/python -m tests.pytest_tdd_agent.matrix.environments
	$(BIN)/python -m pytest -n 2 -m slow tests/pytest_tdd_agent/matrix

soak: soak-kills soak-slow soak-search soak-verdicts ## the long proofs: kills and hostile inputs, slow tests, random search, cheats

soak-kills: $(READY) # kill -9 at every write, 100,000 inputs for every reader, paths
	$(BIN)/python -m tests.soak

soak-slow: $(READY) # the tests that the suite leaves out
	$(BIN)/python -m pytest -m slow

soak-search: $(READY) # 500 random examples for every property
	$(BIN)/python -m pytest -n 2 -m "not slow" --hypothesis-profile=searching $$(grep -rl --include='test_*.py' '@given' tests)

soak-verdicts: $(READY) # an attempt with each cheat and each honest change
	$(BIN)/python -m tests.verdicts --labels

format: $(READY) ## put the sources into their form
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

clean: ## remove what the targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache .hypothesis
