# Every habit of the project. `make help` lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PY := .venv/bin/python
# conftest.py starts slow files first. Three processes on two cores: tests wait for processes,
# sockets and disks.
PYTEST := $(PY) -m pytest -n 3 --dist loadfile --no-loadscope-reorder
DEMO ?= --days 6 --lines 20000
# Compiled modules are kept outside of the sources: processes start in half the time.
unexport PYTHONDONTWRITEBYTECODE
# Not for the tests to see: code under the kit's shadow takes such a variable for a sign of tests.
unexport PYTEST
export PYTHONPYCACHEPREFIX := $(CURDIR)/.tools/pycache
export PYSPARK_PYTHON := $(CURDIR)/.venv/bin/python
export PYSPARK_DRIVER_PYTHON := $(CURDIR)/.venv/bin/python

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: setup ## the main job on every installed backend, checked against Spark SQL
	cd examples/orders && ../../$(PY) demo.py $(DEMO)

test: setup browser postgresql prometheus core ## all tests except soak; a sample of some, by commit
	$(PYTEST) --ignore=core/tests

core: .tools/core/.ready ## the core's tests, in an environment without Spark, pandas, click and rich
	@.tools/core/bin/python -m pytest -n 2 --dist loadfile -q -p no:cacheprovider core/tests || { \
	  echo "The core's tests failed in .tools/core, where only the core and heap are installed." >&2; \
	  echo "Repeat one with: .tools/core/bin/python -m pytest FILE::TEST" >&2; exit 1; }

.tools/core/.ready: pyproject.toml core/pyproject.toml plugins/heap/pyproject.toml | setup
	tools/uv venv --quiet --clear --python $(PY) .tools/core
	tools/uv pip install --quiet --python .tools/core/bin/python --editable core \
	  --editable plugins/heap hypothesis numpy pydantic pytest pytest-xdist
	@touch $@

check: lint ## lint, and in a minute and a half all that needs neither Spark nor long
	$(PYTEST) -q -m "not soak and not slow and not spark"

soak: setup flink ## the long tests, some of them next to Apache Flink
	$(PY) -m pytest -m "soak or sample or long"

lint: setup ## ruff, mypy, import contracts, plain words, the changelog's fragments, workflows
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy -p millpond -p millpond_spark -p millpond_cli -p millpond_command -p millpond_heap -p millpond_rocksdb -p millpond_lmdb -p millpond_conformance
	MYPYPATH=benchmarks:benchmarks/peers .venv/bin/mypy benchmarks --exclude 'peers/(flink|bytewax)_job'
	.venv/bin/lint-imports
	cd examples/sqlite-backend && PYTHONPATH=src $(CURDIR)/.venv/bin/lint-imports --no-cache
	$(PY) tools/prose.py
	.venv/bin/towncrier build --draft --version next > /dev/null
	.venv/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml

format: setup ## format the code
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

SECTIONS = throughput startup checkpoints large ttl lists sorted_maps joins patterns wrappers options queries storage_requests columns worker \
	by_hand breakdown footprint bootstrapping scale planned
bench: setup $(SECTIONS:%=out/bench/%.done) ## all benchmarks: tables, JSON and plots under out/bench; again: only unfinished ones

out/bench/%.done:
	$(PY) benchmarks/$*.py --output out/bench
	@touch $@

PEERS ?=
bench-peers: setup ## PyFlink, Bytewax and Spark's Python state on the same rows; PEERS="--only sum", PEERS=--check
	@tools/peers
	$(PY) benchmarks/peers/compare.py --output out/bench $(PEERS)

docs: setup ## the documentation site, under out/site; a dead link is an error
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --strict --quiet --site-dir out/site

docs-serve: setup ## the documentation site on 127.0.0.1:8000, built again at each change
	NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs serve --dev-addr 127.0.0.1:8000

FUZZ ?= --count 5000 --jobs 2
fuzz: setup ## mutated files and odd calls, within limits; FUZZ="--seconds 600 --first 7"; writes docs/quality/fuzz.md
	$(PY) -m tests.fuzz $(FUZZ) --markdown docs/quality/fuzz.md

mutation: setup ## automatic mutants of the backends, against the kit; MUTATION="--target heap --sample 20"; hours
	$(PY) -m conformance.research.mutation.mutation $(MUTATION)

gallery: setup ## which of the subtly wrong backends of the gallery the kit catches; GALLERY="--profile quick NAME"
	$(PY) -m conformance.research.gallery.survey $(GALLERY)

crash-matrix: setup ## faults at every point of a snapshot's life; writes docs/quality/crash-matrix.md
	$(PY) -m tests.crash.crash_matrix --markdown docs/quality/crash-matrix.md

conformance: setup ## the specification on every backend; a page of reports under out/conformance
	@mkdir -p out/conformance
	for name in heap rocksdb lmdb; do \
	  .venv/bin/millpond conformance $$name --report out/conformance/$$name.json || exit 1; done
	.venv/bin/millpond conformance html out/conformance/index.html out/conformance/*.json

kill-matrix: setup ## the kit against backends that are wrong on purpose; writes docs/quality/kill-matrix.md
	$(PY) -m conformance.research.mutants.sabotage --all-clauses --markdown docs/quality/kill-matrix.md

MATRIX ?=
matrix: setup ## the Spark tests on every version of pyspark, and all on the lowest versions; MATRIX="--short 4.0"
	$(PY) tools/matrix.py $(MATRIX)

examples: setup ## the classic jobs, locally and on Spark, checked; RETAIL=folder for the real data
	cd examples/classics && ../../$(PY) run.py $(if $(RETAIL),--retail $(RETAIL))

wheels: setup ## build all wheels into dist/
	rm -f dist/*.whl
	tools/uv build --all-packages --wheel --out-dir dist

CHECKS ?= lint docs test
release: setup ## check, build and try VERSION=0.1.0; a dry run unless TAG=yes; uploads nothing
	@[ -n "$(VERSION)" ] || { echo "Name the version: make release VERSION=0.1.0" >&2; exit 2; }
	$(PY) tools/release.py $(VERSION) $(CHECKS:%=--check %) $(if $(filter yes,$(TAG)),--tag) $(PYTHONS:%=--python %)

setup: .venv/.ready java ## the environment; done by the others as needed

java:
	@tools/java

browser:
	@tools/browser

postgresql:
	@tools/postgresql

prometheus:
	@tools/prometheus

flink:  # without it the tests that need it are skipped with that reason
	@tools/flink || true

.venv/.ready: pyproject.toml core/pyproject.toml spark/pyproject.toml cli/pyproject.toml conformance/pyproject.toml $(wildcard plugins/*/pyproject.toml)
	tools/uv sync --quiet
	@touch $@

clean: ## remove what was built
	rm -rf .venv .tools .matrix dist out .mypy_cache .pytest_cache .ruff_cache

.PHONY: help docs docs-serve demo examples check test core soak lint format bench bench-peers fuzz crash-matrix matrix conformance kill-matrix mutation gallery wheels release setup java browser postgresql prometheus flink clean
