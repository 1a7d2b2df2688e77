"""GGUF's block types beside the gguf package: bytes where it has an encoder, values for all, on any bytes."""

import gguf
import ml_dtypes
import numpy as np
import pytest
from gguf import GGMLQuantizationType, quants

from rlx_op import RlxError, ask, decode, encode, rng_of

SIMPLE = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
TERNARY = ["TQ1_0", "TQ2_0"]
K = ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
ENCODED = SIMPLE + TERNARY + ["MXFP4"]
ALL = ENCODED + K + ["NVFP4"]
F32 = np.float32
MAX, TINY = np.finfo(F32).max, F32(2.0**-149)


def sizes(name):
    return gguf.GGML_QUANT_SIZES[GGMLQuantizationType[name]]


def encoded(name, values, **more):
    return decode(ask({"block": name, "encode": encode(values.astype(F32)), **more})["output"])


def decoded(name, raw):
    return decode(ask({"block": name, "decode": encode(raw)})["output"])


def reference_decoded(name, raw):
    with np.errstate(all="ignore"):
        return quants.dequantize(raw, GGMLQuantizationType[name])


def reference_encoded(name, values):
    with np.errstate(all="ignore"):
        return quants.quantize(values, GGMLQuantizationType[name])


def same_bits(a, b):
    """Equal to the bit, a NaN equal to any NaN."""
    a, b = np.asarray(a, F32), np.asarray(b, F32)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
    np.testing.assert_array_equal(a.view(np.uint32)[~np.isnan(a)], b.view(np.uint32)[~np.isnan(b)])


def normal(rng, rows=64, columns=512, low=-20, high=12):
    """Rows of one magnitude each."""
    return (rng.normal(size=(rows, columns)) * 2.0 ** rng.integers(low, high, (rows, 1))).astype(F32)


def grid(rng, rows=64, columns=512):
    """Multiples of a 240th of the largest value: ties of every width."""
    x = rng.integers(-240, 241, (rows, columns))
    x[:, ::16] = rng.choice([-240, 240], (rows, columns // 16))
    return (x / 16).astype(F32)


@pytest.mark.parametrize("name", ENCODED)
def test_encodes_to_the_bytes_of_the_reference(name):
    rng = rng_of("encode", name)
    ternary = rng.integers(-1, 2, (16, 512)).astype(F32)
    spikes = np.where(rng.random((64, 512)) < 0.02, normal(rng), 0).astype(F32)
    powers = np.ldexp(rng.choice([1, 1 - 2.0**-24, 1 + 2.0**-23], (64, 512)), rng.integers(-20, 12, (64, 1))).astype(F32)
    offsets = (normal(rng, low=-4, high=4) + rng.normal(size=(64, 1)) * 100).astype(F32)
    for values in (normal(rng), grid(rng), ternary, spikes, powers, offsets):
        np.testing.assert_array_equal(encoded(name, values), reference_encoded(name, values))


def test_mxfp4_scales_at_every_power_of_two():
    """The reference takes the logarithm in f32, where large powers of two swallow their neighbours below."""
    exponents = np.arange(-124, 128).reshape(-1, 1)
    rows = []
    for factor in (1, 1 - 2.0**-24, 1 - 2.0**-23, 1 - 2.0**-22, 1 - 2.0**-20, 1 + 2.0**-23, 1.5):
        x = np.zeros((len(exponents), 32))
        x[:, :1] = np.ldexp(np.float64(factor), exponents)
        x[:, 1:] = x[:, :1] * np.linspace(-1, 1, 31)
        rows.append(x.astype(F32))
    values = np.concatenate(rows)
    np.testing.assert_array_equal(encoded("MXFP4", values), reference_encoded("MXFP4", values))


@pytest.mark.parametrize("name", ALL)
def test_decodes_any_bytes_as_the_reference(name):
    rng = rng_of("decode", name)
    elements, size = sizes(name)
    raw = rng.integers(0, 256, (1024, size)).astype(np.uint8)
    odd = None
    if name == "MXFP4":
        raw[:256, 0] = np.arange(256)
        odd = raw[:, 0] == 255
    if name == "NVFP4":
        raw[:256, 0] = np.arange(256)
        raw[:, 1:4] &= 127
        odd = (raw[:, :4] >= 127).any(1)
    if odd is None:
        odd = np.zeros(len(raw), bool)
    same_bits(decoded(name, raw[~odd]), reference_decoded(name, raw[~odd]))
    if name == "MXFP4":
        assert np.isnan(decoded(name, raw[odd])).all()


def test_nvfp4_scales_are_signed_e4m3():
    """7F and FF are NaN, 80-FE negative, which the reference takes otherwise."""
    raw = np.zeros((256, 36), np.uint8)
    raw[:, :4] = np.arange(256)[:, None]
    raw[:, 4:] = np.tile([0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE], 4)
    scale = np.arange(256).astype(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(F32)
    low = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15], np.uint8)
    order = np.concatenate([low[::2], low[1::2]])
    codes = order.view(ml_dtypes.float4_e2m1fn).astype(F32)
    expected = np.tile(scale[:, None] * codes, 4)
    np.testing.assert_array_equal(decoded("NVFP4", raw), expected)


def nvfp4(values):
    """Numerics of the format in f32: {tensor scale, block scales, codes}."""
    with np.errstate(all="ignore"):
        tensor = F32(np.abs(values).max()) / F32(2688)
        tensor = max(tensor, F32(2.0**-126)) if tensor > 0 else F32(1)
        blocks = values.reshape(-1, 16)
        largest = np.abs(blocks).max(1) / F32(6) / tensor
        scales = np.clip(largest, F32(2.0**-9), F32(448)).astype(ml_dtypes.float8_e4m3fn)
        product = (scales.astype(F32) * tensor)[:, None]
        codes = np.clip(np.where(product == 0, 0, blocks / product), -6, 6).astype(ml_dtypes.float4_e2m1fn)
    return tensor, scales.view(np.uint8), codes.view(np.uint8)


@pytest.mark.parametrize("kind", ["normal", "grid", "spikes", "zero", "subnormal", "huge", "mixed"])
def test_nvfp4_encodes_by_the_formula(kind):
    rng = rng_of("nvfp4", kind)
    values = {
        "normal": lambda: normal(rng, 32, 256), "grid": lambda: grid(rng, 32, 256),
        "spikes": lambda: np.where(rng.random((32, 256)) < 0.02, normal(rng, 32, 256), 0),
        "zero": lambda: np.zeros((32, 256)), "subnormal": lambda: rng.normal(size=(32, 256)) * 1e-40,
        "huge": lambda: rng.choice([-1, 1], (32, 256)) * MAX * rng.random((32, 256)),
        "mixed": lambda: normal(rng, 32, 256, -60, 60),
    }[kind]().astype(F32)
    answer = ask({"block": "NVFP4", "encode": encode(values)})
    raw = decode(answer["output"]).reshape(-1, 36)
    scale, scales, codes = nvfp4(values)
    assert decode(answer["scale"])[0] == scale
    np.testing.assert_array_equal(raw[:, :4].reshape(-1), scales)
    codes = codes.reshape(-1, 2, 8)
    np.testing.assert_array_equal(raw[:, 4:].reshape(-1, 8), codes[:, 0] | codes[:, 1] << 4)
    assert (scales & 127 != 127).all()
    back = decoded("NVFP4", raw.reshape(32, -1)) * scale
    assert np.isfinite(back).all()


def test_nvfp4_keeps_a_lone_large_value():
    values = np.zeros((1, 64), F32)
    values[0, 0] = 3000
    answer = ask({"block": "NVFP4", "encode": encode(values)})
    back = decoded("NVFP4", decode(answer["output"])) * decode(answer["scale"])[0]
    np.testing.assert_allclose(back, values, rtol=1e-6)


@pytest.mark.parametrize("name", ENCODED + ["NVFP4"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_block_without_values_is_nan(name, bad):
    elements = sizes(name)[0]
    values = np.ones((4, 512), F32)
    values[0, 3] = values[3, 511] = bad
    back = decoded(name, encoded(name, values, scale=1.0)).reshape(-1)
    block = 16 if name == "NVFP4" else elements
    marked = np.zeros(4 * 512, bool)
    marked[:block] = marked[-block:] = True
    np.testing.assert_array_equal(np.isnan(back), marked)
    np.testing.assert_allclose(back[~marked], 1, rtol=0.04)


@pytest.mark.parametrize("name", ENCODED + ["NVFP4"])
def test_zero_blocks(name):
    values = np.zeros((2, 512), F32)
    values[1, :256] = 1
    raw = encoded(name, values)
    if name != "NVFP4":
        np.testing.assert_array_equal(raw, reference_encoded(name, values))
    scale = 1 if name != "NVFP4" else 1 / 2688
    back = decoded(name, raw) * F32(scale)
    np.testing.assert_allclose(back, values, rtol=1e-3)
    np.testing.assert_array_equal(back[values == 0], 0)


@pytest.mark.parametrize("name", SIMPLE + TERNARY)
def test_subnormal_blocks_become_zero(name):
    """Their f16 scale is 0, as in the reference, whose codes are undefined there."""
    values = (rng_of("tiny").normal(size=(8, 512)) * 1e-40).astype(F32)
    values[0] = TINY
    np.testing.assert_array_equal(decoded(name, encoded(name, values)), 0)


@pytest.mark.parametrize("name", SIMPLE + TERNARY)
def test_huge_blocks_are_infinite_or_nan(name):
    """An f16 scale cannot hold them: nothing finite but zeros and the codes of a least value comes back."""
    values = np.full((2, 512), MAX, F32)
    values[:, ::2] = -MAX
    back = decoded(name, encoded(name, values))
    assert not np.isfinite(back).any()
    large = np.full((2, 512), 1e6 if name != "Q8_0" else 1e7, F32)
    large[:, 1::2] *= -1
    large *= 127 if name in SIMPLE else 1
    np.testing.assert_array_equal(encoded(name, large), reference_encoded(name, large))


def test_mxfp4_holds_subnormal_and_huge_blocks():
    rng = rng_of("mx")
    for magnitude in (1e-40, 1e-38, 1e38, 3e38):
        values = (np.clip(rng.normal(size=(8, 64)), -1, 1) * magnitude).astype(F32)
        back = decoded("MXFP4", encoded("MXFP4", values))
        largest = np.abs(values).reshape(-1, 32).max(1).repeat(32).reshape(8, 64)
        # Half of the widest step, 2 of 4 to 8; the largest of all is at most 1/4 too large for its code.
        assert (np.abs(back - values) <= np.maximum(largest / 4, 2.0**-128)).all()


@pytest.mark.parametrize("name", K)
def test_k_types_cannot_be_written(name):
    with pytest.raises(RlxError, match=f"{name} cannot be written"):
        encoded(name, np.zeros((1, 256), F32))


def test_sizes_are_those_of_the_reference():
    for name in ALL:
        elements, size = sizes(name)
        assert encode(np.zeros(1, F32))["dtype"] == "f32"
        assert decoded(name, np.zeros((1, 3 * size), np.uint8)).shape == (1, 3 * elements)
