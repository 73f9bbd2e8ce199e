# Everyday commands. Each target makes what it needs; ARGS passes options on:
#   make train ARGS="--iterations 20"
PYTHON ?= python3
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
PROTOS_VENV := .venv-protos
# Python compiles what it imports, once, unless it is told to keep nothing.
unexport PYTHONDONTWRITEBYTECODE
PIP := -m pip --disable-pip-version-check install --quiet --no-compile

# What `make test` leaves to `make test-all`; one end-to-end run of each kind stays.
REST := integration or e2e or browser or docker or slow or gpu or thorough
# Files go to workers in alphabetical order: the longest, of conformance and e2e, come early.
PYTEST := -m pytest --dist loadfile --no-loadscope-reorder

# Install packages into an environment; pip's output is shown only where it fails.
#   $(call install,ENVIRONMENT,WORDS)
define install
	@echo "Fullrank: installing into $(1), once (about a minute)"
	@$(1)/bin/python $(PIP) $(2) >$(1)/pip.log 2>&1 || { cat $(1)/pip.log; exit 1; }
endef

.PHONY: help setup train demo dashboard test test-all gpu images containers check protos docs bench
.PHONY: release audit

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## Install Fullrank and the developers' tools into .venv

train: setup ## Train a team on this machine, in one process
	@$(BIN)/fullrank train --local $(ARGS)

demo: setup ## Train while a learner is killed, one is late and one lies (a minute)
	@$(BIN)/python examples/demo.py

dashboard: setup ## Show the newest run on a page
	@$(BIN)/fullrank dashboard $(ARGS)

test: setup ## Run the unit and conformance tests and an end-to-end run of each kind
	$(BIN)/python $(PYTEST) -n 2 --hypothesis-profile=quick -m "smoke or not ($(REST))" $(ARGS)

# Six workers, also on two cores: tests of services mostly wait.
test-all: setup ## Run all tests but those that need Docker or a GPU
	$(BIN)/python $(PYTEST) -n 6 -m "not slow and not gpu and not docker" $(ARGS)

# It needs no network: without .venv it takes what PYTHON has, and imports this checkout.
gpu: ## Test and measure a CUDA device, in ten minutes at most
	@$(or $(wildcard $(BIN)/python),$(PYTHON)) tools/gpu.py $(ARGS)

images: ## Build the images of all six services (needs Docker)
	docker compose -f deploy/docker-compose.yml --profile lab --profile dashboard build $(ARGS)

# Its first test builds the images, which takes long where other work shares the cores.
containers: setup ## Build the images, and test them and their deployments (needs Docker)
	$(BIN)/python -m pytest -m docker --timeout 1800 --maxfail 2 tests/e2e $(ARGS)

check: setup $(PROTOS_VENV)/.installed ## Format, lint, types, import arrows, budgets, fresh stubs: the gate
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/budget.py
	$(PROTOS_VENV)/bin/python tools/protos.py --check

protos: $(PROTOS_VENV)/.installed ## Generate the stubs in src/fullrank/v1 from protos/
	$(PROTOS_VENV)/bin/python tools/protos.py

docs: $(VENV)/.installed-docs ## Build the site of docs/ into site/, without a warning
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(VENV)/.installed-bench ## Run every benchmark; write docs/benchmarks.md
	$(BIN)/python tools/bench.py $(ARGS)

release: $(VENV)/.installed-release ## Build wheel, sdist and bills of materials into dist/
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python tools/distribution.py materials dist/materials

audit: $(VENV)/.installed-release ## Look for known vulnerabilities of what is installed or locked
	$(BIN)/python tools/audit.py

# `make setup EXTRAS=docs,release` makes a new environment with these, too, in one call of pip.
EXTRAS :=
comma := ,
$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -m venv $(VENV)
	$(call install,$(VENV),-c constraints.txt -e '.[dev$(EXTRAS:%=$(comma)%)]')
	@touch $@ $(patsubst %,$(VENV)/.installed-%,$(subst $(comma), ,$(EXTRAS)))

$(VENV)/.installed-%: $(VENV)/.installed
	$(call install,$(VENV),-c constraints.txt -e '.[$*]')
	@touch $@

# Of their own: the oldest supported grpcio-tools want another protobuf than the services install.
$(PROTOS_VENV)/.installed: tools/protos-requirements.txt
	@$(PYTHON) -m venv $(PROTOS_VENV)
	$(call install,$(PROTOS_VENV),-r $<)
	@touch $@
