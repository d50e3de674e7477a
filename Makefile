# One door to everything: `make check` before every commit, `make test` for all of it. Each target sets up what it
# needs by itself, and does nothing twice.
PYTHON ?= python3

VENV := .venv
BIN  := $(VENV)/bin
JS   := tests/compat/js
# The JavaScript tests find `node`, and all others `twinbus`, as a user with an activated environment would.
export PATH := $(CURDIR)/$(BIN):$(PATH)

PIP  := $(BIN)/python -m pip --disable-pip-version-check install -qq
LOCK := $(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
        --no-annotate --no-emit-index-url --custom-compile-command 'make lock' $(UPGRADE)

.PHONY: help setup check lint types test test-long test-postgres test-cluster drill bench bench-filters bench-ledger bench-outbox bench-source \
        bench-syphon compatibility lock clean

help:
	@echo "make setup   the virtual environment in .venv, with the twinbus command in it"
	@echo "make check   format, lint, types, tidiness and unit tests: under a minute"
	@echo "make test    everything"
	@echo "make test-long   what is left to chance, many times over: kills at random moments, stores that are lost"
	@echo "make test-postgres   all compatibility tests again, on two gateways that share a PostgreSQL database"
	@echo "make test-cluster   Spark on a standalone master with two workers, too"
	@echo "make drill   a primary namespace is killed under a paired sender, and every message is accounted for"
	@echo "make bench-filters   what filters of subscriptions cost"
	@echo "make bench-ledger   what a look-up and a mark cost among ten million messages"
	@echo "make bench-outbox   how many messages a second an outbox takes durably"
	@echo "make bench-source   how many rows a second Spark reads from queues"
	@echo "make bench-syphon   how fast a backlog is brought home by Spark, by a pump, by a loop of the SDK"
	@echo "make bench   throughput and latency of a broker on this machine"
	@echo "make compatibility   write docs/compatibility.md from the tests"
	@echo "make lock    compile the pins from pyproject.toml; with UPGRADE=--upgrade, to the newest releases"
	@echo "make clean   remove what the other targets made"

setup: $(VENV)/.stamp $(JS)/node_modules/.stamp

$(VENV)/.stamp: requirements/system.sh requirements/build.txt requirements/dev.txt pyproject.toml
	bash requirements/system.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(PIP) --require-hashes --only-binary :all: -r requirements/build.txt
	$(PIP) --require-hashes --no-build-isolation -r requirements/dev.txt
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@

$(JS)/node_modules/.stamp: $(VENV)/.stamp $(JS)/package.json $(JS)/package-lock.json
	cd $(JS) && npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	touch $@

check: $(VENV)/.stamp lint types
	$(BIN)/python -m pytest -q tests/unit

lint: $(VENV)/.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.stamp
	$(BIN)/mypy

# Two at a time, a file by one worker; then, one by one, what measures time.
test: setup lint types
	$(BIN)/python -m pytest -n 3 --dist loadfile -m "not alone"
	$(BIN)/python -m pytest -m alone
	TWINBUS_TEST_STORE=postgresql $(BIN)/python -m pytest -n 2 --dist loadfile -m gateways tests/compat

test-long: setup
	TWINBUS_TEST_LONG=1 $(BIN)/python -m pytest -n 2 --dist loadfile tests/faults tests/pair/test_syphon_killed.py

test-postgres: setup
	TWINBUS_TEST_STORE=postgresql $(BIN)/python -m pytest -n 2 --dist loadfile tests/compat

test-cluster: setup
	TWINBUS_TEST_CLUSTER=1 $(BIN)/python -m pytest tests/pipeline/test_cluster.py tests/pipeline/test_syphon_killed.py tests/pipeline/test_spark_crash.py

drill: $(VENV)/.stamp
	$(BIN)/twinbus drill

bench: $(VENV)/.stamp
	$(BIN)/twinbus bench

bench-filters: $(VENV)/.stamp
	$(BIN)/twinbus bench-filters

bench-ledger: $(VENV)/.stamp
	$(BIN)/twinbus bench-ledger

bench-outbox: $(VENV)/.stamp
	$(BIN)/twinbus bench-outbox

bench-source: $(VENV)/.stamp
	$(BIN)/twinbus bench-source

bench-syphon: $(VENV)/.stamp
	$(BIN)/twinbus bench-syphon

compatibility: $(VENV)/.stamp
	$(BIN)/python tests/support/features.py

lock: $(VENV)/.stamp
	$(LOCK) --extra dev pyproject.toml -o requirements/dev.txt
	$(LOCK) --constraint requirements/dev.txt requirements/build.in -o requirements/build.txt
	cd $(JS) && npm install --package-lock-only --ignore-scripts --no-audit --no-fund

clean:
	rm -rf $(VENV) $(JS)/node_modules build dist src/*.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
