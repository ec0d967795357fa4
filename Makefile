# What a person or CI runs here. Needs python3 (3.11 or later, with venv) and make; the
# virtual environment in .venv makes itself and is made again when pyproject.toml changes.
#
# Every path is relative and tools start as `python -m`, never through a script with a path
# in its first line: so the directory may have any name.

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input -qq
ARGS ?=

# Somebody else's environment must not reach into ours.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONOPTIMIZE PYTHONSAFEPATH PYTHONSTARTUP
unexport PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT MYPYPATH

.DEFAULT_GOAL := help
.PHONY: help demo test chaos soak check lint types layers bench format clean FORCE

help:
	@echo 'make demo     the point, offline: killed in the middle of a payment, and paid once'
	@echo 'make test     the tests            (ARGS="-k name" goes to pytest)'
	@echo 'make chaos    runs whose processes die at every write, all of them'
	@echo 'make soak     two minutes of processes that drive one Postgres, killed and paused'
	@echo 'make check    lint, types and layers; each is a target of its own'
	@echo 'make bench    the benchmarks       (ARGS goes to them)'
	@echo 'make format   format and fix what can be fixed'
	@echo 'make clean    remove .venv, caches and builds'

demo: $(VENV)/.demo
	@$(PY) -m perdure demo $(ARGS)

test: $(VENV)/.dev
	$(PY) -m pytest $(ARGS)

chaos: $(VENV)/.dev
	$(PY) -m pytest tests/chaos/matrix.py $(ARGS)

soak: $(VENV)/.dev
	$(PY) -m pytest -s tests/chaos/soak.py $(ARGS)

check: lint types layers

lint: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(VENV)/.dev
	$(PY) -m mypy
	@case "$$(pwd)" in *[*?\\]*) \
	  echo 'pyright finds no file in a directory with *, ? or \ in its name' >&2; exit 1;; esac
	$(PY) -m pyright

layers: $(VENV)/.dev
	$(PY) -c 'from importlinter.cli import lint_imports_command as main; main()' --no-logo

bench: $(VENV)/.bench
	$(PY) -m benchmarks $(ARGS)

format: $(VENV)/.dev
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

clean:
	rm -rf $(VENV) build dist
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name .git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

# --- the virtual environment ---------------------------------------------------
# The stamps in it say what is installed. The first records where it was made: a checkout
# that was moved or copied, or whose Python has gone, gets a new one.

$(VENV)/.made: FORCE
	@$(PY) -c 'import os, sys; sys.exit(open("$@", "rb").read() != os.getcwdb())' 2>/dev/null || { \
	  "$(PYTHON)" -c '' || { \
	    echo 'perdure needs python3, 3.11 or later; name one with: make PYTHON=/path/to/python3' >&2; exit 1; }; \
	  "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "perdure needs Python 3.11 or later, and $(PYTHON) is" \
	      "$$("$(PYTHON)" -c 'import sys; print(sys.version.split()[0])');" \
	      'name another with: make PYTHON=python3.12' >&2; exit 1; }; \
	  echo 'making $(VENV) ...' && \
	  $(MAKE_VENV) && \
	  $(PIP) install 'pip>=25.1' && \
	  $(PY) -c 'import os; open("$@", "wb").write(os.getcwdb())'; }

# venv refuses a directory with ':' in its name, because activating it would break PATH.
# Nothing here activates it, so the refusal is turned off.
MAKE_VENV := "$(PYTHON)" -c 'import os, runpy; os.pathsep = "\0"; \
	runpy.run_module("venv", run_name="__main__", alter_sys=True)' --clear $(VENV)

# pip reads --group, which 25.1 brought, from pyproject.toml.
$(VENV)/.demo: $(VENV)/.made pyproject.toml
	@echo 'installing perdure into $(VENV) ...'
	@$(PIP) install -e '.[cli]'
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	@echo 'installing the development tools into $(VENV) ...'
	@$(PIP) install --group dev
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	@echo 'installing the peers to measure into $(VENV) ...'
	@$(PIP) install --group bench
	@touch $@
