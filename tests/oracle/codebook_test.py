"""The codebook layer against NumPy: values, gradients, every size of entry, and the errors."""

import numpy as np
import pytest
from rlx_op import DTYPES, FLOATS, RlxError, check, covers, evaluate, gradients, rng_of, wide


def problem(dtype, shape, n, d, entries):
    rng = rng_of(dtype, shape, n, d, entries)
    x = rng.normal(size=shape).astype(DTYPES[dtype])
    indices = rng.integers(0, entries, (n, shape[-1] // d)).astype(np.uint8)
    codebook = rng.normal(size=(entries, d)).astype(np.float32)
    return x, indices, codebook, {"entry_dim": d, "num_entries": entries}


@covers("synth_matmul")
@pytest.mark.parametrize("dtype", FLOATS)
def test_synth_matmul(dtype):
    for shape, n, d, entries in [((8,), 3, 2, 4), ((5, 8), 6, 1, 256), ((5, 8), 6, 2, 256), ((2, 3, 12), 7, 4, 9), ((4, 12), 5, 3, 1),
                                 ((2, 16), 3, 8, 5), ((3, 10), 4, 10, 6), ((0, 8), 3, 2, 4), ((2, 40), 300, 2, 256)]:
        x, indices, codebook, attrs = problem(dtype, shape, n, d, entries)
        weight = wide(codebook)[indices].reshape(n, -1)
        y = wide(x) @ weight.T
        bound = 64 if dtype in ("f32", "f64") else 2  # sums of products that cancel
        scale = np.abs(wide(x)) @ np.abs(weight).T
        got = evaluate("synth_matmul", x, indices, codebook, **attrs)
        assert got.dtype == x.dtype and got.shape == y.shape
        tolerance = np.ldexp(1.0, -{"f64": 52, "f32": 23, "f16": 10, "bf16": 7}[dtype]) * bound
        assert np.all(np.abs(wide(got) - y) <= tolerance * np.maximum(scale, 1e-6)), shape
        dy = rng_of("dy", shape).normal(size=y.shape).astype(DTYPES[dtype])
        _, (dx, di, dc) = gradients("synth_matmul", dy, x, indices, codebook, **attrs)
        assert di is None and dx.dtype == x.dtype and dc.dtype == np.float32
        assert np.all(np.abs(wide(dx) - wide(dy) @ weight) <= tolerance * np.maximum(np.abs(wide(dy)) @ np.abs(weight), 1e-6)), shape
        rows, g = wide(x).reshape(-1, shape[-1]), wide(dy).reshape(-1, n)
        exact, size = np.zeros((entries, d), np.longdouble), np.zeros((entries, d), np.longdouble)
        np.add.at(exact, indices.reshape(-1), (g.T @ rows).reshape(-1, d))
        np.add.at(size, indices.reshape(-1), (np.abs(g.T) @ np.abs(rows)).reshape(-1, d))
        assert np.all(np.abs(wide(dc) - exact) <= np.ldexp(64.0, -23) * np.maximum(size, 1e-6)), shape


def test_indices_out_of_range():
    x, indices, codebook, attrs = problem("f32", (2, 8), 3, 2, 4)
    for value in [4, 255]:
        indices[1, 2] = value
        with pytest.raises(RlxError, match=rf"(?s)(?=.*synth_matmul).*index {value} .*4"):
            evaluate("synth_matmul", x, indices, codebook, **attrs)


@pytest.mark.parametrize("change, message", [
    ({"entry_dim": 3}, "codebook must be"), ({"num_entries": 5}, "codebook must be"), ({"num_entries": 257}, "1 to 256"),
    ({"entry_dim": 0}, "entry_dim is 0"), ({"x": np.zeros((2, 7), np.float32)}, "does not divide k = 7"),
    ({"x": np.zeros((2, 10), np.float32)}, "expected k = 10"), ({"x": np.zeros((), np.float32)}, r"\[..., k\]"),
    ({"indices": np.zeros((3, 4), np.int32)}, "u8"), ({"x": np.zeros((2, 8), np.int32)}, "floats")])
def test_what_does_not_fit(change, message):
    x, indices, codebook, attrs = problem("f32", (2, 8), 3, 2, 4)
    inputs = {"x": x, "indices": indices, "codebook": codebook}
    change = dict(change)
    inputs = {name: change.pop(name, value) for name, value in inputs.items()}
    with pytest.raises(RlxError, match=rf"\[synth_matmul\].*{message}"):
        evaluate("synth_matmul", *inputs.values(), **{**attrs, **change})
