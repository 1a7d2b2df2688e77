"""The same checks of whole ops on the CPU device: values, gradients, indices, errors."""

import importlib

import rlx_op

rlx_op.DEVICE = "cpu"

for _module in ["codebook", "contract", "elementwise", "index", "movement", "nn", "pool", "quant", "random", "reduce", "torch"]:
    for _name, _test in vars(importlib.import_module(f"{_module}_test")).items():
        if _name.startswith("test_"):
            globals()[f"{_name}_{_module}"] = _test
