#!/usr/bin/env bash
# What `make bench` runs: the microbenchmarks, then training beside PyTorch. Numbers go to build/bench/ too.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/bench

[ ! -x build/rlx_bench ] || build/rlx_bench --benchmark_out=build/bench/micro.json --benchmark_out_format=json
# A machine's settings for OpenBLAS would hold back the peer.
env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE .venv/bin/python bench/train_speed.py build/rlx --json build/bench/summary.json
