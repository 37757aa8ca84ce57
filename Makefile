# One target a job; `make` alone lists them. Every target makes its own set-up.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
# cpu, cu12 or cu13: which of constraints/*.txt to install (and, for CUDA, which extra).
STACK ?= cpu
# As the C kernels are compiled: by make setup, and by make itself when a source has changed.
KERNELS := minedraft/model/kernels/c
KERNELS_STAMP := $(KERNELS)/objects/.stamp
READY := $(STAMP) $(KERNELS_STAMP)
EXTRAS := $(if $(filter cpu,$(STACK)),worker,$(STACK)),gateway,dev
TORCH = $(shell grep '^torch==' constraints/$(STACK).txt)
PYTEST_ARGS ?=
# Tests run in this many processes; 0: in one, in order.
PYTEST_JOBS ?= 2
SOAK_MINUTES ?= 10
SETUP_INPUTS := pyproject.toml $(wildcard constraints/*.txt)

# One thread per process: the tests and the services do their own splitting of the cores.
export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup kernels fmt lint types arch proto proto-check buf test test-fast test-avx2 \
        test-sanitized test-gpu golden demo demo-coder bench bench-sched results bench-hostile bench-faults soak docs \
        hashes check clean

help: ## print this list
	@echo 'make TARGET, where TARGET is one of'
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- set-up -------------------------------------------------------------------------------------

setup: $(READY) ## make .venv with everything the other targets need; quick when done
	@echo 'setup: ready; the command line is $(BIN)/minedraft'

# By hash first, pip itself included; then the exact torch: a range may pull another build of it. What
# is left for the last step is nothing on CPUs, where it asks no index, else nccl4py and the like.
# Each step says what it does; pip draws its progress bars where somebody is watching.
PIP_INSTALL = $(BIN)/python -m pip install $$([ -t 1 ] || echo --quiet)
$(STAMP): $(SETUP_INPUTS)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'setup: Python 3.11 or later is needed; try make PYTHON=python3.11' >&2; exit 1; }
	@echo '--- setup 1/4: virtual environment in $(VENV)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo '--- setup 2/4: constraints/hashes.txt, by hash'
	@$(PIP_INSTALL) --no-deps --require-hashes -r constraints/hashes.txt
	@echo '--- setup 3/4: $(TORCH) ($(STACK)), the largest download'
	@$(PIP_INSTALL) -c constraints/$(STACK).txt '$(TORCH)'
	@echo '--- setup 4/4: minedraft[$(EXTRAS)]'
	@$(PIP_INSTALL) -c constraints/$(STACK).txt $(if $(filter cpu,$(STACK)),--no-index) \
	  --no-build-isolation -e '.[$(EXTRAS)]'
	@touch $@

kernels: ## compile the C kernels for every instruction set that cc can make; quick when done
	@$(PYTHON) $(KERNELS)/compile.py
	@mkdir -p $(KERNELS)/objects && touch $(KERNELS_STAMP)

$(KERNELS_STAMP): $(KERNELS)/compile.py $(wildcard $(KERNELS)/src/*.[ch])
	@$(MAKE) --no-print-directory kernels

# --- checks -------------------------------------------------------------------------------------

fmt: $(STAMP) ## format, and fix what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(STAMP) ## ruff: style and mistakes
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP) ## mypy, strict
	$(BIN)/mypy

arch: $(STAMP) ## import contracts, diagrams, file sizes, RPC coverage, the wheel
	$(BIN)/pytest tests/architecture $(PYTEST_ARGS)

# The path of a proto file is its Python package, so what protoc writes needs no repair.
define protoc
$(BIN)/python -m grpc_tools.protoc -I proto --python_out=$(1) --pyi_out=$(1) --grpc_python_out=$(1) \
  $(wildcard proto/minedraft/v1/*.proto)
endef

proto: $(STAMP) ## regenerate minedraft/v1 from proto/
	$(call protoc,.)

proto-check: $(STAMP) ## fail if minedraft/v1 is not what proto/ generates
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && $(call protoc,"$$fresh") \
	  && diff -r -x __init__.py -x __pycache__ "$$fresh/minedraft/v1" minedraft/v1 \
	  && echo 'proto-check: minedraft/v1 is what proto/ generates'

buf: $(STAMP) ## lint the protocol; refuse breaking changes against main
	$(BIN)/buf lint
	@if git rev-parse --quiet --verify main:proto >/dev/null 2>&1; then \
	  echo '$(BIN)/buf breaking --against .git#branch=main'; \
	  $(BIN)/buf breaking --against '.git#branch=main'; \
	else echo 'buf: no main to compare with'; fi

# --- tests --------------------------------------------------------------------------------------

# Bytecode is kept: some hundred processes start, and each would compile our modules again.
test: $(READY) ## every test that this machine can run
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n $(PYTEST_JOBS) --dist worksteal $(PYTEST_ARGS)

test-fast: $(READY) ## without the slow tests
	$(BIN)/pytest -m 'not slow' $(PYTEST_ARGS)

# What a CPU without AVX-512 and bf16 units has, on any: as many of the tests as fit into a minute.
AVX2_TESTS := $(addprefix tests/unit/minedraft/model/test_,loader.py runner.py \
  attention.py self_test.py sampling.py mass.py gumbel_max.py soundness.py) \
  tests/unit/minedraft/model/kernels tests/unit/minedraft/model/blocks \
  tests/unit/services/verifier/test_acceptance.py
test-avx2: $(READY) ## what computes, as on a CPU with AVX2 only
	ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 \
	  $(BIN)/pytest -m 'not slow' -n $(PYTEST_JOBS) $(AVX2_TESTS) $(PYTEST_ARGS)

test-sanitized: $(READY) ## the tests of the C kernels, built by AddressSanitizer
	$(BIN)/python tests/sanitized.py -q $(PYTEST_ARGS)

test-gpu: $(READY) ## only the tests that need a CUDA device
	$(BIN)/pytest -m gpu $(PYTEST_ARGS)

golden: $(READY) ## rewrite the golden traces; the diff is the review
	$(BIN)/pytest tests/golden --update-golden
	@git --no-pager diff --stat -- tests/golden

check: lint types arch proto-check buf test test-sanitized ## what a commit must pass

# --- seeing it run ------------------------------------------------------------------------------

demo: $(READY) ## three services, a small real pair, AR against SD against PSD
	$(BIN)/minedraft demo smollm2

demo-coder: $(READY) ## the same with Qwen2.5-Coder 1.5B and 0.5B (1.6 GB to download)
	$(BIN)/minedraft demo coder

bench: $(READY) ## the speed figures of benchmarks/, against their targets
	$(BIN)/python benchmarks/run_all.py

bench-sched: $(READY) ## what the scheduler promises: shapes, caches, memory, the simulator, against targets
	$(BIN)/python benchmarks/sched.py

results: $(STAMP) ## what the papers say beside theory and simulator; draws docs/results.md and its curves
	$(BIN)/python benchmarks/results.py

bench-hostile: $(READY) ## hostile callers, strangers, peers, files and networks, against targets
	$(BIN)/python benchmarks/hostile.py --json out/bench/hostile.json

bench-faults: $(READY) ## what the loss, return and swap of a service costs, against targets
	$(BIN)/python benchmarks/faults.py --json out/bench/faults.json

soak: $(READY) ## ten minutes of random kills, hangs and swaps under load; SOAK_MINUTES=N
	$(BIN)/python benchmarks/soak.py --minutes $(SOAK_MINUTES) --json out/bench/soak.json

docs: $(STAMP) ## redraw the diagrams of docs/ from the code; the diff is the review
	$(BIN)/pytest -q tests/architecture/test_documents.py tests/architecture/test_diagram.py --update-golden
	@git --no-pager diff --stat -- docs

UV := uv==0.13.9
hashes: ## write the hashes of constraints/ and deploy/tools.lock again, after a pin has changed
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && $(PYTHON) -m venv "$$fresh" \
	  && "$$fresh/bin/python" -m pip install --quiet '$(UV)' \
	  && $(PYTHON) deploy/write_hashes.py "$$fresh/bin/uv"
	@git --no-pager diff --stat -- constraints deploy/tools.lock

clean: ## remove what was built; the model cache stays
	rm -rf $(VENV) $(KERNELS)/objects build dist out .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

include deploy/deploy.mk
