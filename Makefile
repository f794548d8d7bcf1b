# `make help` lists the targets. Everything runs in .venv, which the first target that needs it creates.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Work on real data only where there is some; the tests that need it say so when they skip.
PYTEST := $(BIN)/python -m pytest -n 2

.DEFAULT_GOAL := help
.PHONY: help install run paper test slow check chaos bench lint format clean

help: ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  \1|/' | column -t -s '|'

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(READY)

install: $(READY) ## create .venv and install hiflash with its tools

run: $(READY) ## compare five methods on real digits: tables and figures in runs/demo
	$(BIN)/hiflash compare examples/demo.toml --name demo

paper: $(READY) ## reproduce the paper at small scale: long, and the same command goes on (docs/paper.md)
	$(BIN)/hiflash paper all

test: $(READY) ## run all fast tests
	$(PYTEST) -m "not slow"

slow: $(READY) ## run the slow tests: a Ray, a learner on CartPole
	$(PYTEST) -m slow

check: lint test slow ## lint, types and all tests

chaos: $(READY) ## kill, freeze, flood and cut off real processes on loopback; takes up to 15 minutes
	PYTHONPATH=tests:. $(BIN)/python -m chaos

bench: $(READY) ## speed against a bare PyTorch loop and against Flower; takes about ten minutes
	$(BIN)/python -m benchmarks --save runs/bench.json

lint: $(READY) ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## let ruff format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove .venv and caches, keep runs/
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build src/*.egg-info
