"""Reductions and scans against NumPy, in every dtype, with zero-size shapes and special values."""

import warnings

import numpy as np
import pytest
from rlx_op import DTYPES, FLOATS, INTS, NUMBERS, RlxError, check, covers, evaluate, random_values, rng_of, wide

SHAPES = [((2, 3, 4), [1]), ((2, 3, 4), [0, 2]), ((2, 3, 4), [-1, 0, 1]), ((2, 3, 4), []), ((), []), ((5,), [0]), ((0, 3), [0]),
          ((0, 3), [1]), ((3, 0), [0, 1]), ((70,), [0])]


def axes_of(axes):
    return tuple(axes) if axes else ()


def total(x, axis, keepdims):
    return wide(x).sum(axis=axis, keepdims=keepdims)


def product(x, axis, keepdims):
    return wide(x).prod(axis=axis, keepdims=keepdims)


def integers(f, initial):
    return lambda x, axis, keepdims: f(x, axis=axis, keepdims=keepdims, initial=initial).astype(x.dtype)


@covers("sum", "prod", "mean")
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", ["sum", "prod", "mean"])
def test_sums(op, dtype):
    if op == "mean" and dtype not in FLOATS:
        with pytest.raises(RlxError, match="mean"):
            evaluate("mean", random_values(rng_of(dtype), dtype, (3,)), axes=[0])
        return
    for shape, axes in SHAPES:
        for keepdims in [False, True]:
            rng = rng_of(op, dtype, shape, axes)
            x = random_values(rng, dtype, shape, special=dtype not in FLOATS)
            with np.errstate(all="ignore"):
                if dtype in FLOATS:
                    f = {"sum": np.sum, "prod": np.prod, "mean": np.mean}[op]
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # the mean of nothing
                        exact = f(wide(x), axis=axes_of(axes), keepdims=keepdims)
                        # an f64 sum in another order: rounding relative to the sum of magnitudes
                        spread = np.sum(np.abs(wide(x)), axis=axes_of(axes), keepdims=keepdims)
                    got = evaluate(op, x, axes=axes, keepdims=keepdims)
                    assert got.shape == np.shape(exact)
                    if op == "sum":
                        slack = 1e-15 * (x.size + 2) * spread
                        low, high = exact - slack, exact + slack
                        nearest = np.clip(wide(got), low, high)
                        check(got, np.where(np.isnan(exact), exact, nearest), dtype, 0.5, signed_zero=False)
                    else:
                        check(got, exact, dtype, {"prod": 80 if dtype == "f64" else 0.6, "mean": 200 if dtype == "f64" else 3}[op],
                              signed_zero=False, hint=f"{op} {shape} {axes}")
                else:
                    f = {"sum": np.sum, "prod": np.prod}[op]
                    exact = f(x, axis=axes_of(axes), keepdims=keepdims, dtype=x.dtype)
                    check(evaluate(op, x, axes=axes, keepdims=keepdims), exact, dtype)


@covers("sum")
@pytest.mark.parametrize("dtype", FLOATS)
def test_sum_of_special_values(dtype):
    d = DTYPES[dtype]
    for values, expected in [([np.inf, 1], np.inf), ([np.inf, -np.inf], np.nan), ([np.nan, 1], np.nan), ([-np.inf, 5], -np.inf),
                             ([], 0.0)]:
        check(evaluate("sum", np.array(values, d), axes=[0]), np.array(expected), dtype, 0)
    big = np.array([3e4] * 4, d)  # beyond f16 on the way, and beyond it at the end
    with np.errstate(over="ignore"):
        check(evaluate("mean", big[:2], axes=[0]), wide(big[0]), dtype, 0.5 if dtype != "f16" else np.inf)
    many = np.full(5000, 1, d)  # a sum kept in 8 or 11 bits stops at 256 or 2048
    check(evaluate("sum", many, axes=[0]), np.array(5000.0), dtype, 0.5)


@covers("max", "min")
@pytest.mark.parametrize("dtype", [*NUMBERS])
@pytest.mark.parametrize("op", ["max", "min"])
def test_extremes(op, dtype):
    f = {"max": np.max, "min": np.min}[op]
    sign = 1 if op == "max" else -1
    initial = -sign * np.inf if dtype in FLOATS else (np.iinfo(DTYPES[dtype]).min if op == "max" else np.iinfo(DTYPES[dtype]).max)
    for shape, axes in SHAPES:
        x = random_values(rng_of(op, dtype, shape, axes), dtype, shape)
        with np.errstate(all="ignore"):
            expected = f(wide(x), axis=axes_of(axes), initial=initial)
        check(evaluate(op, x, axes=axes), expected, dtype, 0, signed_zero=False, hint=f"{x}")


@covers("any", "all")
@pytest.mark.parametrize("op", ["any", "all"])
def test_logic(op):
    f = {"any": np.any, "all": np.all}[op]
    for shape, axes in SHAPES:
        for keepdims in [False, True]:
            x = random_values(rng_of(op, shape, axes), "bool", shape)
            check(evaluate(op, x, axes=axes, keepdims=keepdims), f(x, axis=axes_of(axes), keepdims=keepdims), "bool")


@covers("argmax", "argmin")
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_places_of_extremes(op, dtype):
    f = {"argmax": np.argmax, "argmin": np.argmin}[op]
    for shape, axis in [((2, 3, 4), 1), ((2, 3, 4), -1), ((9,), 0), ((0, 3), 1), ((70, 2), 0)]:
        for keepdims in [False, True]:
            x = random_values(rng_of(op, dtype, shape, axis), dtype, shape)
            check(evaluate(op, x, axis=axis, keepdims=keepdims), f(wide(x), axis=axis, keepdims=keepdims), "i64", hint=f"{x}")
    with pytest.raises(RlxError, match=op):
        evaluate(op, np.zeros((0, 3), DTYPES[dtype]), axis=0)


@covers("cumsum", "cumprod")
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", ["cumsum", "cumprod"])
def test_scans(op, dtype):
    f, one = (np.cumsum, 0) if op == "cumsum" else (np.cumprod, 1)
    for shape, axis in [((2, 3, 4), 1), ((2, 3, 4), -1), ((9,), 0), ((0, 3), 0), ((0, 3), 1), ((3, 0, 2), 0)]:
        for exclusive in [False, True]:
            for reverse in [False, True]:
                x = random_values(rng_of(op, dtype, shape, axis), dtype, shape, special=dtype in INTS)
                with np.errstate(all="ignore"):
                    w = np.flip(wide(x), axis) if reverse else wide(x)
                    expected = f(w, axis=axis, dtype=w.dtype if dtype in FLOATS else x.dtype)
                    if exclusive and shape[axis]:
                        body = np.take(expected, range(shape[axis] - 1), axis)
                        expected = np.concatenate([np.full_like(np.take(expected, [0], axis), one), body], axis)
                    expected = np.flip(expected, axis) if reverse else expected
                got = evaluate(op, x, axis=axis, exclusive=exclusive, reverse=reverse)
                check(got, expected, dtype, 100 if dtype == "f64" else 0.6, signed_zero=False, hint=f"{op} {shape} {axis} {x}")
