# One door to everything: `make check` before every commit, `make test` for all of it. Each target sets up what it
# needs by itself, and does nothing twice. Nothing outside this folder is written, but for caches that are there already.
PYTHON ?= python3
TIMES ?= 3

VENV := .venv
BIN  := $(VENV)/bin
JS   := tests/compat/js
# The Python that makes the virtual environment is the one outside it.
OUTER_PYTHON := PATH='$(PATH)' $(PYTHON)
# The JavaScript tests find `node`, and all others `twinbus`, as a user with an activated environment would.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Packages are installed without byte code. Python keeps what it makes, or every process would make it again.
unexport PYTHONDONTWRITEBYTECODE
# The plots' list of fonts; otherwise it is in the home directory.
export MPLCONFIGDIR ?= $(CURDIR)/$(VENV)/matplotlib
# Seconds that one optional part may take to install.
export LIMIT_S ?= 300

INSTALL := $(OUTER_PYTHON) requirements/install.py
# With uv's cache only if there is one.
LOCK := $(BIN)/uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
        --no-annotate --no-emit-index-url --custom-compile-command 'make lock' $(UPGRADE) \
        $(if $(wildcard $(HOME)/.cache/uv),,--no-cache)

.PHONY: help setup check lint types test test-clients test-long test-postgres test-cluster drill bench compatibility \
        lock clean

help:
	@echo "make setup   all that the other targets need, in .venv; what cannot be installed here is left out by name"
	@echo "make check   format, lint, types, tidiness and unit tests: under a minute"
	@echo "make test    everything"
	@echo "make test-clients   the pair again, with older releases of azure-servicebus"
	@echo "make test-long   what is left to chance, many times over: kills at random moments, stores that are lost"
	@echo "make test-postgres   all compatibility tests again, on two gateways that share a PostgreSQL database"
	@echo "make test-cluster   Spark on a standalone master with two workers, too"
	@echo "make drill   a primary namespace is killed under a paired sender, and every message is accounted for"
	@echo "make bench   throughput and latency of a broker on this machine; with NAME=... what else is measured:"
	@echo "      NAME=filters   what filters of subscriptions cost"
	@echo "      NAME=ledger    what a look-up and a mark cost among ten million messages"
	@echo "      NAME=outbox    how many messages a second an outbox takes durably"
	@echo "      NAME=pair      what a healthy send through a pair costs, next to the bare SDK"
	@echo "      NAME=source    how many rows a second Spark reads from queues"
	@echo "      NAME=syphon    how fast a backlog is brought home by Spark, by a pump, by a loop of the SDK"
	@echo "make compatibility   write docs/compatibility.md from the tests"
	@echo "make lock    compile the pins from pyproject.toml; with UPGRADE=--upgrade, to the newest releases"
	@echo "make clean   remove what the other targets made"

# What was left out before is tried again.
setup: $(VENV)/.dev
	@$(INSTALL) optional

# What a drill needs, from wheels alone: no compiler, no root.
$(VENV)/.drill: requirements/install.py requirements/build.txt requirements/drill.txt pyproject.toml
	@$(OUTER_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Twinbus needs Python 3.11 or newer;" \
		"'$(PYTHON)' is not. Name another with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(INSTALL) drill
	@touch $@

$(VENV)/.dev: $(VENV)/.drill requirements/dev.txt
	@$(INSTALL) dev
	@touch $@

check: $(VENV)/.dev lint types
	$(BIN)/python -m pytest -q -n 2 --dist loadfile tests/unit

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/mypy

# All phases run, whatever became of those before; the summary is over all of them.
test: setup
	$(BIN)/python tests/whole.py

# The same with one processor kept busy, to bring out what depends on time: make test-repeat TIMES=20 TESTS=tests/compat/test_relay.py
test-repeat: setup
	$(BIN)/python tests/whole.py --loaded --times $(TIMES) $(TESTS)

# Each release in an environment of its own, from requirements/clients.toml.
test-clients: setup
	$(BIN)/python tests/clients.py $(TESTS)

test-long: setup
	TWINBUS_TEST_LONG=1 $(BIN)/python -m pytest -n 2 --dist loadfile tests/faults tests/pair/test_syphon_killed.py

test-postgres: setup
	TWINBUS_TEST_STORE=postgresql $(BIN)/python -m pytest -n 2 --dist loadfile tests/compat

test-cluster: setup
	TWINBUS_TEST_CLUSTER=1 $(BIN)/python -m pytest tests/pipeline/test_cluster.py tests/pipeline/test_syphon_killed.py tests/pipeline/test_spark_crash.py

drill: $(VENV)/.drill
	$(BIN)/twinbus drill

bench: $(VENV)/.drill
	$(BIN)/twinbus bench$(if $(NAME),-$(NAME))

compatibility: $(VENV)/.dev
	$(BIN)/python tests/support/features.py

# One resolution: what comes after dev.txt takes its versions from there.
lock: setup
	$(LOCK) --extra dev pyproject.toml -o requirements/dev.txt
	$(LOCK) --constraint requirements/dev.txt --extra pair --extra spark --extra java pyproject.toml -o requirements/drill.txt
	for name in build browser node postgres proton; do \
		$(LOCK) --constraint requirements/dev.txt requirements/$$name.in -o requirements/$$name.txt || exit; \
	done
	test ! -x $(BIN)/npm || { cd $(JS) && npm_config_cache=$$(test -d ~/.npm && echo ~/.npm || echo $(CURDIR)/$(VENV)/npm) \
		npm install --package-lock-only --ignore-scripts --no-audit --no-fund --no-update-notifier; }

clean:
	rm -rf $(VENV) $(JS)/node_modules build dist src/*.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
