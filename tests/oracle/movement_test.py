"""Movement ops against NumPy: every dtype, to the bit."""

import numpy as np
import pytest
from rlx_op import DTYPES, NUMBERS, RlxError, covers, evaluate, random_values, rng_of

ALL = [*DTYPES]


def values(dtype, shape):
    rng = rng_of("movement", dtype, shape)
    if dtype == "c64":
        return (random_values(rng, "f32", shape) + 1j * random_values(rng, "f32", shape)).astype(np.complex64)
    return random_values(rng, dtype, shape)


def same(got, expected):
    expected = np.asarray(expected)
    assert got.dtype == expected.dtype and got.shape == expected.shape, (got.dtype, got.shape, expected.dtype, expected.shape)
    assert got.tobytes() == expected.tobytes(), f"{got} {expected}"


@covers("reshape", "expand", "transpose", "flip")
@pytest.mark.parametrize("dtype", ALL)
def test_whole_tensors(dtype):
    x = values(dtype, (2, 3, 4))
    for shape in [[4, 6], [24], [1, 24, 1], [2, 3, 4]]:
        same(evaluate("reshape", x, shape=shape), x.reshape(shape))
    same(evaluate("reshape", x[0, 0, 0], shape=[1, 1]), x[0, 0, 0].reshape(1, 1))
    same(evaluate("reshape", x[:0], shape=[0, 5]), x[:0].reshape(0, 5))
    for perm in [[0, 1, 2], [2, 0, 1], [1, 0, 2], [2, 1, 0]]:
        same(evaluate("transpose", x, perm=perm), x.transpose(perm))
    same(evaluate("transpose", x[0, 0, 0], perm=[]), x[0, 0, 0])
    same(evaluate("transpose", x[:, :0], perm=[2, 1, 0]), x[:, :0].transpose(2, 1, 0))
    for axes in [[0], [1, 2], [-1], []]:
        same(evaluate("flip", x, axes=axes), np.flip(x, axes))
    for source, shape in [(x[:, :1], [2, 3, 4]), (x[0, 0], [5, 4]), (x[0, 0, 0], [2, 2]), (x[0, :, :1], [2, 3, 5]), (x[0, :1], [0, 4])]:
        same(evaluate("expand", source, shape=shape), np.broadcast_to(source, shape))


@covers("slice", "pad", "concat")
@pytest.mark.parametrize("dtype", ALL)
def test_parts(dtype):
    x = values(dtype, (5, 6))
    rng = rng_of("parts", dtype)
    for _ in range(20):
        starts, sizes, steps, index = [], [], [], []
        for n in x.shape:
            step = int(rng.choice([-3, -2, -1, 1, 2, 3]))
            picked = range(int(rng.integers(0, n)), n if step > 0 else -1, step)
            picked = picked[: int(rng.integers(0, len(picked) + 1))]
            starts.append(picked.start), sizes.append(len(picked)), steps.append(step), index.append(list(picked))
        same(evaluate("slice", x, starts=starts, sizes=sizes, steps=steps), x[np.ix_(*[np.array(i, int) for i in index])])
    if dtype not in ("c64", "bool"):
        for low, high, value in [([0, 0], [0, 0], 0), ([1, 2], [0, 3], 1), ([0, 1], [2, 0], 7)]:
            same(evaluate("pad", x, low=low, high=high, value=value), np.pad(x, list(zip(low, high)), constant_values=value))
        same(evaluate("pad", x[:0], low=[2, 0], high=[0, 0], value=3), np.pad(x[:0], [(2, 0), (0, 0)], constant_values=3))
    same(evaluate("concat", x, x[:2], x[:0], axis=0), np.concatenate([x, x[:2], x[:0]]))
    same(evaluate("concat", x[:, 1:3], x, axis=-1), np.concatenate([x[:, 1:3], x], -1))
    same(evaluate("concat", x, axis=1), x)


@covers("iota")
@pytest.mark.parametrize("dtype", NUMBERS)
def test_iota(dtype):
    for shape, axis in [([4], 0), ([2, 3], 1), ([3, 2], 0), ([0], 0), ([3, 2], -1)]:
        along = [1] * len(shape)
        along[axis] = shape[axis]
        expected = np.broadcast_to(np.arange(shape[axis]).reshape(along), shape).astype(DTYPES[dtype])
        same(evaluate("iota", shape=shape, axis=axis, dtype=dtype), expected)


def test_errors():
    x = np.zeros((2, 3), np.float32)
    for op, attrs in [("reshape", {"shape": [7]}), ("expand", {"shape": [2, 4]}), ("transpose", {"perm": [0, 0]}), ("transpose", {"perm": [0]}),
                      ("slice", {"starts": [0, 0], "sizes": [3, 3], "steps": [1, 1]}), ("flip", {"axes": [2]}), ("concat", {"axis": 2}),
                      ("slice", {"starts": [0, 0], "sizes": [2, 3], "steps": [0, 1]}), ("pad", {"low": [0], "high": [0, 0], "value": 0})]:
        with pytest.raises(RlxError, match=rf"\[{op}\]"):
            evaluate(op, x, **attrs)
