#!/usr/bin/env bash
# Checks the demo's exported model in llama.cpp; makes the demo first where it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/demo

[ -f $out/model.gguf ] && [ -f $out/heldout.txt ] || demo/demo.sh
.venv/bin/python interop/check_llama.py --rlx build/rlx --gguf $out/model.gguf --run $out/run --text $out/heldout.txt
