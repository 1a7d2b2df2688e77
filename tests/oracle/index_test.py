"""Index ops against NumPy: every dtype of values and of indices, negative indices, ties, zero sizes, and the errors."""

import numpy as np
import pytest
import rlx_op
from rlx_op import DTYPES, INTS, NUMBERS, SIGNED, RlxError, check, covers, evaluate, random_values, rng_of, wide

VALUES = [*NUMBERS, "bool"]


def same(got, expected):
    expected = np.asarray(expected)
    assert got.dtype == expected.dtype and got.shape == expected.shape, (got.dtype, got.shape, expected.dtype, expected.shape)
    assert got.tobytes() == expected.tobytes(), f"{got} {expected}"


def places(rng, dtype, n, shape):
    """Indices of an axis of size n, negative ones too where the dtype has them."""
    low = -n if dtype in SIGNED else 0
    return rng.integers(low, n, shape).astype(DTYPES[dtype])


@covers("gather", "gather_elements")
@pytest.mark.parametrize("index", INTS)
@pytest.mark.parametrize("dtype", VALUES)
def test_gather(dtype, index):
    rng = rng_of(dtype, index)
    x = random_values(rng, dtype, (3, 4, 5))
    for axis in [0, 1, 2, -1]:
        n = x.shape[axis]
        for shape in [(), (6,), (2, 3), (0,), (1, 0, 2)]:
            i = places(rng, index, n, shape)
            same(evaluate("gather", x, i, axis=axis), np.take(x, i.astype(np.int64), axis))
        shape = [2, 3, 4]
        shape[axis] = 6
        i = places(rng, index, n, shape)
        clipped = x[: 2 if axis not in (0,) else 3, : 3 if axis != 1 else 4, : 4 if axis not in (2, -1) else 5]
        wrapped = np.where(i < 0, i.astype(np.int64) + n, i.astype(np.int64))
        same(evaluate("gather_elements", clipped, i, axis=axis), np.take_along_axis(clipped, wrapped, axis))


@covers("scatter", "scatter_elements")
@pytest.mark.parametrize("dtype", NUMBERS)
def test_scatter(dtype):
    rng = rng_of("scatter", dtype)
    x = random_values(rng, dtype, (4, 5), special=False)
    for axis in [0, 1, -1]:
        n = x.shape[axis]
        for shape in [(), (6,), (2, 3), (0,)]:
            i = places(rng, "i64", n, shape)
            updates = random_values(rng, dtype, (*shape, 5) if axis == 0 else (4, *shape), special=False)
            for mode in ["set", "add"]:
                target = np.moveaxis(x, axis, 0).copy()
                exact = wide(target).copy()
                parts = np.moveaxis(updates, list(range(len(shape))) if axis == 0 else list(range(1, 1 + len(shape))), list(range(len(shape))))
                for at in np.ndindex(*shape):  # in order: the last of equal ones stays
                    if mode == "set":
                        exact[i[at]] = parts[at]
                    else:
                        exact[i[at]] += parts[at]
                got = evaluate("scatter", x, i, updates, axis=axis, mode=mode)
                as_wide = dtype == "f64" or (dtype == "f32" and rlx_op.DEVICE != "interpreter")  # sums without more digits
                check(got, np.moveaxis(exact, 0, axis), dtype, 0 if mode == "set" else 100 if as_wide else 0.5, signed_zero=False)
        shape = (3, 2)
        i = places(rng, "i32", n, shape)
        updates = random_values(rng, dtype, shape, special=False)
        for mode in ["set", "add"]:
            exact = wide(x).copy()
            for at in np.ndindex(*shape):
                to = (i[at], at[1]) if axis == 0 else (at[0], i[at])
                exact[to] = updates[at] if mode == "set" else exact[to] + updates[at]
            check(evaluate("scatter_elements", x, i, updates, axis=axis, mode=mode), exact, dtype, 100 if dtype == "f64" else 0.5, signed_zero=False)


@covers("one_hot")
@pytest.mark.parametrize("dtype", [*NUMBERS, "bool"])
def test_one_hot(dtype):
    for i in [np.array(2), np.array([[0, 1], [3, 2]], np.int8), np.zeros((0, 2), np.uint16), np.array([-1, -4])]:
        expected = np.eye(4, dtype=DTYPES[dtype])[i.astype(np.int64)]
        same(evaluate("one_hot", i, depth=4, dtype=dtype), expected)


@covers("size")
def test_size():
    x = np.zeros((2, 0, 3), np.float32)
    for axis in [0, 1, 2, -1]:
        for symbolic in [False, True]:
            same(evaluate("size", x, axis=axis, symbolic=symbolic), np.int64(x.shape[axis]))


def order(x, axis, descending):
    """Stable, NaN counts as the greatest, -0 and 0 are equal."""
    keys = wide(x)
    if not descending:
        return np.argsort(keys, axis, kind="stable")
    flipped = np.argsort(np.flip(keys, axis), axis, kind="stable")  # a stable descending order from both ends
    return np.flip(x.shape[axis] - 1 - flipped, axis)


@covers("sort", "argsort")
@pytest.mark.parametrize("dtype", VALUES)
def test_sort(dtype):
    for shape, axis in [((9,), 0), ((4, 7), 1), ((4, 7), 0), ((2, 3, 5), -1), ((0, 3), 0), ((3, 0), 0), ((1,), 0), ((60,), 0)]:
        for descending in [False, True]:
            x = random_values(rng_of("sort", dtype, shape), dtype, shape)
            expected = order(x, axis, descending)
            same(evaluate("argsort", x, axis=axis, descending=descending), expected.astype(np.int64))
            got = evaluate("sort", x, axis=axis, descending=descending)
            np.testing.assert_array_equal(wide(got), wide(np.take_along_axis(x, expected, axis)))


def test_indices_out_of_range():
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    for index in [3, -4, 1000]:
        i = np.array([0, index])
        for op, inputs in [("gather", [x, i]), ("scatter", [x, i, x[:2]]), ("gather_elements", [x, i[:, None]]),
                           ("scatter_elements", [x, i[:, None], x[:2, :1]])]:
            mode = {"mode": "set"} if op.startswith("scatter") else {}
            with pytest.raises(RlxError, match=rf"\[{op}\].*{index}.*3"):
                evaluate(op, *inputs, axis=0, **mode)
    with pytest.raises(RlxError, match=r"4.*\[-4, 4\)"):
        evaluate("one_hot", np.array([4]), depth=4, dtype="f32")
    with pytest.raises(RlxError, match=r"\[gather\]"):
        evaluate("gather", x, np.array([0.0]), axis=0)
