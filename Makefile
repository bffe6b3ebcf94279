# make ladder        set up .venv, then climb the ladder (on the GPU if there is one, else on the emulator)
# make test          set up .venv, then `make check` and every test that needs no GPU
# make test-gpu      the tests that need a GPU
# make check         ruff (lint, format) and mypy --strict
#
# PYTHON=python3.12  the interpreter that makes .venv (3.11 or newer)
# VENV=              no environment at all: run with PYTHON and the packages that it already has
# ARGS="-m 193"      more arguments for `warptile ladder`

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

ifeq ($(strip $(VENV)),)
  RUN := PYTHONPATH=src$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON)
  INSTALLED :=
else
  RUN := $(VENV)/bin/python
  INSTALLED := $(VENV)/.installed
endif

.PHONY: ladder test test-gpu check format clean

ladder: $(INSTALLED)
	@$(RUN) -m warptile.cli.main ladder $(ARGS)

test: check
	@$(RUN) -m pytest -n 2 --dist worksteal -rs tests/cpu tests/gpu

test-gpu: $(INSTALLED)
	@$(RUN) -m pytest -rs tests/gpu

check: $(INSTALLED)
	@$(RUN) -m ruff check --quiet .
	@$(RUN) -m ruff format --check --quiet .
	@$(RUN) -m mypy

format: $(INSTALLED)
	@$(RUN) -m ruff check --fix --quiet .
	@$(RUN) -m ruff format --quiet .

clean:
	rm -rf $(VENV) build .mypy_cache .pytest_cache .ruff_cache .hypothesis

ifneq ($(INSTALLED),)
# The stamp is newer than what it was made from: a changed pin or dependency installs again.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "warptile needs Python 3.11 or newer: make PYTHON=python3.12")'
	@echo "setting up $(@D)" >&2
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -m pip install --quiet --constraint constraints.txt setuptools
	@$(@D)/bin/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@
endif
