# `make help` lists the targets. Only git, make, python3 and (as root, on Debian) apt are taken for granted.
.DEFAULT_GOAL := help
SHELL := /bin/sh
KIND ?= claude
JOBS ?= 2
BIN := .venv/bin
PYTHON := $(BIN)/python -P

.PHONY: help setup run test check proof bench soak

help: ## show this
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

setup: ## what is missing of: .venv, container helper, engine, worker image
	@echo "set-up (idempotent; log: build/setup.log)"
	@python3 sandboxes/set_up.py

run: setup ## the main job on the example; KIND=codex for the other worker
	@sh examples/shop/show.sh $(KIND)

test: setup check ## set up what is missing, then everything
	@$(BIN)/pytest -n $(JOBS) --dist loadfile

check: setup ## format, lint, types, architecture
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy bridge sandboxes supervisor tests benchmarks hatch_build.py
	@$(BIN)/lint-imports

proof: setup ## the long property runs: names, permissions, log
	@MXS_PROOF_CASES=1000000 HYPOTHESIS_PROFILE=proof $(BIN)/pytest tests/bridge/contract tests/bridge/policy tests/bridge/audit

bench: setup ## medians and ratios, runs taken in turn
	@$(PYTHON) -m benchmarks

soak: setup ## many workers for a long time
	@$(PYTHON) -m benchmarks.soak
