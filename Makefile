# The whole of a developer's day. Each target makes what it needs; ARGS passes options on:
#   make train ARGS="--iterations 20"
PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PROTOS_VENV := .venv-protos
PIP_INSTALL := -m pip --disable-pip-version-check install --quiet

.PHONY: help setup train dashboard test containers check protos docs bench

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## Install Fullrank and the developers' tools into .venv

train: setup ## Train a team on this machine
	$(BIN)/fullrank train $(ARGS)

dashboard: setup ## Show the newest run on a page
	$(BIN)/fullrank dashboard $(ARGS)

test: setup ## Run the tests
	$(BIN)/python -m pytest -m "not slow and not gpu and not docker" $(ARGS)

containers: setup ## Build the images, and test them and their deployments (needs Docker)
	$(BIN)/python -m pytest -m docker $(ARGS)

check: setup $(PROTOS_VENV)/.installed ## Format, lint, types, import arrows, fresh stubs: the gate
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PROTOS_VENV)/bin/python tools/protos.py --check

protos: $(PROTOS_VENV)/.installed ## Generate the stubs in src/fullrank/v1 from protos/
	$(PROTOS_VENV)/bin/python tools/protos.py

docs: $(VENV)/.installed-docs ## Build the site of docs/ into site/, without a warning
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/.installed-bench ## Run every benchmark; write docs/benchmarks.md
	$(BIN)/python tools/bench.py $(ARGS)

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[docs]'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(BIN)/python $(PIP_INSTALL) -c constraints.txt -e '.[bench]'
	@touch $@

# Of their own: the oldest supported grpcio-tools want another protobuf than the services install.
$(PROTOS_VENV)/.installed: tools/protos-requirements.txt
	$(PYTHON) -m venv $(PROTOS_VENV)
	$(PROTOS_VENV)/bin/python $(PIP_INSTALL) -r $<
	@touch $@
