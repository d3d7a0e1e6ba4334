# One command each: `make demo` trains through failures, `make test` checks everything.
#
#   make demo ARGS="--replicas 4"     arguments for `danaus demo`
#   make test ARGS="-k quorum"        arguments for pytest
#   make test JOBS=1                  tests one after the other
#   make nightly SCHEDULES=1000000    more simulated schedules of faults
#   make demo PYTHON=python3.12       another interpreter
#   make demo TORCH_INSTALL="..."     what pip is told in order to install torch

PYTHON        ?= python3
VENV          := .venv
BIN           := $(VENV)/bin
CONSTRAINTS   := constraints.txt
TORCH_INSTALL ?= torch -c $(CONSTRAINTS)
ARGS          ?=
# Most tests wait for processes most of the time.
JOBS          ?= 3
# Simulated schedules of a night: about 15 ms of one core each.
SCHEDULES     ?= 100000
TYPED         := src $(wildcard examples tests/typing)

GROUND     := pyproject.toml $(CONSTRAINTS) tools/ground.sh
RUN_STAMP  := $(VENV)/.ready-to-run
TEST_STAMP := $(VENV)/.ready-to-test

# Tests and runs start many processes: none of them compiles again what another has compiled.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test check lint nightly setup peers clean

help: ## List what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 18

demo: $(RUN_STAMP) ## Train a small model through real failures (about 90 s on two cores)
	@$(BIN)/danaus demo $(ARGS)

test: check ## Set up what is needed, then run all checks and all tests but the slow ones
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup -m "not slow and not strict and not gpu" $(ARGS)

check: lint ## Style, types and imports only
	$(BIN)/mypy $(TYPED)
	$(BIN)/mypy --platform darwin --cache-dir .mypy_cache/darwin src

lint: $(TEST_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

nightly: $(TEST_STAMP) ## The slow tests, those that hold time limits, simulations, and a thousand faults on one run
	$(BIN)/python -m pytest -m "(slow or strict) and not gpu" $(ARGS)
	$(BIN)/python -m tests.simulation.many --schedules $(SCHEDULES)
	$(BIN)/python tools/fuzz.py
	$(BIN)/danaus bench campaign --faults 1000
	[ "$$(id -u)" != 0 ] || $(BIN)/danaus bench campaign --faults 300 --hosts 3 --ranks 2

setup: $(TEST_STAMP) ## Only make the virtual environment

PEERS := $(patsubst %/requirements.txt,%/.venv/.ready,$(wildcard bench/peers/*/requirements.txt))

peers: $(PEERS) ## What `danaus bench ft` and `actor` are held against (--peers bench/peers)

# What the peers' programs share lies beside their folders.
bench/peers/%/.venv/.ready: bench/peers/%/requirements.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/pip install -q -r $<
	@echo $(abspath bench/peers) > $$($(@D)/bin/python -c \
	    'import sysconfig; print(sysconfig.get_path("purelib"))')/said.pth
	@touch $@

clean: ## Remove the virtual environment and every cache
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUN_STAMP): $(GROUND)
	@PYTHON="$(PYTHON)" TORCH_INSTALL="$(TORCH_INSTALL)" tools/ground.sh $(VENV) train
	@touch $@

$(TEST_STAMP): $(GROUND)
	@PYTHON="$(PYTHON)" TORCH_INSTALL="$(TORCH_INSTALL)" tools/ground.sh $(VENV) train,dev
	@touch $(RUN_STAMP) $@
