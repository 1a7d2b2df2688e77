"""Composites where their values are special: infinities, NaN, equal and huge scores, empty rows, labels out of range."""

import numpy as np
import pytest
import rlx_op
from rlx_op import DTYPES, FLOATS, RlxError, check, covers, evaluate, gradients

inf, nan = np.inf, np.nan


def f32(*values):
    return np.array(values, np.float32)


@covers("relu", "relu6", "clamp", "relu_backward", "softplus", "sigmoid", "hard_sigmoid", "reciprocal")
@pytest.mark.parametrize("dtype", FLOATS)
def test_activations_of_special_values(dtype):
    d = DTYPES[dtype]
    x = np.array([nan, inf, -inf, 0.0, -0.0, 1.0, -1.0], d)
    for op, expected in {
            "relu": [nan, inf, 0, 0, 0, 1, 0], "relu6": [nan, 6, 0, 0, 0, 1, 0], "relu2": [nan, inf, 0, 0, 0, 1, 0],
            "softplus": [nan, inf, 0, np.log(2), np.log(2), np.log1p(np.e), np.log1p(np.exp(-1))],
            "hard_sigmoid": [nan, 1, 0, 0.5, 0.5, 4 / 6, 2 / 6], "reciprocal": [nan, 0, -0.0, inf, -inf, 1, -1],
            "square": [nan, inf, inf, 0, 0, 1, 1], "silu": [nan, inf, nan, 0, 0, 1 / (1 + np.exp(-1)), -1 / (1 + np.e)],
            "softsign": [nan, nan, nan, 0, 0, 0.5, -0.5]}.items():
        check(evaluate(op, x), np.array(expected, np.longdouble), dtype, 4, signed_zero=False, hint=op)
    low, high = np.array(-0.5, d), np.array(0.5, d)
    check(evaluate("clamp", x, low, high), np.array([nan, 0.5, -0.5, 0, 0, 0.5, -0.5]), dtype, 0, signed_zero=False)


def test_conventions_of_derivatives():
    """The contract's: 0 where the function has a corner or an edge."""
    zero = f32(0.0, -0.0)
    one = f32(1, 1)
    for op in ["relu", "abs", "relu2"]:
        np.testing.assert_array_equal(gradients(op, one, zero)[1][0], f32(0, 0), err_msg=op)
    edge = f32(0, -1)
    for op in ["sqrt", "rsqrt"]:
        np.testing.assert_array_equal(gradients(op, one, edge)[1][0], f32(0, 0), err_msg=op)
        np.testing.assert_array_equal(evaluate("activation_backward", edge, one, kind=op), f32(0, 0), err_msg=op)
    np.testing.assert_array_equal(evaluate("relu_backward", f32(0, -0.0, -1, 2), f32(5, 5, 5, 5)), f32(0, 0, 0, 5))
    np.testing.assert_array_equal(gradients("stop_gradient", one, edge)[1][0], f32(0, 0))


@covers("softmax", "log_softmax", "logsumexp")
@pytest.mark.parametrize("dtype", FLOATS)
def test_softmax_of_special_values(dtype):
    d = DTYPES[dtype]
    big = 60000.0 if dtype == "f16" else 1e30
    rows = np.array([[big, big, -big], [-inf, 0, 0], [-inf, -inf, 5], [1, 1, 1], [nan, 0, 0]], d)
    third = 1 / 3
    expected = np.array([[0.5, 0.5, 0], [0, 0.5, 0.5], [0, 0, 1], [third] * 3, [nan] * 3])
    check(evaluate("softmax", rows, axis=-1), expected, dtype, 2, signed_zero=False)
    with np.errstate(divide="ignore"):
        got = evaluate("log_softmax", rows[1:4], axis=-1)
        check(got, np.log(expected[1:4]), dtype, 4, signed_zero=False)
    check(evaluate("logsumexp", rows[1:4], axis=-1, keepdims=False), np.array([np.log(2), 5, 1 + np.log(3)]), dtype, 4)
    edges = np.array([[-inf, -inf], [inf, 1]], d)
    check(evaluate("logsumexp", edges, axis=-1, keepdims=False), np.array([-inf, inf]), dtype, 0)
    for shape, axis in [((0, 3), 1), ((0, 3), 0), ((3, 0), 0)]:
        assert evaluate("softmax", np.zeros(shape, d), axis=axis).shape == shape


@covers("rms_norm", "layer_norm", "group_norm")
def test_norms_of_constant_rows():
    x, g, b = np.zeros((2, 4), np.float32), f32(1, 2, 3, 4), f32(5, 6, 7, 8)
    np.testing.assert_array_equal(evaluate("rms_norm", x, g, eps=1e-5), x)
    np.testing.assert_array_equal(evaluate("layer_norm", x + 3, g, b, axis=-1, eps=1e-5), np.stack([b, b]))
    assert evaluate("rms_norm", x[:0], g, eps=1e-5).shape == (0, 4)
    y, (dx, dg) = gradients("rms_norm", np.ones_like(x), x, g, eps=1e-5)
    assert np.all(np.isfinite(dx)) and np.all(dg == 0)


@covers("cross_entropy")
def test_labels():
    logits = np.zeros((2, 3), np.float32)
    check(evaluate("cross_entropy", logits, np.array([0, 2]), reduction="mean", ignore_index=-100), np.array(np.log(3)), "f32", 2)
    far = f32(1000, 0, -1000)[None]
    for label, expected in enumerate([0, 1000, 2000]):
        check(evaluate("cross_entropy", far, np.array([label]), reduction="sum", ignore_index=-100), np.array(expected), "f32", 1)
    for bad in [3, -1]:
        # expanded, the body's own gather finds it, counted from the end
        with pytest.raises(RlxError, match=rf"label {bad} .*3" if rlx_op.DEVICE == "interpreter" else "index .*3.*cross_entropy"):
            evaluate("cross_entropy", logits, np.array([0, bad]), reduction="mean", ignore_index=-100)
    y, (dx, _) = gradients("cross_entropy", np.array([1, 1], np.float32), logits, np.array([1, -100]), reduction="none", ignore_index=-100)
    assert y[1] == 0 and np.all(dx[1] == 0)


@covers("attention")
def test_rows_that_see_nothing():
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=s).astype(np.float32) for s in [(1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)])
    dy = np.ones_like(q)
    hidden = np.zeros((3, 5), bool)
    for inputs, attrs in [([q, k, v, hidden], {"mask": "custom"}), ([q, k, v, np.where(hidden, 0, -inf).astype(np.float32)], {"mask": "bias"}),
                          ([q, k, v, np.array([0], np.int32)], {"has_lengths": True}), ([q, k[:, :, :0], v[:, :, :0]], {})]:
        y, grads = gradients("attention", dy, *inputs, **attrs)
        assert np.all(y == 0), attrs
        for g in grads[:3]:
            assert np.all(g == 0), attrs
