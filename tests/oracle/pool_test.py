"""Max pooling in every dtype against a loop in NumPy; averages and gradients are in torch_test.py."""

import itertools

import numpy as np
import pytest
from rlx_op import DTYPES, FLOATS, NUMBERS, RlxError, check, covers, evaluate, random_values, rng_of, wide


@covers("max_pool", "max_pool_indices")
@pytest.mark.parametrize("dtype", NUMBERS)
def test_max_pool(dtype):
    for shape, kernel, strides, low, high, dilation in [
            ((1, 2, 7), [3], [2], [1], [0], [1]), ((2, 1, 5, 6), [2, 3], [1, 2], [0, 1], [1, 0], [2, 1]), ((0, 2, 5), [2], [1], [0], [0], [1]),
            ((1, 1, 3, 4, 5), [2, 2, 2], [1, 2, 2], [0, 0, 1], [1, 0, 0], [1, 1, 1])]:
        x = random_values(rng_of(dtype, shape), dtype, shape)
        sizes = [(n + l + h - (k - 1) * d - 1) // s + 1 for n, k, s, l, h, d in zip(shape[2:], kernel, strides, low, high, dilation)]
        expected = np.zeros((*shape[:2], *sizes), np.int64)
        values = wide(x).reshape(*shape[:2], np.prod(shape[2:]))
        for at in np.ndindex(*expected.shape):
            window = itertools.product(*[[o * s - l + i * d for i in range(k)] for o, s, l, k, d in zip(at[2:], strides, low, kernel, dilation)])
            inside = [p for p in window if all(0 <= v < n for v, n in zip(p, shape[2:]))]
            flat = np.array([np.ravel_multi_index(p, shape[2:]) for p in inside])
            expected[at] = flat[np.argmax(values[at[:2]][flat])]  # the first of equal ones, or of NaNs
        attrs = {"kernel": kernel, "strides": strides, "low": low, "high": high, "dilation": dilation}
        check(evaluate("max_pool_indices", x, **attrs), expected, "i64")
        picked = np.take_along_axis(x.reshape(values.shape), expected.reshape(*shape[:2], np.prod(sizes)), 2).reshape(expected.shape)
        check(evaluate("max_pool", x, **attrs), wide(picked), dtype, 0)


@covers("avg_pool")
@pytest.mark.parametrize("dtype", FLOATS)
def test_average_is_rounded_once(dtype):
    x = random_values(rng_of("average", dtype), dtype, (2, 2, 30), special=False)
    expected = wide(x).reshape(2, 2, 10, 3).mean(-1)
    check(evaluate("avg_pool", x, kernel=[3], strides=[3]), expected, dtype, 200 if dtype == "f64" else 0.5, signed_zero=False)


def test_errors():
    x = np.zeros((1, 1, 4), np.float32)
    for op in ["max_pool", "avg_pool"]:
        for attrs in [{"kernel": [5]}, {"kernel": [2, 2]}, {"kernel": [0]}, {"kernel": [2], "low": [2]}, {"kernel": [2], "strides": [0]}]:
            with pytest.raises(RlxError, match=rf"\[{op}\]"):
                evaluate(op, x, **attrs)
        with pytest.raises(RlxError, match=rf"\[{op}\]"):
            evaluate(op, x[0], kernel=[2])
