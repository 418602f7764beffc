# Every target is what CI and people run alike. `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
K8S ?= 1.37
CASES ?= 0
SEED ?= 1
.DEFAULT_GOAL := help

.PHONY: help
help: ## show the targets
	@grep -E '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed, this is %d.%d" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml | $(VENV)/bin/python
	@test -e $(VENV)/.dev || $(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: pyproject.toml requirements-dev.lock | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $@ $(VENV)/.runtime

.PHONY: demo
demo: $(VENV)/.runtime ## schedule a mixed GPU and NIC workload in one process, no cluster needed
	@$(BIN)/dra-scheduler demo

.PHONY: fmt
fmt: $(VENV)/.dev ## format and fix what can be fixed
	$(BIN)/ruff check --fix --quiet .
	$(BIN)/ruff format --quiet .

.PHONY: lint
lint: $(VENV)/.dev ## format, lint, types, import layers
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: unit
unit: $(VENV)/.dev ## tests without lint; branch coverage of the allocator is a gate
	$(BIN)/pytest -n 2 --dist loadfile -q -m "not integration" tests/allocator tests/conformance --cov=allocator --cov-report=
	@$(BIN)/coverage report --include='allocator/*' --fail-under=95 --format=total | sed 's/^/branch coverage of allocator: /;s/$$/ %/'; exit $${PIPESTATUS[0]}
	$(BIN)/pytest -n 2 --dist loadfile -q -m "not integration" tests --ignore=tests/allocator --ignore=tests/conformance

.PHONY: coverage
coverage: $(VENV)/.dev ## branch coverage of everything, slowly
	$(BIN)/pytest -n 2 --dist loadfile -q -m "not integration" --cov --cov-report=term

.PHONY: test
test: lint unit ## lint and all tests that need no control plane (README's second command)

.PHONY: controlplane
controlplane: ## build the real control plane once (Go), cached by version
	@bash e2e/controlplane/build.sh $(K8S)

.PHONY: e2e
e2e: $(VENV)/.dev ## the real control plane: contract, lifecycle, extender, stand-alone, RBAC, faults
	@if [ -z "$$KUBECONFIG" ]; then bash e2e/controlplane/build.sh $(K8S) >/dev/null; fi
	DRA_E2E_KUBERNETES_VERSION=$(K8S) $(BIN)/pytest -q -m integration e2e tests/contract

.PHONY: simulate-seeds
simulate-seeds: $(VENV)/.dev ## 300 seeds of the simulation; SEED=n begins elsewhere
	$(BIN)/python -m tests.simulation.run --seeds $(SEED)-$$(($(SEED) + 299)) --jobs 2

.PHONY: simulate-soak
simulate-soak: $(VENV)/.dev ## 2,000 seeds of the simulation; every kind of fault, crash and outcome must have happened
	$(BIN)/python -m tests.simulation.run --seeds $(SEED)-$$(($(SEED) + 1999)) --jobs 2 --gates

.PHONY: simulate-crashes
simulate-crashes: $(VENV)/.dev ## killed at each write, in each phase, and compared with a run without the crash
	$(BIN)/python -m tests.simulation.crashes

.PHONY: simulate-planted
simulate-planted: $(VENV)/.dev ## every bug that is planted in the application must be found by the simulation
	$(BIN)/python -m tests.simulation.planted

.PHONY: crash-sweep
crash-sweep: $(VENV)/.dev controlplane ## killed at POINTS drawn writes on the real control plane (0: all), and made good
	DRA_E2E_KUBERNETES_VERSION=$(K8S) $(BIN)/python -m e2e.crashes --points $(or $(POINTS),15) --seed $(SEED)

.PHONY: chaos
chaos: $(VENV)/.dev controlplane ## ROUNDS rounds of load and drawn faults on the real control plane, judged
	DRA_E2E_KUBERNETES_VERSION=$(K8S) $(BIN)/python -m e2e.chaos --rounds $(or $(ROUNDS),4) --seed $(SEED)

.PHONY: every-device
every-device: $(VENV)/.dev controlplane ## 800 devices, 800 pods, each device exactly once; MODES=standalone,safe,fast
	DRA_E2E_KUBERNETES_VERSION=$(K8S) $(BIN)/python -m e2e.every_device --modes $(or $(MODES),standalone) --repeats $(or $(REPEATS),1)

.PHONY: takeovers
takeovers: $(VENV)/.dev controlplane ## the leader is killed in a burst of 500 pods, TIMES times in each mode
	DRA_E2E_KUBERNETES_VERSION=$(K8S) $(BIN)/python -m e2e.takeovers --times $(or $(TIMES),10) --seed $(SEED)

.PHONY: hostile
hostile: $(VENV)/.dev controlplane ## what 10,000 odd claims of one tenant cost another, as a row of the benchmarks
	DRA_E2E_KUBERNETES_VERSION=$(K8S) $(BIN)/python -m e2e.hostile --seed $(SEED)

.PHONY: controlplane-soak
controlplane-soak: $(VENV)/.dev controlplane ## the long sizes on the real control plane: about an hour and a half
	$(MAKE) crash-sweep POINTS=120
	$(MAKE) chaos ROUNDS=50
	$(MAKE) every-device MODES=standalone,safe,fast REPEATS=3
	$(MAKE) takeovers TIMES=10
	DRA_E2E_KUBERNETES_VERSION=$(K8S) $(BIN)/python -m e2e.soak --minutes $(or $(MINUTES),6) --seed $(SEED)
	$(MAKE) hostile

.PHONY: mutants
mutants: $(VENV)/.dev ## change scheduler/ in COUNT places, one at a time; the tests must notice
	$(BIN)/python -m tests.mutants.run --count $(or $(COUNT),80) --seed $(SEED)

.PHONY: nightly
nightly: crash-sweep chaos every-device takeovers mutants ## what is too long for .ci/run: crashes, chaos, takeovers, mutants

.PHONY: soak
soak: simulate-soak simulate-crashes simulate-planted controlplane-soak ## what takes hours: the long sizes of everything

.PHONY: conformance
conformance: $(VENV)/.dev ## ask upstream's allocator and CEL afresh (Go) and compare; CASES=n random cases on top
	$(BIN)/python -m tests.conformance.run --cases $(CASES)

.PHONY: bench
bench: $(VENV)/.dev ## measure; BENCH=name runs one, BENCH_FULL=1 long backlogs three times, BENCH_PODS=n backlogs of n
	$(BIN)/python -m tests.benchmarks.run $(if $(BENCH),--bench $(BENCH)) $(if $(BENCH_FULL),--full) $(if $(BENCH_PODS),--pods $(BENCH_PODS)) $(if $(DATA_DIR),--data-dir $(DATA_DIR))

DOCS_VENV := .venv-docs
$(DOCS_VENV)/.installed: requirements-docs.lock
	$(PYTHON) -m venv $(DOCS_VENV)
	$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: -r requirements-docs.lock
	@touch $@

.PHONY: docs
docs: $(VENV)/.dev $(DOCS_VENV)/.installed ## the documentation site, strictly, into site/; fails on broken links and stale reference pages
	$(BIN)/python -m docs.gen --check
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict

.PHONY: docs-lock
docs-lock: $(DOCS_VENV)/.installed ## write the lock file of the documentation's tools afresh
	$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check pip-tools
	$(DOCS_VENV)/bin/pip-compile --quiet --upgrade --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --output-file requirements-docs.lock requirements-docs.in

.PHONY: kind-e2e
kind-e2e: $(VENV)/.dev ## for a person with Docker: kind cluster, image, cluster-agnostic e2e
	bash e2e/kind.sh

.PHONY: lock
lock: ## write both lock files afresh
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --output-file requirements-dev.lock pyproject.toml requirements-dev.in
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --output-file requirements.lock pyproject.toml

.PHONY: clean
clean: ## remove what the targets made here
	rm -rf $(VENV) $(DOCS_VENV) site .coverage .coverage.* .hypothesis .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
