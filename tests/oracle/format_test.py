"""Number formats on the host: every bf16 and f16 number and every midpoint ± 1 ulp beside ml_dtypes, and known values."""

import json
import os
import subprocess

import ml_dtypes
import numpy as np
import pytest

from rlx_op import ask, decode, encode

TYPES = {
    "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2, "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "f6e2m3": ml_dtypes.float6_e2m3fn, "f6e3m2": ml_dtypes.float6_e3m2fn,
    "f4e2m1": ml_dtypes.float4_e2m1fn, "e8m0": ml_dtypes.float8_e8m0fnu,
}
BITS = {"f6e2m3": 6, "f6e3m2": 6, "f4e2m1": 4}
WITHOUT_NAN = ["f6e2m3", "f6e3m2", "f4e2m1"]


def codes(name, values, saturate):
    return decode(ask({"format": name, "encode": encode(np.asarray(values, np.float64)), "saturate": saturate})["output"])


def values(name, codes):
    return decode(ask({"format": name, "decode": encode(np.asarray(codes, np.uint8))})["output"])


def all_codes(name):
    return np.arange(2 ** BITS.get(name, 8), dtype=np.uint8)


def reference_values(name, codes):
    return codes.view(TYPES[name]).astype(np.float64)


def inputs(name):
    patterns = np.arange(65536, dtype=np.uint16)
    v = np.sort(reference_values(name, all_codes(name)))
    v = v[np.isfinite(v)]
    middle = ((v[1:] + v[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))]
    x = [patterns.view(ml_dtypes.bfloat16).astype(np.float32), patterns.view(np.float16).astype(np.float32), middle, *near]
    return np.concatenate(x).astype(np.float32)


@pytest.mark.parametrize("name", TYPES)
def test_decodes_every_code(name):
    got, want = values(name, all_codes(name)), reference_values(name, all_codes(name))
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(want[~np.isnan(want)]))


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("name", TYPES)
def test_encodes_as_ml_dtypes(name, saturate):
    x = inputs(name)
    largest = np.nanmax(np.where(np.isinf(v := reference_values(name, all_codes(name))), np.nan, v)).astype(np.float32)
    with np.errstate(all="ignore"):
        want = (np.clip(x, -largest, largest) if saturate else x).astype(TYPES[name]).view(np.uint8)
    if name == "e8m0":
        # It has no zero: the least value stands for it. ml_dtypes rounds ties up, and between the two least values all;
        # `rlx formats --check` compares these with the nearest.
        want[(x >= 0) & (x <= 1.5 * 2.0**-127)] = 0
        want[(x > 1.5 * 2.0**-127) & (x < 2.0**-126)] = 1
        mantissa, exponent = np.frexp(x)
        tie = (mantissa == 0.75) & (x > 2.0**-126) & (exponent <= 128)
        want[tie] &= 0xFE
        want[x < 0] = 255
    got = codes(name, x, saturate)
    nan = np.isnan(x)
    np.testing.assert_array_equal(got[~nan], want[~nan])
    if name in WITHOUT_NAN:
        np.testing.assert_array_equal(values(name, got[nan]), largest)
    else:
        assert np.isnan(values(name, got[nan])).all()


def test_known_values():
    for saturate, expected in ((True, "7e7e7e7efe7e7f"), (False, "7f7e7e7fff7f7f")):
        assert codes("f8e4m3", [1000, 448, 464, 465, -1000, np.inf, np.nan], saturate).tobytes().hex() == expected
    assert codes("f8e4m3", [2**-10, np.nextafter(2**-10, 1), 3 * 2**-10, 256, 288, 320, -0.0], True).tobytes().hex() == "00010278797a80"
    assert values("f8e4m3", [0x01, 0x08]).tolist() == [2**-9, 2**-6]
    for saturate, expected in ((True, "7b7b"), (False, "7b7c")):
        assert codes("f8e5m2", [61439, 61440], saturate).tobytes().hex() == expected
    x = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 5.01, 6.1, 9, -5, -0.25]
    got = values("f4e2m1", codes("f4e2m1", x, True))
    assert got.tolist() == [0, 1, 1, 2, 2, 4, 4, 6, 6, 6, -4, 0] and np.signbit(got[-1])


@pytest.mark.parametrize("name, zero, negative_zero, nan, infinity, large", [
    ("f8e4m3", "00", "80", "7f", ("7e", "7f"), ("7e", "7f")),
    ("f8e4m3fnuz", "00", "00", "80", ("7f", "80"), ("7f", "80")),
    ("f8e5m2", "00", "80", "7e", ("7b", "7c"), ("7b", "7c")),
    ("f8e5m2fnuz", "00", "00", "80", ("7f", "80"), ("7f", "80")),
])
def test_special_values_of_8_bit_floats(name, zero, negative_zero, nan, infinity, large):
    for i, saturate in enumerate((True, False)):
        got = codes(name, [0.0, -0.0, np.nan, np.inf, 1e6], saturate).tobytes().hex()
        assert got == zero + negative_zero + nan + infinity[i] + large[i]


def test_the_program_finds_no_difference():
    run = subprocess.run([os.environ["RLX_BINARY"], "formats", "--check", "--json"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report["differences"] == 0 and len(report["formats"]) == 39
    for row in report["formats"]:
        assert row["patterns"] == 131072
        assert row["midpoints"] >= 2 * (row["codes"] - 2)


def test_the_program_lists_what_there_is():
    listed = json.loads(subprocess.check_output([os.environ["RLX_BINARY"], "formats", "--json"], text=True))
    rows = {row["name"]: row for row in listed["formats"]}
    assert len(rows) == 39 and sum(row["custom"] for row in rows.values()) == 28
    for name, kind in TYPES.items():
        limits = ml_dtypes.finfo(kind)
        assert rows[name]["max"] == float(limits.max) and rows[name]["bits"] == limits.bits
        if name != "e8m0":
            assert rows[name]["min_normal"] == float(limits.smallest_normal)
            assert rows[name]["min_subnormal"] == float(limits.smallest_subnormal)
    for row in rows.values():
        if row["custom"]:
            assert row["bits"] == 1 + row["exponent_bits"] + row["mantissa_bits"]
            assert row["nan_codes"] == row["infinity_codes"] == []
    assert {row["name"]: row["write"] for row in listed["gguf"]}["Q4_K"] is False
