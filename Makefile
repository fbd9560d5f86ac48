# What a person types. Every target sets up what it needs first; a set-up that is done already takes a second.
# The work is in Python (`python -m demo --help`); this file only finds the interpreter.

SHELL := /bin/sh
.DEFAULT_GOAL := help

# The first of these that is Python 3.11 or later: export PYTHON to choose another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

VENV := .venv
BIN := $(VENV)/bin
# The name holds the content's checksum: other requirements, another stamp, and the environment is built anew.
STAMP := $(VENV)/.installed-$(shell cat requirements.txt requirements.lock | cksum | tr ' ' -)

# Through the environment, and absolute: Airflow and Spark start processes of their own, in other directories.
export PYTHONPATH := $(CURDIR)/plugins:$(CURDIR)
# Hundreds of processes are started, and each would compile again what it imports.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup setup-kerberos lock lint format test test-long test-soak docs conformance kill-test upgrade airflow-check test-ui races crash-matrix security-matrix translate-check adopt-check chaos chaos-cut mutation bench-mirror bench-latency bench-fair bench-switch bench-scale bench-validate bench-fleet bench-spread bench-access bench-schemas bench-board alerts-check scrape-check fuzz-reader demo demo-secure demo-kerberos demo-installed demo-full up down brokers brokers-down clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Environment in .venv, jars and archives of their classes in .cache: only what is missing
	@$(BIN)/python -m demo setup

$(STAMP): requirements.txt requirements.lock
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or later on PATH. Install one, or: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: $(PYTHON) is not Python 3.11 or later. Run: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m demo.java
	$(PYTHON) -m venv --clear $(VENV) || { echo "error: $(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	$(BIN)/python -m demo.install
# On all cores, which pip does on one. Templates among the files are no Python.
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $@

setup-kerberos: $(STAMP) ## What Kerberos needs besides: a KDC of the system's (Debian: krb5-kdc), gssapi into .venv
	@$(BIN)/python -m demo setup --kerberos

lock: ## Write requirements.lock anew from the pins of requirements.txt
	$(BIN)/python -m demo.lock

lint: $(STAMP) ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: setup ## The documentation as a site in .cache/site; a link that leads nowhere is an error
	$(BIN)/python -m demo.site

format: setup ## Let ruff correct what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# More than cores: much of the time, tests wait for leases, elections and ends.
WORKERS ?= 7
# Tests of whole clusters and Spark sessions, which keep the cores busy.
test-long test-soak: WORKERS := 4
LONG := tests/conformance $(shell grep -rl 'mark\.long' tests --include='test_*.py')
SOAK := $(shell grep -rl 'mark\.soak' tests --include='test_*.py')
PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadgroup --no-loadscope-reorder --durations 40

test: setup ## All but the longest tests, on real brokers, in WORKERS processes; ARGS="-k lag" for a part of it
	@$(BIN)/python -m demo setup --old-brokers
	$(PYTEST) -m 'not long and not soak' $(ARGS)

test-long: setup ## What takes longer: a real Airflow, Spark clusters, conformance, a registry
	@$(BIN)/python -m demo setup --old-brokers
	$(PYTEST) -m long $(LONG) $(ARGS)

test-soak: setup ## Whole migrations (old clusters, other names, topologies, permissions), short forms of kill-test, chaos and others
	@$(BIN)/python -m demo setup --old-brokers
	$(PYTEST) -m soak $(SOAK) $(ARGS)

conformance: setup ## What the peers' own suites check (docs/conformance.md), as far as only that suite shows it
	$(BIN)/python -m pytest tests/conformance tests/test_conformance.py $(ARGS)

kill-test: setup ## A copy of 1,000,000 records, killed 20 times, compared record by record
	$(BIN)/python -m tests.soak.kill $(ARGS)

# The version before the one house of rooms and steps.
FROM ?= e1bfded

upgrade: setup ## A migration begun by the version FROM=COMMIT and stopped at five places: does this version finish each?
	$(BIN)/python -m tests.soak.upgrade --from $(FROM) $(ARGS)

airflow-check: setup ## Clients go there by waves and back again by a plan's DAGs, on a real Airflow: is nothing lost or left fenced?
	$(BIN)/python -m pytest tests/dags/there_and_back.py $(ARGS)

test-ui: setup ## A whole migration in front of a browser (Chromium), by somebody who may act and somebody who may not
	$(BIN)/python -m tests.ui $(ARGS)

races: setup ## Two movers of one group at once, at every interleaving, in memory and on brokers: it runs on one side
	$(BIN)/python -m tests.races $(ARGS)

crash-matrix: setup ## Each command killed before and after each change that it makes, and run again: the same end as undisturbed?
	$(BIN)/python -m tests.crash $(ARGS)

security-matrix: setup-kerberos ## Every way in (PLAIN, SCRAM, tokens, certificates, Kerberos) on the source with every one on the target
	$(BIN)/python -m tests.modes $(ARGS)

translate-check: setup ## 1,000 random committed offsets: does each translate to its very record?
	$(BIN)/python -m tests.soak.translate $(ARGS)

adopt-check: setup ## What a MirrorMaker 2 copied that was killed twice is taken over: is all named that it lost or doubled?
	$(BIN)/python -m tests.soak.adopt $(ARGS)

ROUNDS ?= 10

chaos: setup ## Every kind of fault under a live workload, each round compared record by record; ROUNDS=50 ARGS="--seed N"
	$(BIN)/python -m tests.chaos --rounds $(ROUNDS) $(ARGS)

chaos-cut: setup ## Faults while producers are switched and groups rolled back, judged by clients' notes; ROUNDS=30 ARGS="--seed N"
	$(BIN)/python -m tests.chaos.cutting --rounds $(ROUNDS) $(ARGS)

mutation: setup ## Hundreds of copies with one fault each: does validation find, name and place it? And 100 clean runs
	$(BIN)/python -m tests.mutation $(ARGS)

alerts-check: setup ## Does each alert rule fire for its fault alone? Needs Prometheus' promtool on PATH
	$(BIN)/python -m tests.metrics.alerts

scrape-check: setup ## A real Prometheus scrapes migrations, some with a fault: do the alerts fire for these alone, has each panel data?
	$(BIN)/python -m tests.metrics.scraped

fuzz-reader: setup ## A million batches of every codec and format: does validation's own reader decode what the Java client does?
	$(BIN)/python -m tests.soak.batches $(ARGS)

bench-mirror: setup ## The same data copied by MirrorMaker 2 and by this mirror, in turn, and the brokers' limit
	$(BIN)/python -m bench.mirror $(ARGS)

bench-scale: setup ## 1,000 topics, 5,000 partitions, 2,000 groups; an offset map of 10,000,000 runs: times and memory
	$(BIN)/python -m bench.scale $(ARGS)

bench-validate: setup ## Both levels of validation, against the mirror's rate and what the brokers give
	$(BIN)/python -m bench.validate $(ARGS)

bench-fleet: setup ## How a validation of 100 TB on 50 executors would be driven: jobs, the driver's time and memory, hours
	$(BIN)/python -m bench.fleet $(ARGS)

bench-spread: setup ## Four executors, three brokers: how even a validation's work is, and whom a lost one takes along
	$(BIN)/python -m bench.spread $(ARGS)

bench-access: setup ## 10,000 ACLs and their users' quotas: planned, made on the target, read back, removed
	$(BIN)/python -m bench.access $(ARGS)

bench-schemas: setup ## 1,000 subjects with references: planned, made on the target's schema registry, read back, deleted
	$(BIN)/python -m bench.schemas $(ARGS)

bench-board: setup ## The board of 300 plans, and the page of one with 10,000 partitions: p95 of 50 loads
	$(BIN)/python -m bench.board $(ARGS)

bench-switch: setup ## How long producers are kept out while they are switched over, in ten cuts
	$(BIN)/python -m tests.soak.switch $(ARGS)

bench-latency: setup ## From a producer's timestamp to readable on the target, beside MirrorMaker 2
	$(BIN)/python -m bench.latency $(ARGS)

bench-fair: setup ## One heavy topic at full rate beside 200 small ones: how much longer do these take? At most twice
	$(BIN)/python -m bench.fair $(ARGS)

demo: setup ## A whole migration, live, from start to report
	$(BIN)/python -m demo run

demo-secure: setup ## The same behind locks: SCRAM over TLS on the source, mutual TLS on the target
	$(BIN)/python -m demo run --secure

demo-kerberos: setup-kerberos ## The same by Kerberos: another principal and keytab on each side, a KDC of the run's own
	$(BIN)/python -m demo run --kerberos

demo-installed: setup ## The same with the wheel, outside of the checkout: a DAGs folder of one file, two workers that share no folder
	$(BIN)/python -m demo run --installed

demo-full: setup ## Producers and groups in two waves, one of them back again, by commands; judged from the clients' notes
	$(BIN)/python -m demo full

up: setup ## The same, left running with the Airflow UI: approve by hand
	$(BIN)/python -m demo up

down: setup ## End what `make up` started
	$(BIN)/python -m demo down

brokers: setup ## Two Kafka clusters: 127.0.0.1:19092 (source) and 127.0.0.1:29092 (target)
	$(BIN)/python -m demo brokers up

brokers-down: setup ## End what `make brokers` started
	$(BIN)/python -m demo brokers down

clean: ## Remove the environment, the caches and past runs; what still runs must be ended first
	@test ! -x $(BIN)/python || ! $(BIN)/python -m demo.brokers status --any >/dev/null 2>&1 \
		|| { echo "error: brokers run on data below .run. First: make brokers-down" >&2; exit 1; }
	rm -rf $(VENV) .cache .run reports .pytest_cache .mypy_cache .ruff_cache spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
