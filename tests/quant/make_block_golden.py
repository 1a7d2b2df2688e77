"""Writes block_golden.inc: what the `gguf` Python package gives for the inputs that block_format_test.cpp makes.

Run with the packages of tests/requirements.txt:  python make_block_golden.py > block_golden.inc
"""
import zlib

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants

BLOCKS = 64


def numbers(seed, n):
    out, state = np.empty(n, np.uint32), seed
    for i in range(n):
        state = (state * 1664525 + 1013904223) % 2**32
        out[i] = state
    return out


def values(n):
    """Multiples of 2^-20 in [-8, 8), with a different power of two for each run of 256 and every third run all zero."""
    x = (numbers(7, n).view(np.int32) >> 8).astype(np.float32) * np.float32(2.0**-20)
    run = np.arange(n) // 256
    scale = np.ldexp(np.float32(1), (run % 23 - 11).astype(np.int32)).astype(np.float32)
    return np.where(run % 3 == 2, np.float32(0), x * scale)


def ternary_values(n):
    """Multiples of a half of the block's largest, so that ties are met."""
    return ((numbers(11, n) >> 16) % 5).astype(np.float32) * np.float32(0.375) - np.float32(0.75)


def crc(a):
    return zlib.crc32(a.tobytes())


def canonical(a):
    return np.where(np.isnan(a), np.float32(np.nan), a).astype("<f4")


# The 4-bit floats are compared in gguf_blocks_test.py only: they differ on scale codes that are NaN or negative.
NAMES = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
for name in NAMES:
    kind = GGMLQuantizationType[name]
    size = GGML_QUANT_SIZES[kind][1]
    if name.endswith("_K"):  # has no encoder
        first, a, b = "", 0, 0
    else:
        a = quants.quantize(values(BLOCKS * 256).reshape(-1, 256), kind)
        first, a = a.reshape(-1)[:size].tobytes().hex(), crc(a)
        b = crc(quants.quantize(ternary_values(BLOCKS * 256).reshape(-1, 256), kind))
    raw = (numbers(13, BLOCKS * size) >> 24).astype(np.uint8)
    with np.errstate(all="ignore"):
        d = crc(canonical(quants.dequantize(raw.reshape(BLOCKS, size), kind)))
    print(f'{{"{name}", "{first}", {a:#010x}, {b:#010x}, {d:#010x}}},')
