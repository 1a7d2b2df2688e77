"""Matrix products against NumPy: integers exactly, floats within the error of their accumulation, in every dtype."""

import numpy as np
import pytest
from rlx_op import DTYPES, FLOATS, INTS, NUMBERS, RlxError, check, covers, evaluate, promote, random_values, rng_of, wide

SHAPES = [((3, 4), (4, 5)), ((4,), (4,)), ((4,), (4, 2)), ((3, 4), (4,)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((0, 4), (4, 2)),
          ((3, 0), (0, 2)), ((2, 0, 4), (4, 5)), ((1, 1), (1, 1)), ((2, 40), (40, 3))]


def float_check(got, a, b, exact, dtype):
    """The rounding of the result, and that of an f32 accumulation."""
    size = np.matmul(np.abs(wide(a)), np.abs(wide(b)))
    slack = size * (2.0**-50 if dtype == "f64" else 2.0**-22)
    value = wide(got)
    check(got, np.clip(value, exact - slack, exact + slack), dtype, 0.5, signed_zero=False)


@covers("matmul")
@pytest.mark.parametrize("dtype", NUMBERS)
def test_matmul(dtype):
    for a_shape, b_shape in SHAPES:
        rng = rng_of("matmul", dtype, a_shape, b_shape)
        a, b = (random_values(rng, dtype, s, special=dtype in INTS) for s in (a_shape, b_shape))
        got = evaluate("matmul", a, b)
        if dtype in FLOATS:
            float_check(got, a, b, np.matmul(wide(a), wide(b)), dtype)
        else:
            check(got, np.matmul(a, b), dtype)


@pytest.mark.parametrize("left,right,out", [("i8", "i8", "i32"), ("u8", "i8", "i32"), ("u8", "u8", "i32"), ("i8", "i8", "f32"), ("i16", "i16", "i64")])
def test_integer_products_into_a_wider_dtype(left, right, out):
    rng = rng_of(left, right, out)
    a, b = random_values(rng, left, (5, 300)), random_values(rng, right, (300, 4))
    exact = np.matmul(a.astype(np.int64), b.astype(np.int64))
    check(evaluate("matmul", a, b, dtype=out), exact.astype(np.float64) if out == "f32" else exact, out, 0.5)


@pytest.mark.parametrize("left,right", [("f32", "bf16"), ("bf16", "f16"), ("i32", "f32"), ("i8", "i16"), ("f64", "f32")])
def test_promotion(left, right):
    rng = rng_of(left, right)
    a, b = random_values(rng, left, (3, 4), special=False), random_values(rng, right, (4, 2), special=False)
    out = promote(left, right)
    got = evaluate("matmul", a, b)
    if out in FLOATS:
        float_check(got, a, b, np.matmul(wide(a), wide(b)), out)
    else:
        check(got, np.matmul(a.astype(DTYPES[out]), b.astype(DTYPES[out])), out)


def test_errors():
    f = np.float32
    for a, b in [((3, 4), (5, 2)), ((), (3,)), ((3,), ()), ((2, 3, 4), (3, 4, 5))]:
        with pytest.raises(RlxError, match=r"\[matmul\]"):
            evaluate("matmul", np.zeros(a, f), np.zeros(b, f))


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values(dtype):
    d = DTYPES[dtype]
    a = np.array([[np.inf, 1], [np.nan, 1], [0, 0], [-np.inf, np.inf]], d)
    b = np.array([[1, 0], [1, 2]], d)
    with np.errstate(invalid="ignore"):
        expected = np.matmul(wide(a), wide(b))
        expected[0, 1] = np.nan  # inf times 0
        expected[3, 1] = np.nan
    check(evaluate("matmul", a, b), expected, dtype, 0.5, signed_zero=False)
