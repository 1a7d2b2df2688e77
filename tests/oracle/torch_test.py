"""Ops and their gradients against numbers that PyTorch gave in f64 (torch_cases.py wrote them), in every float dtype."""

import json
import pathlib

import ml_dtypes
import numpy as np
import pytest
from rlx_op import DTYPES, FLOATS, covered, gradients, evaluate

STORED = np.load(pathlib.Path(__file__).with_name("torch_cases.npz"))
CASES = json.loads(str(STORED["manifest"]))
# These give f32 from 16-bit inputs: losses and sums over a batch.
WIDE = ["cross_entropy", "batch_norm_inference_backward_gamma", "batch_norm_inference_backward_beta"]
covered.update(c["op"] for c in CASES)
# Relative to the greatest value: each op of a composite rounds to the dtype.
TOLERANCE = {"f64": 1e-12, "f32": 3e-6, "f16": 2e-2, "bf16": 1.5e-1}


def close(got, expected, dtype, what):
    if expected.dtype.kind == "i":
        return np.testing.assert_array_equal(got, expected, err_msg=str(what))
    assert got.dtype == DTYPES[dtype] and got.shape == expected.shape, (what, got.dtype, got.shape, expected.shape)
    if expected.size == 0:
        return
    bound = TOLERANCE[dtype] * max(1.0, float(np.max(np.abs(expected))))
    error = np.abs(got.astype(np.float64) - expected)
    assert np.all(error <= bound), f"{what}: off by {error.max():.3g}, {bound:.3g} allowed:\n{got}\n{expected}"


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("index", range(len(CASES)), ids=[f"{i}-{c['op']}" for i, c in enumerate(CASES)])
def test_case(index, dtype):
    case, attrs = CASES[index], dict(CASES[index]["attrs"])
    if "dtype" in attrs and attrs["dtype"] == "f64":
        attrs["dtype"] = dtype
    def floats(a):
        return a.view(ml_dtypes.bfloat16).astype(DTYPES[dtype])
    inputs = [floats(STORED[f"{index}.x{i}"]) if i in case["floats"] else STORED[f"{index}.x{i}"] for i in range(case["inputs"])]
    expected = STORED[f"{index}.y"]
    if f"{index}.dy" not in STORED:
        return close(evaluate(case["op"], *inputs, **attrs), expected, dtype, case)
    cotangent = floats(STORED[f"{index}.dy"])
    if case["op"] in WIDE and dtype in ("f16", "bf16"):
        y, got = gradients(case["op"], cotangent.astype(np.float32), *inputs, **attrs)
        close(y, expected, "f32", f"{case} value")
    else:
        y, got = gradients(case["op"], cotangent, *inputs, **attrs)
        close(y, expected, dtype, f"{case} value")
    for i in case["floats"]:
        if f"{index}.d{i}" in STORED:
            close(got[i], STORED[f"{index}.d{i}"], dtype, f"{case} gradient of input {i}")
