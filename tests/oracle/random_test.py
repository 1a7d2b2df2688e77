"""Random ops: to the bit against Philox 4x32-10 written here from its paper, and their distributions."""

import numpy as np
import pytest
from rlx_op import FLOATS, RlxError, check, covers, evaluate

MASK = 0xFFFFFFFF


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def test_published_vectors():
    """Those of the Random123 library."""
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox([MASK] * 4, [MASK] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert philox([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]) == [
        0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


def words(seed, stream, n):
    key = [seed & MASK, seed >> 32 & MASK]
    return np.array([philox([i & MASK, i >> 32, stream & MASK, stream >> 32], key) for i in range(n)], np.uint64)


SEEDS = [(np.int64(1), 0), (np.uint32(7), 3), (np.int32(-5), 1), (np.uint64(2**63 + 12345), 2**33 + 1)]


def seed_bits(seed):
    return int(seed) & 0xFFFFFFFFFFFFFFFF


@covers("random_uniform", "random_bernoulli", "random_normal")
@pytest.mark.parametrize("seed,stream", SEEDS)
def test_bits(seed, stream):
    seed = np.array(seed)
    raw = words(seed_bits(seed), stream, 60)
    unit = (raw[:, 0] >> np.uint64(8)).astype(np.float64) * 2.0**-24
    got = evaluate("random_uniform", seed, shape=[3, 20], low=0, high=1, dtype="f32", stream=stream)
    np.testing.assert_array_equal(got.ravel(), unit.astype(np.float32))
    got = evaluate("random_uniform", seed, shape=[60], low=-2, high=3, dtype="f64", stream=stream)
    np.testing.assert_array_equal(got, unit * 5 - 2)
    for p in [0, 0.3, 0.5, 1]:
        got = evaluate("random_bernoulli", seed, shape=[60], p=p, stream=stream)
        np.testing.assert_array_equal(got, unit < p)
    got = evaluate("random_normal", seed, shape=[2, 59], mean=1, std=2, dtype="f32", stream=stream)
    radius = np.sqrt(-2 * np.log(((raw[:, 0] >> np.uint64(8)) + 1.0) * 2.0**-24))
    angle = 2 * np.pi * ((raw[:, 1] >> np.uint64(8)) * 2.0**-24)
    expected = 1 + 2 * np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).ravel()[:118]
    np.testing.assert_allclose(got.ravel(), expected, rtol=4 * 2.0**-23, atol=1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
def test_distributions(dtype):
    seed = np.array(11)
    got = evaluate("random_uniform", seed, shape=[20000], low=2, high=4, dtype=dtype, stream=1).astype(np.float64)
    assert 2 <= got.min() and got.max() <= 4
    assert abs(got.mean() - 3) < 0.02 and abs(got.var() - 4 / 12) < 0.01
    got = evaluate("random_normal", seed, shape=[20000], mean=-1, std=3, dtype=dtype, stream=2).astype(np.float64)
    assert abs(got.mean() + 1) < 0.1 and abs(got.std() - 3) < 0.1
    assert abs(np.mean(np.abs(got + 1) < 3) - 0.6827) < 0.02
    assert abs(np.corrcoef(got[::2], got[1::2])[0, 1]) < 0.03
    assert abs(evaluate("random_bernoulli", seed, shape=[20000], p=0.2, stream=3).mean() - 0.2) < 0.02


def test_zero_sizes_and_errors():
    assert evaluate("random_uniform", np.array(1), shape=[0, 3], low=0, high=1, dtype="f32", stream=0).shape == (0, 3)
    assert evaluate("random_normal", np.array(1), shape=[], mean=0, std=1, dtype="f32", stream=0).shape == ()
    for op, attrs in [("random_uniform", {"low": 1, "high": 0, "dtype": "f32"}), ("random_uniform", {"low": 0, "high": 1, "dtype": "i32"}),
                      ("random_normal", {"mean": 0, "std": -1, "dtype": "f32"}), ("random_bernoulli", {"p": 1.5})]:
        with pytest.raises(RlxError, match=rf"\[{op}\]"):
            evaluate(op, np.array(1), shape=[2], stream=0, **attrs)
    with pytest.raises(RlxError, match="the seed must be an integer scalar"):
        evaluate("random_bernoulli", np.array(1.0), shape=[2], p=0.5, stream=0)
