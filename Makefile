# make ladder        set up .venv, then climb the ladder (on the GPU if there is one, else on the emulator)
# make test          set up .venv, then `make check` and the tests that need no GPU: every rung, type, check and planted bug
# make test-all      the same with every combination of three parameters, which takes far longer
# make test-gpu      the tests that need a GPU
# make docs          write the tables of README.md and docs/ from the records in records/, and replay the timelines
# make check         ruff (lint, format), clang-format, mypy --strict and the test of import directions
#
# PYTHON=python3.12  the interpreter that makes .venv (3.11 or newer)
# VENV=              no environment at all: run with PYTHON and the packages that it already has
# ARGS="-m 193"      more arguments for `warptile ladder`, or for `make docs` (--check, --table NAME)

PYTHON ?= python3
VENV ?= .venv
ARGS ?=

ifeq ($(strip $(VENV)),)
  RUN := env PYTHONPATH=src$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON)
  INSTALLED :=
else
  RUN := $(VENV)/bin/python
  INSTALLED := $(VENV)/.installed
  # Bytecode is kept in the environment, whatever the caller's settings: programs that tests start need not compile
  # the package again.
  export PYTHONDONTWRITEBYTECODE :=
  export PYTHONPYCACHEPREFIX := $(abspath $(VENV))/bytecode
endif

CLANG_FORMAT := find src/warptile/kernels -name '*.cuh' | xargs $(RUN) -c 'from clang_format import clang_format; clang_format()'
PYTEST := -m pytest --durations=15 -rs
# All but the tests that `make check` has run before.
MOST_TESTS := -n 2 --dist worksteal tests/cpu tests/gpu --ignore=tests/cpu/repository/test_imports.py

.PHONY: ladder test test-all test-gpu docs check format clean

ladder: $(INSTALLED)
	@$(RUN) -m warptile.cli.main ladder $(ARGS)

test: checked-and-warm
	@$(RUN) $(PYTEST) $(MOST_TESTS)

test-all: checked-and-warm
	@WARPTILE_TESTS=all $(RUN) $(PYTEST) $(MOST_TESTS)

# The checks take one core. Meanwhile the other compiles what both workers of the tests would compile each for itself:
# the emulator's loops, the functions of its checks and sums that Numba compiles when a product needs them, and their
# modules. What goes wrong there goes wrong in the tests too, with a message.
PRODUCT := import numpy as np, warptile as wt; x = np.ones((64, 64), np.float16); wt.matmul(x, x, backend="emulator")
.PHONY: checked-and-warm warm
checked-and-warm: $(INSTALLED)
	@$(MAKE) --no-print-directory --jobs=2 check warm

warm: $(INSTALLED)
	-@$(RUN) -c 'from warptile.emulator.compiled_steps.step_library import library; library(wait=True)' >/dev/null 2>&1
	-@$(RUN) -c '$(PRODUCT)' >/dev/null 2>&1
	-@$(RUN) -m pytest -qq --collect-only tests/cpu tests/gpu >/dev/null 2>&1

test-gpu: $(INSTALLED)
	@$(RUN) $(PYTEST) tests/gpu

docs: $(INSTALLED)
	@$(RUN) -m warptile.bench.report.update_documents $(ARGS)

check: $(INSTALLED)
	@$(RUN) -m ruff check --quiet .
	@$(RUN) -m ruff format --check --quiet .
	@$(CLANG_FORMAT) --dry-run --Werror
	@$(RUN) -m mypy
	@$(RUN) -m pytest tests/cpu/repository/test_imports.py

format: $(INSTALLED)
	@$(RUN) -m ruff check --fix --quiet .
	@$(RUN) -m ruff format --quiet .
	@$(CLANG_FORMAT) -i

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
