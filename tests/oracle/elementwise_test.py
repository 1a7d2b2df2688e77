"""Elementwise ops against NumPy in long double (mpmath where it has no function), in every dtype, special values and
broadcasting included."""

import math

import mpmath
import numpy as np
import pytest
from rlx_op import (DTYPES, FLOATS, INTS, LIMITS, NUMBERS, SIGNED, UNSIGNED, RlxError, check, covers, evaluate, promote,
                    random_values, rng_of, table, wide)

SHAPES = [((64,),), ((),), ((0, 3),), ((2, 3, 4),)]
PAIR_SHAPES = [((64,), (64,)), ((), (5,)), ((4, 1), (3,)), ((2, 1, 3), (4, 1)), ((0, 3), (1, 1)), ((3,), (0, 1)), ((), ())]


def precise(f):
    """An odd mpmath function as one on arrays of long doubles."""
    def at(v):
        v = float(v)
        if math.isnan(v):
            return np.longdouble("nan")
        with mpmath.workdps(25):
            r = f(mpmath.mpf(v))
            return np.longdouble(mpmath.nstr(r, 24, min_fixed=0, max_fixed=0)) if mpmath.isfinite(r) else np.longdouble(float(r))
    return lambda x: np.copysign(np.array([at(v) for v in np.ravel(x)], np.longdouble).reshape(np.shape(x)), x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


FLOAT_UNARY = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erf": precise(mpmath.erf), "sigmoid": sigmoid,
}
NUMBER_UNARY = {
    "neg": np.negative, "abs": np.abs, "sign": lambda x: np.where(x == 0, x, np.sign(x)), "round": np.rint, "floor": np.floor,
    "ceil": np.ceil, "trunc": np.trunc,
}
ROUNDING = ["round", "floor", "ceil", "trunc"]
PREDICATES = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}


@covers(*FLOAT_UNARY, *NUMBER_UNARY)
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", [*FLOAT_UNARY, *NUMBER_UNARY])
def test_unary(op, dtype):
    f = FLOAT_UNARY.get(op) or NUMBER_UNARY[op]
    if op in FLOAT_UNARY and dtype not in FLOATS:
        with pytest.raises(RlxError, match=f"needs a float, got {dtype}"):
            evaluate(op, random_values(rng_of(op), dtype, (2,)))
        return
    for (shape,) in SHAPES:
        x = random_values(rng_of(op, dtype, shape), dtype, shape)
        with np.errstate(all="ignore"):
            expected = f(wide(x)) if dtype in FLOATS else (x if op in ROUNDING else f(x).astype(x.dtype))
        check(evaluate(op, x), expected, dtype, table()[op]["ulp"], hint=f"{op} {dtype}{shape}")
        check(evaluate(op, x, symbolic=True), expected, dtype, table()[op]["ulp"])


@covers(*PREDICATES)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", PREDICATES)
def test_predicate(op, dtype):
    for (shape,) in SHAPES:
        x = random_values(rng_of(op, dtype, shape), dtype, shape)
        check(evaluate(op, x), PREDICATES[op](wide(x)), "bool")


@covers("stop_gradient")
@pytest.mark.parametrize("dtype", DTYPES)
def test_stop_gradient(dtype):
    x = random_values(rng_of(dtype), dtype if dtype != "c64" else "f32", (20,)).astype(DTYPES[dtype])
    if dtype == "c64":
        with pytest.raises(RlxError, match="complex values can only be moved"):
            evaluate("stop_gradient", x)
        return
    np.testing.assert_array_equal(evaluate("stop_gradient", x), x)


def c_div(a, b):
    """C's quotient of arrays of integers; 0 by 0."""
    q = [0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(a, b)]
    return q


def int_power(x, y, bits):
    if y < 0:
        return {1: 1, -1: 1 if y % 2 == 0 else -1}.get(x, 0)
    return pow(x, y, 1 << bits)


def pairs(f):
    """A function of two Python integers as one on arrays, wrapping."""
    def on(a, b):
        a, b = np.broadcast_arrays(a, b)
        bits = 8 * a.dtype.itemsize
        mask = (1 << bits) - 1
        out = [f(int(x), int(y), bits) & mask for x, y in zip(a.ravel(), b.ravel())]
        return np.array(out, np.uint64).astype(a.dtype).reshape(a.shape)
    return on


def truncated(x, y, bits):
    return 0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


INT_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": pairs(truncated),
    "floor_div": pairs(lambda x, y, bits: 0 if y == 0 else x // y), "mod": pairs(lambda x, y, bits: 0 if y == 0 else x % y),
    "fmod": pairs(lambda x, y, bits: 0 if y == 0 else x - y * truncated(x, y, bits)), "pow": pairs(int_power),
    "maximum": np.maximum, "minimum": np.minimum,
}


def float_mod(a, b):
    """np.mod in long double loses to np.fmod where the quotient is huge; that one is exact."""
    r = np.fmod(a, b)
    r = np.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)
    return np.where(r == 0, np.copysign(0, b), r)


def greater_of(a, b):
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), np.maximum(a, b))


FLOAT_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "floor_div": lambda a, b: np.floor(a / b),
    "mod": float_mod, "fmod": np.fmod, "pow": np.power, "atan2": np.arctan2, "maximum": greater_of,
    "minimum": lambda a, b: -greater_of(-a, -b),
}
COMPARE = {"equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
           "greater_equal": np.greater_equal}


@covers(*FLOAT_BINARY)
@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("op", FLOAT_BINARY)
def test_binary(op, dtype):
    if dtype not in FLOATS and op not in INT_BINARY:
        with pytest.raises(RlxError, match=f"needs a float, got {dtype}"):
            evaluate(op, random_values(rng_of(op), dtype, (2,)), random_values(rng_of(op), dtype, (2,)))
        return
    for shapes in PAIR_SHAPES:
        rng = rng_of(op, dtype, shapes)
        a, b = (random_values(rng, dtype, s) for s in shapes)
        if op == "floor_div" and dtype == "f64":  # the quotient is rounded once before the floor
            b = np.where(np.abs(b) < 1, 1, b)
        with np.errstate(all="ignore"):
            if dtype in FLOATS:
                expected = FLOAT_BINARY[op](wide(a), wide(b))
                if op == "floor_div" and dtype == "f64":
                    expected = np.floor(a / b)
            else:
                expected = INT_BINARY[op](a, b)
        ulp = table()[op]["ulp"]
        check(evaluate(op, a, b), expected, dtype, ulp, hint=f"{op} {dtype}{shapes}\n{a}\n{b}")
        check(evaluate(op, a, b, symbolic=True), expected, dtype, ulp)


@covers(*COMPARE)
@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
@pytest.mark.parametrize("op", COMPARE)
def test_compare(op, dtype):
    for shapes in PAIR_SHAPES:
        rng = rng_of(op, dtype, shapes)
        a, b = (random_values(rng, dtype, s) for s in shapes)
        check(evaluate(op, a, b), COMPARE[op](wide(a), wide(b)), "bool", hint=f"{a} {b}")


@pytest.mark.parametrize("op", ["add", "mul", "less", "maximum"])
@pytest.mark.parametrize("left", [*NUMBERS, "bool"])
def test_promotion(op, left):
    for right in [*NUMBERS, "bool"]:
        common = promote(left, right)
        if common == "bool" and op != "less":
            continue
        rng = rng_of(op, left, right)
        a, b = random_values(rng, left, (8,), special=False), random_values(rng, right, (8,), special=False)
        f = (FLOAT_BINARY | COMPARE)[op]
        with np.errstate(all="ignore"):
            expected = f(wide(a.astype(DTYPES[common])), wide(b.astype(DTYPES[common])))
        check(evaluate(op, a, b), expected, "bool" if op == "less" else common, 0.5, hint=f"{left} {right}")


LOGIC = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}
BITS = {"bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor}


@covers(*LOGIC, "logical_not")
@pytest.mark.parametrize("op", LOGIC)
def test_logic(op):
    for shapes in PAIR_SHAPES:
        rng = rng_of(op, shapes)
        a, b = (random_values(rng, "bool", s) for s in shapes)
        check(evaluate(op, a, b), LOGIC[op](a, b), "bool")
        check(evaluate("logical_not", a), ~a, "bool")
    with pytest.raises(RlxError, match="needs bool, got i32"):
        evaluate(op, np.int32(1), np.int32(2))


@covers(*BITS, "bitwise_not")
@pytest.mark.parametrize("dtype", [*INTS, "bool"])
@pytest.mark.parametrize("op", BITS)
def test_bits(op, dtype):
    for shapes in PAIR_SHAPES:
        rng = rng_of(op, dtype, shapes)
        a, b = (random_values(rng, dtype, s) for s in shapes)
        check(evaluate(op, a, b), BITS[op](a, b), dtype)
        check(evaluate("bitwise_not", a), np.invert(a), dtype)


@covers("left_shift", "right_shift")
@pytest.mark.parametrize("dtype", INTS)
def test_shift(dtype):
    a = random_values(rng_of("shift", dtype), dtype, (80, 1))
    b = np.arange(0, 70).astype(DTYPES[dtype])
    bits = 8 * a.dtype.itemsize
    left = pairs(lambda x, y, bits: x << y if y < bits else 0)
    check(evaluate("left_shift", a, b), left(a, b), dtype)
    right = pairs(lambda x, y, bits: x >> min(y, bits))
    check(evaluate("right_shift", a, b), right(a, b), dtype)


@covers("where")
@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_where(dtype):
    for shapes in PAIR_SHAPES:
        rng = rng_of("where", dtype, shapes)
        a, b = (random_values(rng, dtype, s) for s in shapes)
        c = random_values(rng, "bool", np.broadcast_shapes(*shapes))
        check(evaluate("where", c, a, b), np.where(c, a, b), dtype, 0)
    with pytest.raises(RlxError, match="the condition must be bool, got f32"):
        evaluate("where", np.float32(1), np.float32(1), np.float32(1))


def cast_exactly(x, dtype):
    """docs/dtypes.md: floats to integers towards 0 and saturating, NaN to 0; integers wrap."""
    if dtype in LIMITS or dtype == "bool" or x.dtype.kind in "iub":
        return x != 0 if dtype == "bool" else x if dtype in LIMITS else x.astype(DTYPES[dtype])
    info = np.iinfo(DTYPES[dtype])
    out = [0 if math.isnan(v) else info.max if v == math.inf else info.min if v == -math.inf else
           min(max(int(v), info.min), info.max) for v in map(float, x.ravel())]
    return np.array(out, DTYPES[dtype]).reshape(x.shape)


@covers("cast")
@pytest.mark.parametrize("source", [*NUMBERS, "bool"])
def test_cast(source):
    for target in [*NUMBERS, "bool"]:
        x = random_values(rng_of(source, target), source, (60,))
        expected = cast_exactly(x, target)
        if expected.dtype.kind == "b" and target in LIMITS:
            expected = expected.astype(np.float64)
        check(evaluate("cast", x, dtype=target), wide(expected), target, 0.5, hint=f"{source} to {target}: {x}")
