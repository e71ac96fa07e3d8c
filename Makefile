# make run                the main job on the synthetic federation
# make run DATA=FOLDER    the same on the eICU tables in FOLDER (demo or full); SILO=hospital for the full database
# make test               the tests; OPTIONS="tests/data -k folds" runs some of them
# make docs faults surroundings    the documentation's commands, faults and strange surroundings, which make test leaves out
# make card               what a GPU computes, on one that is pretended where torch has none
# make suite              all tests, as in continuous integration
# make site               the documentation as a site, in site/
# make check              lint, types and the suite, as in continuous integration
PYTHON ?= python3
VENV ?= .venv
SILO ?= region_beds
OPTIONS ?=
# Test processes: one more than there are cores, at most five; each takes a gigabyte of memory.
WORKERS ?= auto
BIN := $(VENV)/bin
# Containers often have Python keep no byte code: hundreds of processes would compile raysim and its tests anew.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

ifdef DATA
JOB := experiments/eicu.yaml --set data.path=$(abspath $(DATA)) --set data.silo=$(SILO)
else
JOB := experiments/main.yaml
endif

.PHONY: run test docs faults surroundings card suite lint types site check bench

run: $(VENV)/.installed
	$(BIN)/raysim compare $(JOB) $(OPTIONS)

test: $(VENV)/.installed-dev
	$(PYTEST) -m "not documentation and not faults and not surroundings and not card" $(OPTIONS)

docs: $(VENV)/.installed-dev
	$(PYTEST) -m documentation $(OPTIONS)

faults surroundings: $(VENV)/.installed-dev
	$(PYTEST) -m $@ $(OPTIONS)

# One process: torch knows a pretended card, once made, to the end of it.
card: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m card tests/card

suite: card
	$(PYTEST) -m "not card" $(OPTIONS)

site: $(VENV)/.installed-dev
	$(BIN)/python -m mkdocs build --strict

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: $(VENV)/.installed-dev
	$(BIN)/mypy

check: lint types suite

bench: $(VENV)/.installed
	$(BIN)/python -m benchmarks.jobs
	$(BIN)/python -m benchmarks.main_job

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable '.[bench,eicu,privacy,sweep]'
	touch $@

# Most of its modules are imported by no test: Python compiles those that are, half a minute sooner in all.
$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --no-compile --editable '.[dev]'
	touch $(VENV)/.installed $@
