# What people type. Each target does its own set-up: Debian packages (packaging/), Python packages (.venv), the build.
SHELL := /bin/bash
JOBS ?= $(shell nproc)

.PHONY: build demo test bench precisions fashion interop sanitize packages configure

build: configure  ## build/rlx
	cmake --build build --target rlx_cli --parallel $(JOBS)

demo: build  ## trains a ternary language model and compares it with compressors: build/demo/
	demo/demo.sh

test: configure  ## every test
	packaging/python-venv tests/requirements.txt
	cmake --build build --parallel $(JOBS)
	ctest --test-dir build --output-on-failure --timeout 600 --parallel $(JOBS)

bench: configure  ## speed, beside PyTorch in the same run
	packaging/python-venv bench/requirements.txt
	cmake --build build --parallel $(JOBS)
	bench/run.sh

precisions: build  ## the demo's model in every precision: build/precisions/
	bench/precision_table.py --minutes $(or $(MINUTES),0.75) --json build/precisions/table.json

fashion: configure  ## the Fashion-MNIST classifier in six precisions
	cmake --build build --target example_fashion_mnist --parallel $(JOBS)
	build/examples/fashion_mnist

interop: build  ## the demo's model in llama.cpp: same tokens, same logits
	interop/install-llama
	interop/run.sh

sanitize: packages  ## the C++ tests under ASan and UBSan
	packaging/python-venv tests/requirements.txt
	cmake --preset asan-ubsan
	cmake --build --preset asan-ubsan --parallel $(JOBS)
	ctest --preset asan-ubsan --parallel $(JOBS)

configure: packages
	cmake --preset release

packages:
	@[ -n "$(SKIP_PACKAGES)" ] || packaging/install-packages packaging/debian-packages.txt
