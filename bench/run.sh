#!/usr/bin/env bash
# What `make bench` runs: the microbenchmarks, then training beside PyTorch. Numbers go to build/bench/ too.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/bench

[ ! -x build/rlx_bench ] || build/rlx_bench --benchmark_out=build/bench/micro.json --benchmark_out_format=json
.venv/bin/python bench/train_speed.py build/rlx --json build/bench/train_speed.json
