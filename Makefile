# Gradient's everyday commands. `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help

# setup.sh puts Nix and nats-server here; the programs and scripts below look for them in PATH.
export GRADIENT_NIX_PREFIX ?= /opt/gradient-nix
export GRADIENT_NIX_LIB_DIR ?= $(GRADIENT_NIX_PREFIX)/lib
export PATH := $(GRADIENT_NIX_PREFIX)/bin:$(PATH)

# Where `gradient up` keeps its data unless told otherwise.
DATA_DIR ?= .gradient

.PHONY: help setup build demo test bench soak lint clean-data

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Install what Gradient needs (Debian 12 or 13; see ./setup.sh --help)
	./setup.sh

build: ## Compile the programs gradient, gradient-server and gradient-worker
	cargo build --release -p gradient-cli -p gradient-server -p gradient-worker

demo: setup ## Set up, compile, start a local cluster, build examples/, show it, stop
	$(MAKE) build
	e2e/demo.sh

test: setup ## Set up and run the whole test suite
	e2e/run-tests.sh

bench: build ## Compare evaluations with nix-eval-jobs (NIX_EVAL_JOBS=PATH) and nix; BENCH_ARGS
	cargo build --release -p gradient-bench
	target/release/gradient-bench evaluations $(BENCH_ARGS)

soak: build ## Evaluate 200 times in one worker, see that nothing grows or stays (some minutes)
	cargo build --release -p gradient-bench
	target/release/gradient-bench soak $(SOAK_ARGS)

lint: ## Formatting and clippy, warnings are errors
	cargo fmt --check
	cargo clippy --workspace --all-targets -- -D warnings

clean-data: ## Delete the local cluster's data (DATA_DIR)
	rm -rf -- "$(DATA_DIR)"
