# Two commands on a fresh machine: `make demo`, `make test`. Everything stays in this folder.

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt
WORKERS ?= 2
# Each worker takes a contiguous half, so that fixtures of a folder are made once; then it steals.
PYTEST = $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

export PIP_NO_INPUT := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-fast lint site bench clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.ready-demo ## plant leaks among real photographs, audit them, count the leaks found
	@$(BIN)/python examples/demo.py demo

test: lint ## check style and types, then run every test
	@$(PYTEST)

test-fast: $(VENV)/.ready-test ## run the tests that are not slow
	@$(PYTEST) -m "not slow"

lint: $(VENV)/.ready-test ## check style (ruff) and types (mypy --strict)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/mypy --strict

site: $(VENV)/.ready-test ## build the documentation site in build/site
	@$(BIN)/python docs/site.py

bench: $(VENV)/.ready-test ## measure again (needs VISLEAK_DATA); fit_*.py and dlede/experiment.py are run by hand
	@set -e; for script in $(filter-out benchmarks/fit_%,$(wildcard benchmarks/*.py)) \
	  benchmarks/dlede/hashes.py benchmarks/dlede/null.py; do \
	  echo "== $$script"; $(BIN)/python "$$script"; done

clean: ## remove everything that make made
	rm -rf $(VENV) .venv-torchvision demo build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# -- the virtual environment ----------------------------------------------------------------------

# PYTHON=... chooses the interpreter; else the first on the PATH that is new enough.
$(BIN)/python:
	@set -e; found=; \
	for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	  then found="$$python"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "visleak needs Python 3.11 or newer; none found as: $(or $(PYTHON),python3). Choose one: make PYTHON=/path/to/python3 ..." >&2; exit 1; fi; \
	if ! "$$found" -c 'import venv, ensurepip' 2>/dev/null; then \
	  echo "$$found cannot make virtual environments: install its venv package (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; fi; \
	"$$found" -m venv $(VENV)

$(VENV)/.ready-demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing visleak and scikit-image into $(VENV) ..."
	@$(PIP) -e . scikit-image
	@touch $@

$(VENV)/.ready-test: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing visleak and what its tests need into $(VENV) ..."
	@$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.ready-demo
