# The two main targets: `make demo` shows the bridge at work, `make test` runs all tests.  Both set up everything that they need.
VENV   := .venv
# The Python that made the environment: another one would mix its version into it.
PYTHON ?= $(or $(shell $(VENV)/bin/python -c 'import sys; print(sys._base_executable)' 2>/dev/null),python3)
BIN    := $(VENV)/bin
RIG    := integration/rig
RIG_NAME ?= rig1

.PHONY: help demo test setup check format lint types contracts unit simulation replicas contract integration beside-journeys torture mutants bench pictures rig-up rig-down dist image chart-schema reference lock clean

help:            ## list these targets
	@grep -hE '^[a-z-]+: .*##|^[a-z-]+:  *##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

setup: $(VENV)/.done  ## the Python environment, from the hashed lock files

$(VENV)/.done: requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("slurm-bridge needs Python 3.11 or newer, this is %d.%d: make PYTHON=python3.12 …" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -c 'import ensurepip, venv' || { echo "Python has no venv module here: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
# No bytecode for thousands of files that are never imported: Python compiles the other files at their first import.
	$(BIN)/pip install --quiet --disable-pip-version-check --no-compile --require-hashes -r requirements-dev.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q bridge scheduler  # as in an installed package; Python may have no right to write bytecode later
	@touch $@

demo: setup      ## see it work: a page with two simulated clusters (prints its URL), and a kubeconfig for kubectl
	$(BIN)/slurm-bridge dev

check: format lint types contracts unit  ## the checks that a change must pass before a commit

format: setup    ## a part of check: is the code formatted?
	$(BIN)/ruff format --check .

lint: setup      ## a part of check
	$(BIN)/ruff check .

types: setup     ## a part of check: mypy, also of the tests
	$(BIN)/mypy

contracts: setup ## a part of check: who may import whom
	$(BIN)/lint-imports

unit: setup      ## a part of check: unit and property tests, and the coverage of the scheduler
	$(BIN)/python -m slipcover --dont-wrap-pytest --out .coverage.json -m pytest -q tests/unit/scheduler
	$(BIN)/python -m tests.coverage .coverage.json
	$(BIN)/pytest -q tests/unit tests/properties --ignore=tests/unit/scheduler

simulation: setup  ## 1,000 seeds of the real core and executor on the simulated clusters
	$(BIN)/pytest -q tests/simulation

replicas: setup    ## two replicas and a lease among faults: 200 seeds of an hour each, which takes hours: [SEEDS=200] [HOURS=1]
	SEEDS=$(or $(SEEDS),200) HOURS=$(or $(HOURS),1) $(BIN)/pytest -q tests/simulation/test_replicas.py -k two_replicas

contract: setup    ## recordings and simulated clusters; the real servers take part in `make integration`
	$(BIN)/pytest -q tests/contract

integration: setup ## journeys on real Slurm and real Kubernetes (KUBECONFIG and SLURM_REST of an existing pair, else a rig of its own); the page in Chromium
	$(BIN)/python integration/run.py

torture: setup   ## real clusters: Slurm's side answers wrongly, and all processes are killed and frozen: [TORTURE_S=60] [CYCLES=500] [SEED=n]
	TORTURE_ALONE=1 TORTURE_S=$(or $(TORTURE_S),60) CYCLES=$(or $(CYCLES),500) SEED=$(SEED) $(BIN)/python integration/run.py torture

mutants: setup   ## changes of the scheduler that no test notices, and the score: [PATHS=scheduler/state] [EVERY=10] [JOBS=2] [BUDGET=2]
	$(BIN)/python -m tests.mutants $(PATHS) $(if $(EVERY),--every $(EVERY)) $(if $(JOBS),--jobs $(JOBS)) $(if $(BUDGET),--budget $(BUDGET))

test: setup      ## all tests that this machine can run; the output names the others
# Everything else runs beside the journeys, at low priority, whenever these wait.
	$(MAKE) --no-print-directory -j2 beside-journeys integration

beside-journeys: setup
	nice -n 19 $(MAKE) --no-print-directory --output-sync=target -j3 simulation check contract

bench: setup     ## figures beside the floor, on a rig of its own: [SCENARIO=burst] [REPEATS=1] [PROFILE=FILE] [WRITE=1]
	$(BIN)/python -m integration.bench $(SCENARIO) --json $(if $(WRITE),docs/performance.json,bench.json) $(if $(REPEATS),--repeats $(REPEATS)) \
	    $(if $(PROFILE),--profile $(PROFILE)) $(if $(WRITE),--write docs/performance.md)

pictures: setup  ## the pictures of README and docs, from the page of a bridge on a rig
	PICTURES=$(CURDIR)/docs $(BIN)/python integration/run.py pictures

rig-up:          ## real Slurm and real Kubernetes on this machine; prints how to use them
	$(RIG) up --name $(RIG_NAME)

rig-down:        ## ends what rig-up started
	$(RIG) down --name $(RIG_NAME)

dist: setup      ## an sdist and a wheel in dist/
	$(BIN)/python -m hatchling build -d dist

image:           ## the container image, built by buildah on Debian's Python; prints the path of its archive (root)
	$(RIG) image

chart-schema: setup  ## write values.schema.json of the Helm chart, from the settings
	$(BIN)/python -m integration.chart

reference: chart-schema  ## write the generated documents (settings, annotations, messages, reasons, findings, parts of others) and the chart's schema
	$(BIN)/python -m integration.reference

lock:            ## resolve the dependencies again, into the lock files
	$(PYTHON) -m venv $(VENV)-lock && $(VENV)-lock/bin/pip install --quiet pip-tools
	$(VENV)-lock/bin/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --strip-extras --no-header --extra webhook -o requirements.txt pyproject.toml
	$(VENV)-lock/bin/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --strip-extras --no-header --extra dev --all-build-deps --constraint requirements.txt -o requirements-dev.txt pyproject.toml
	$(VENV)-lock/bin/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-trusted-host --no-emit-find-links --strip-extras --no-header --all-build-deps --only-build-deps --constraint requirements-dev.txt -o requirements-build.txt pyproject.toml
	rm -rf $(VENV)-lock

clean:           ## remove the environment, caches and what was built
	rm -rf $(VENV) dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage.json .mutants
