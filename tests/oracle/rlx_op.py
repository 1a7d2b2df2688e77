"""Evaluates single ops in build/rlx_evaluate, and compares with wide NumPy values in units of the last place."""

import json
import os
import pathlib
import subprocess
import zlib

import ml_dtypes
import numpy as np

DTYPES = {
    "f64": np.dtype(np.float64), "f32": np.dtype(np.float32), "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16), "i8": np.dtype(np.int8), "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32), "i64": np.dtype(np.int64), "u8": np.dtype(np.uint8), "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32), "u64": np.dtype(np.uint64), "bool": np.dtype(np.bool_), "c64": np.dtype(np.complex64),
}
FLOATS = ["f64", "f32", "f16", "bf16"]
SIGNED = ["i8", "i16", "i32", "i64"]
UNSIGNED = ["u8", "u16", "u32", "u64"]
INTS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTS
# digits of the mantissa after the point, the least and the greatest exponent of a normal number
LIMITS = {"f64": (52, -1022, 1023), "f32": (23, -126, 127), "f16": (10, -14, 15), "bf16": (7, -126, 127)}
DEVICE = os.environ.get("RLX_ORACLE_DEVICE", "interpreter")


def name_of(dtype):
    return next(name for name, d in DTYPES.items() if d == dtype)


class RlxError(Exception):
    pass


class Evaluator:
    def __init__(self):
        build = pathlib.Path(os.environ.get("RLX_BINARY", pathlib.Path(__file__).parents[2] / "build/rlx")).parent
        self.process = subprocess.Popen([build / "rlx_evaluate"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise RlxError(answer["error"])
        return answer


_evaluator = None


def ask(request):
    global _evaluator
    if _evaluator is None:
        _evaluator = Evaluator()
    return _evaluator.ask(request)


def encode(a):
    a = np.asarray(a)
    return {"dtype": name_of(a.dtype), "shape": list(a.shape), "data": np.ascontiguousarray(a).tobytes().hex()}


def decode(j):
    if j is None:
        return None
    return np.frombuffer(bytes.fromhex(j["data"]), DTYPES[j["dtype"]]).reshape(j["shape"])


def text_of(value):
    """An attribute's value as the graph's text form has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(text_of(v) for v in value) + "]"
    return str(value)


def attrs_text(attrs):
    return ", ".join(f"{k} = {text_of(v)}" for k, v in attrs.items())


covered = set()


def covers(*names):
    """Marks a test as the check of these ops; `completeness_test` wants every op of the table."""
    covered.update(names)
    return lambda f: f


def evaluate(op, *inputs, symbolic=False, device=None, **attrs):
    request = {"op": op, "attrs": attrs_text(attrs), "inputs": [encode(a) for a in inputs], "symbolic": symbolic,
               "device": device or DEVICE}
    return decode(ask(request)["output"])


def gradients(op, cotangent, *inputs, device=None, **attrs):
    """The output and the cotangents of the inputs (None for one that is no float)."""
    request = {"op": op, "attrs": attrs_text(attrs), "inputs": [encode(a) for a in inputs],
               "cotangent": encode(cotangent), "device": device or DEVICE}
    answer = ask(request)
    return decode(answer["output"]), [decode(g) for g in answer["gradients"]]


_table = None


def table():
    """The op table: {name: {kind, dtypes, ulp, …}}."""
    global _table
    if _table is None:
        _table = {row["name"]: row for row in ask({"table": True})["ops"]}
    return _table


def rng_of(*key):
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


def random_values(rng, dtype, shape, special=True):
    """Values of many magnitudes, a third of them special where asked for."""
    d = DTYPES[dtype]
    n = int(np.prod(shape))
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in LIMITS:
        digits, low, high = LIMITS[dtype]
        values = rng.normal(size=n) * 2.0 ** rng.integers(-3, 4, n)
        if special:
            tiny, huge = 2.0 ** (low - digits), (2 - 2.0**-digits) * 2.0**high
            pool = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, tiny, -tiny, 3 * tiny,
                    2.0**low, -(2.0**low), huge, -huge, huge / 2, 100.0, -100.0, 20.0, 1e-3]
            at = rng.random(n) < 0.35
            values[at] = rng.choice(pool, at.sum())
        return values.astype(d).reshape(shape)
    info = np.iinfo(d)
    values = rng.integers(max(info.min, -20), 21, n).astype(d)
    if special:
        at = rng.random(n) < 0.35
        extremes = np.array([info.min, info.min + 1, info.max, info.max - 1, 0, 1], d)
        values[at] = rng.choice(extremes, at.sum())
    return values.reshape(shape)


def wide(a):
    """The values in a type that holds them exactly and computes with more digits."""
    a = np.asarray(a)
    if a.dtype.kind in "iub":
        return a
    return a.astype(np.float64).astype(np.longdouble)


def ulp_of(exact, dtype):
    """The distance of neighbouring numbers of `dtype` at `exact`."""
    digits, low, high = LIMITS[dtype]
    _, exponent = np.frexp(np.where(exact == 0, 1, exact))
    exponent = np.clip(np.where(exact == 0, low, exponent - 1), low, high)
    return np.ldexp(np.longdouble(1), exponent - digits)


def check(got, exact, dtype, ulp=0.5, signed_zero=True, hint=""):
    """`got`, of `dtype`, is within `ulp` units of the last place of `exact`: special values and the sign of zero too."""
    exact = np.asarray(exact)
    assert got.dtype == DTYPES[dtype], f"dtype {got.dtype}, expected {dtype} {hint}"
    assert got.shape == exact.shape, f"shape {got.shape}, expected {exact.shape} {hint}"
    if dtype not in LIMITS:
        np.testing.assert_array_equal(got, exact.astype(got.dtype), err_msg=hint)
        return
    exact = exact.astype(np.longdouble)
    value = wide(got)
    slack = 1e-3 if DEVICE == "interpreter" else 4  # devices compute f32 in f32, and may lose subnormal results
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(np.isnan(value), np.isnan(exact), err_msg=f"NaN {hint}: {value} {exact}")
        infinite = np.isinf(exact)
        np.testing.assert_array_equal(value[infinite], exact[infinite], err_msg=f"infinity {hint}")
        top = np.ldexp(np.longdouble(1), LIMITS[dtype][2] + 1)  # infinity stands for the number after the greatest
        error = np.abs(np.clip(value, -top, top) - np.clip(exact, -top, top))
        bound = (ulp + (slack if ulp else 0)) * ulp_of(exact, dtype)
        if ulp and DEVICE != "interpreter":
            bound = np.maximum(bound, np.ldexp(np.longdouble(1), LIMITS[dtype][1]))
        bad = (error > bound) & ~np.isnan(exact)
    if np.any(bad):
        worst = np.max((error / ulp_of(exact, dtype))[bad])
        i = tuple(np.argwhere(bad)[0])
        raise AssertionError(f"{bad.sum()} of {bad.size} are off by up to {float(worst):.3g} ulp, {ulp} allowed; at {i} got {value[i]!r}, "
                             f"expected {exact[i]!r} {hint}")
    if signed_zero:
        zero = exact == 0
        np.testing.assert_array_equal(np.signbit(value[zero]), np.signbit(exact[zero]), err_msg=f"sign of zero {hint}")


_LATTICE = {  # what follows each dtype directly in JAX's lattice
    "bool": ["u8", "i8"], "u8": ["u16", "i16"], "u16": ["u32", "i32"], "u32": ["u64", "i64"], "u64": ["float"],
    "i8": ["i16"], "i16": ["i32"], "i32": ["i64"], "i64": ["float"], "float": ["f16", "bf16"], "f16": ["f32"],
    "bf16": ["f32"], "f32": ["f64"], "f64": [],
}


def promote(a, b):
    """The least dtype above both; the two 64-bit integers meet in f32."""
    def above(x):
        out = {x}
        for y in _LATTICE[x]:
            out |= above(y)
        return out
    common = above(a) & above(b)
    least = next(x for x in common if common <= above(x))
    return "f32" if least == "float" else least
