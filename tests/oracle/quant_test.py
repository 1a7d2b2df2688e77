"""Number formats and scaled matmul against ml_dtypes and NumPy."""

import ml_dtypes
import numpy as np
import pytest
from rlx_op import RlxError, covers, evaluate, rng_of

TYPES = {
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2, "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "f6e2m3": ml_dtypes.float6_e2m3fn, "f6e3m2": ml_dtypes.float6_e3m2fn,
    "f4e2m1": ml_dtypes.float4_e2m1fn,
}
MAX = {"f8e4m3": 448, "f8e5m2": 57344, "f8e4m3fnuz": 240, "f8e5m2fnuz": 57344, "f6e2m3": 7.5, "f6e3m2": 28, "f4e2m1": 6}
EMAX = {"f8e4m3": 8, "f8e5m2": 15, "f6e2m3": 2, "f6e3m2": 4, "f4e2m1": 2}
BITS = {"f8e4m3": 8, "f8e5m2": 8, "f8e4m3fnuz": 8, "f8e5m2fnuz": 8, "f6e2m3": 6, "f6e3m2": 6, "f4e2m1": 4}
F32 = np.float32


def cast(x, name):
    """Saturating codes."""
    x = np.asarray(x, F32)
    clipped = np.clip(x, F32(-MAX[name]), F32(MAX[name]))
    return clipped.astype(TYPES[name]).view(np.uint8)


def values(codes, name):
    return codes.view(TYPES[name]).astype(F32)


def inputs(name):
    """Every f16, and what lies beside the middle of each pair of neighbours."""
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(F32)
    v = np.sort(values(np.arange(2 ** BITS[name], dtype=np.uint8), name).astype(np.float64))
    v = v[np.isfinite(v)]
    middle = ((v[1:] + v[:-1]) / 2).astype(F32)
    return np.concatenate([halves, middle, np.nextafter(middle, F32(np.inf)), np.nextafter(middle, F32(-np.inf))])


@covers("to_format", "from_format")
@pytest.mark.parametrize("name", TYPES)
def test_casts(name):
    x = inputs(name)
    x = x[~np.isnan(x)]
    assert np.array_equal(evaluate("to_format", x, format=name), cast(x, name))
    free = evaluate("to_format", x, format=name, saturate=False)
    with np.errstate(invalid="ignore"):
        assert np.array_equal(free, x.astype(TYPES[name]).view(np.uint8))
    codes = np.arange(2 ** BITS[name], dtype=np.uint8)
    np.testing.assert_array_equal(evaluate("from_format", codes, format=name), values(codes, name))


@pytest.mark.parametrize("name", TYPES)
def test_nan(name):
    """NaN is the format's own, or the largest value where there is none."""
    code = evaluate("to_format", np.array([np.nan], F32), format=name)
    assert np.isnan(values(code, name)[0]) if BITS[name] == 8 else values(code, name)[0] == MAX[name]


def test_published_values():
    x = np.array([1000, 448, 464, 465, -1000, np.inf, np.nan], F32)
    assert evaluate("to_format", x, format="f8e4m3").tobytes().hex() == "7e7e7e7efe7e7f"
    assert evaluate("to_format", x, format="f8e4m3", saturate=False).tobytes().hex() == "7f7e7e7fff7f7f"
    x = np.array([2**-10, 3 * 2**-10, 256, 288, 320, -0.0, 2**-9], F32)
    assert evaluate("to_format", x, format="f8e4m3").tobytes().hex() == "000278797a8001"
    x = np.array([61439, 61440], F32)
    assert evaluate("to_format", x, format="f8e5m2").tobytes().hex() == "7b7b"
    assert evaluate("to_format", x, format="f8e5m2", saturate=False).tobytes().hex() == "7b7c"
    x = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 5.01, 9, -0.25, -5], F32)
    got = values(evaluate("to_format", x, format="f4e2m1"), "f4e2m1")
    assert got.tolist() == [0, 1, 1, 2, 2, 4, 4, 6, 6, 0, -4] and np.signbit(got[9])


def test_int8():
    """Saturates at -128 and 127, rounds half to even, and divides rather than multiplying by a reciprocal."""
    x = np.array([-129, -128, -127, -126, 126, 127, 128, 129], F32)
    assert evaluate("to_format", x, format="int8").view(np.int8).tolist() == [-128, -128, -127, -126, 126, 127, 127, 127]
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5], F32)
    assert evaluate("to_format", x, format="int8").view(np.int8).tolist() == [0, 2, 2, 0, -2, -2]
    ratio = evaluate("div", np.array([-2.5], F32), np.array([5 / 255], F32))
    assert evaluate("to_format", ratio, format="int8").view(np.int8).tolist() == [-127]
    codes = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(evaluate("from_format", codes, format="int8"), codes.view(np.int8).astype(F32))
    np.testing.assert_array_equal(evaluate("from_format", codes[:16], format="int4"), [0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1])


def test_ternary():
    x = np.array([-1.2, -1, -0.9, -0.1, 0, 0.1, 0.9, 1, 1.2], F32)
    codes = evaluate("to_format", x, format="ternary")
    assert evaluate("from_format", codes, format="ternary").tolist() == [-1, -1, -1, 0, 0, 0, 1, 1, 1]


# ------------------------------------------------------------------------------------------------ scales


def blocks(x, size):
    pad = -x.shape[-1] % size
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, pad)]).reshape(*x.shape[:-1], -1, size)


def per_element(scale, size, columns):
    return np.repeat(scale, size, axis=-1)[..., :columns]


def mx(x, name, rule):
    amax = np.abs(blocks(x, 32)).max(-1).astype(np.float64)
    with np.errstate(divide="ignore"):
        e = np.ceil(np.log2(amax / MAX[name])) if rule == "ceil" else np.floor(np.log2(amax)) - EMAX[name]
    byte = np.clip(e + 127, 0, 254).astype(np.uint8)
    scale = np.ldexp(F32(1), byte.astype(int) - 127).astype(F32)
    codes = cast(x / per_element(scale, 32, x.shape[-1]), name)
    return byte, codes, values(codes, name) * per_element(scale, 32, x.shape[-1])


def nvfp4(x):
    amax = np.abs(x).max()
    tensor = F32(1) if amax == 0 else F32(amax) / F32(2688)
    ratio = (np.abs(blocks(x, 16)).max(-1) / F32(6)) / tensor
    byte = cast(np.clip(ratio, F32(2**-9), F32(448)), "f8e4m3")
    s = values(byte, "f8e4m3")
    codes = cast(x / (per_element(s, 16, x.shape[-1]) * tensor), "f4e2m1")
    return tensor, byte, codes, values(codes, "f4e2m1") * per_element(s, 16, x.shape[-1]) * tensor


def per_tensor(x, name):
    amax = F32(np.abs(x).max())
    scale = F32(1) if amax == 0 else np.clip(amax / F32(MAX[name]), F32(2**-126), np.finfo(F32).max)
    codes = cast(x / scale, name)
    return scale, codes, values(codes, name) * scale


def samples(columns=75):
    rng = rng_of("scaled", columns)
    x = rng.standard_normal((6, columns)).astype(F32)
    x[0] *= np.exp2(rng.integers(-30, 30, columns)).astype(F32)
    x[1] = 0
    x[2] *= F32(1e-39)
    x[3] *= F32(1e36)
    x[4, :32] = 0
    return x


@covers("scaled_quant_scale", "scaled_quantize", "scaled_dequantize")
@pytest.mark.parametrize("rule", ["ceil", "floor"])
@pytest.mark.parametrize("name", EMAX)
def test_mx(name, rule):
    for columns in (1, 31, 32, 33, 75):
        x = samples(columns)
        byte, codes, value = mx(x, name, rule)
        attrs = {"format": name, "layout": "mx"}
        scale = evaluate("scaled_quant_scale", x, rule=rule, **attrs)
        np.testing.assert_array_equal(scale, byte)
        got = evaluate("scaled_quantize", x, scale, **attrs)
        np.testing.assert_array_equal(got, codes)
        np.testing.assert_array_equal(evaluate("scaled_dequantize", got, scale, **attrs), value)


def test_mx_amax_one_is_exact():
    x = np.array([[1.0, 0.3] + [0.01] * 30], F32)
    for rule in ("ceil", "floor"):
        for name in ("f8e4m3", "f8e5m2", "f4e2m1"):
            attrs = {"format": name, "layout": "mx"}
            scale = evaluate("scaled_quant_scale", x, rule=rule, **attrs)
            codes = evaluate("scaled_quantize", x, scale, **attrs)
            assert evaluate("scaled_dequantize", codes, scale, **attrs)[0, 0] == 1


@pytest.mark.parametrize("name", EMAX)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_mx_marks_blocks_that_are_not_finite(name, bad):
    x = np.ones((2, 64), F32)
    x[1, 40] = bad
    attrs = {"format": name, "layout": "mx"}
    scale = evaluate("scaled_quant_scale", x, **attrs)
    assert scale[1, 1] == 255 and (np.delete(scale.ravel(), 3) != 255).all()
    got = evaluate("scaled_dequantize", evaluate("scaled_quantize", x, scale, **attrs), scale, **attrs)
    assert np.isnan(got[1, 32:]).all() and np.isfinite(got[0]).all() and np.isfinite(got[1, :32]).all()


def test_mx_byte_zero_is_not_zero():
    got = evaluate("scaled_dequantize", np.full((1, 32), 0x38, np.uint8), np.zeros((1, 1), np.uint8), format="f8e4m3", layout="mx")
    assert (got == 2.0**-127).all()


@covers("scaled_quant_tensor_scale")
def test_nvfp4():
    attrs = {"format": "f4e2m1", "layout": "nvfp4"}
    for columns in (1, 15, 16, 17, 75):
        for x in (samples(columns), np.zeros((2, columns), F32), np.array([[3000.0] + [0] * (columns - 1)], F32)):
            tensor, byte, codes, value = nvfp4(x)
            tensor_scale = evaluate("scaled_quant_tensor_scale", x)
            assert tensor_scale[0] == tensor
            scale = evaluate("scaled_quant_scale", x, tensor_scale, **attrs)
            np.testing.assert_array_equal(scale, byte)
            got = evaluate("scaled_quantize", x, scale, tensor_scale, **attrs)
            np.testing.assert_array_equal(got, codes)
            np.testing.assert_array_equal(evaluate("scaled_dequantize", got, scale, tensor_scale, **attrs), value)
    assert abs(value[0, 0] - 3000) < 1


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nvfp4_has_no_scale_of_nan(bad):
    x = np.ones((2, 32), F32)
    x[0, 3] = bad
    attrs = {"format": "f4e2m1", "layout": "nvfp4"}
    tensor_scale = evaluate("scaled_quant_tensor_scale", x)
    scale = evaluate("scaled_quant_scale", x, tensor_scale, **attrs)
    assert ((scale & 0x7F) != 0x7F).all()
    got = evaluate("scaled_dequantize", evaluate("scaled_quantize", x, scale, tensor_scale, **attrs), scale, tensor_scale, **attrs)
    assert not np.isfinite(got[0, 3])


@pytest.mark.parametrize("name", TYPES)
def test_per_tensor(name):
    attrs = {"format": name, "layout": "per_tensor"}
    for x in (samples()[[0, 1, 4, 5]], samples()[2], np.zeros(3, F32), np.array([1e-40], F32), np.array(-7.0, F32)):
        scale, codes, value = per_tensor(x, name)
        got_scale = evaluate("scaled_quant_scale", x, **attrs)
        assert got_scale[0] == scale and got_scale.shape == (1,)
        got = evaluate("scaled_quantize", x, got_scale, **attrs)
        np.testing.assert_array_equal(got, codes)
        np.testing.assert_array_equal(evaluate("scaled_dequantize", got, got_scale, **attrs), value)
    infinite = evaluate("scaled_quant_scale", np.array([1, np.inf], F32), **attrs)
    assert np.isfinite(infinite).all() and infinite[0] > 0


# ------------------------------------------------------------------------------------------------ the product

PAIRS = [(a, b, layout) for layout, names in (("per_tensor", list(TYPES)), ("mx", list(EMAX)), ("nvfp4", ["f4e2m1"]))
         for a in names for b in names]
SIZES = [1, 2, 15, 16, 17, 31, 32, 33, 130]


def quantized(x, name, layout):
    """Codes, scales, and the value in f64."""
    if layout == "per_tensor":
        scale, codes, value = per_tensor(x, name)
        return codes, np.array([scale], F32), None, value.astype(np.float64)
    if layout == "mx":
        byte, codes, value = mx(x, name, "ceil")
        return codes, byte, None, value.astype(np.float64)
    tensor, byte, codes, value = nvfp4(x)
    return codes, byte, np.array([tensor], F32), value.astype(np.float64)


def scaled_inputs(rng, m, n, k, lhs, rhs, layout):
    a, b = (rng.standard_normal(s).astype(F32) for s in ((m, k), (n, k)))
    l, r = quantized(a, lhs, layout), quantized(b, rhs, layout)
    tensors = [l[0], r[0], l[1], r[1]] + ([l[2], r[2]] if layout == "nvfp4" else [])
    attrs = {"lhs_format": lhs, "rhs_format": rhs, "scale_layout": layout}
    return tensors, attrs, l[3], r[3]


@covers("scaled_matmul")
@pytest.mark.parametrize("layout", ["per_tensor", "mx", "nvfp4"])
def test_product_of_every_size(layout):
    """All of {sizes}³ for one pair of formats a layout; each other pair at some sizes."""
    lhs, rhs = {"per_tensor": ("f8e4m3", "f8e5m2"), "mx": ("f8e4m3", "f4e2m1"), "nvfp4": ("f4e2m1", "f4e2m1")}[layout]
    rng = rng_of("product", layout)
    for m in SIZES:
        for n in SIZES:
            for k in SIZES:
                check_product(rng, m, n, k, lhs, rhs, layout)


def check_product(rng, m, n, k, lhs, rhs, layout):
    tensors, attrs, l, r = scaled_inputs(rng, m, n, k, lhs, rhs, layout)
    got = evaluate("scaled_matmul", *tensors, **attrs)
    assert got.dtype == F32 and got.shape == (m, n)
    bound = (np.abs(l) @ np.abs(r).T) * (k + 3) * 2.0**-24
    assert (np.abs(got - l @ r.T) <= bound).all(), (m, n, k, lhs, rhs, layout)


@pytest.mark.parametrize("lhs,rhs,layout", PAIRS)
def test_product_of_every_pair(lhs, rhs, layout):
    rng = rng_of("pair", lhs, rhs, layout)
    for m, n, k in ((1, 1, 1), (2, 3, 5), (17, 15, 33), (2, 15, 32), (3, 4, 130)):
        check_product(rng, m, n, k, lhs, rhs, layout)


@pytest.mark.parametrize("layout", ["per_tensor", "mx", "nvfp4"])
def test_one_row_times_sizes_beside_the_tiles(layout):
    name = "f4e2m1" if layout == "nvfp4" else "f8e4m3"
    rng = rng_of("row", layout)
    for k in (1, 31, 32, 33, 63, 65, 255, 257):
        for n in (1, 3, 7, 8, 9, 33):
            check_product(rng, 1, n, k, name, name, layout)


def test_product_without_terms():
    tensors = [np.zeros((4, 0), np.uint8), np.zeros((3, 0), np.uint8), np.ones(1, F32), np.ones(1, F32)]
    got = evaluate("scaled_matmul", *tensors, lhs_format="f8e4m3", rhs_format="f8e4m3")
    np.testing.assert_array_equal(got, np.zeros((4, 3), F32))
    tensors[2:] = [np.zeros((4, 0), np.uint8), np.zeros((3, 0), np.uint8)]
    got = evaluate("scaled_matmul", *tensors, lhs_format="f8e4m3", rhs_format="f8e4m3", scale_layout="mx")
    np.testing.assert_array_equal(got, np.zeros((4, 3), F32))


def test_bias():
    rng = rng_of("bias")
    tensors, attrs, l, r = scaled_inputs(rng, 5, 7, 40, "f8e4m3", "f8e4m3", "mx")
    bias = rng.standard_normal(7).astype(F32)
    got = evaluate("scaled_matmul", *tensors, bias, has_bias=True, **attrs)
    np.testing.assert_allclose(got, l @ r.T + bias, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("inputs,attrs,message", [
    ([np.zeros((2, 3), np.uint8), np.zeros((2, 4), np.uint8), np.ones(1, F32), np.ones(1, F32)], {}, "axis 1 differs"),
    ([np.zeros((2, 3), F32), np.zeros((2, 3), np.uint8), np.ones(1, F32), np.ones(1, F32)], {}, "u8 codes"),
    ([np.zeros((2, 3), np.uint8), np.zeros((2, 3), np.uint8), np.ones(2, F32), np.ones(1, F32)], {}, "the scale of"),
    ([np.zeros((2, 3), np.uint8), np.zeros((2, 3), np.uint8), np.ones(1, F32), np.ones(1, F32)], {"lhs_format": "int8"}, "no float format"),
    ([np.zeros((2, 3), np.uint8), np.zeros((2, 3), np.uint8), np.ones(1, F32), np.ones(1, F32)], {"has_bias": True}, "takes 5 inputs"),
])
def test_refuses(inputs, attrs, message):
    with pytest.raises(RlxError, match=message):
        evaluate("scaled_matmul", *inputs, **attrs)
