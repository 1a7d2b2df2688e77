"""`rlx quantize`, its files read by the gguf and safetensors packages and ml_dtypes."""

import json
import os
import pathlib
import subprocess

import gguf
import ml_dtypes
import numpy as np
import pytest
import safetensors
from gguf import GGMLQuantizationType, quants
from safetensors.numpy import save_file

RLX = os.environ["RLX_BINARY"]
F32 = np.float32
FLOAT_TYPES = {"f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2, "f6e2m3": ml_dtypes.float6_e2m3fn,
               "f6e3m2": ml_dtypes.float6_e3m2fn, "f4e2m1": ml_dtypes.float4_e2m1fn, "e8m0": ml_dtypes.float8_e8m0fnu}
BITS = {"f8e4m3": 8, "f8e5m2": 8, "f6e2m3": 6, "f6e3m2": 6, "f4e2m1": 4, "int4": 4, "ternary": 2}


def rlx(*args):
    return subprocess.run([RLX, "quantize", *map(str, args)], capture_output=True, text=True)


def quantize(*args):
    run = rlx(*args, "--json")
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def refused(out, *args):
    run = rlx(*args, "-o", out)
    error = run.stderr.splitlines()[-1]  # progress may come before
    assert run.returncode == 1 and error.startswith("rlx: error: ") and run.stderr.count("rlx: error: ") == 1, run.stderr
    assert not pathlib.Path(out).exists()
    return error


def raw(path):
    """{name: (dtype, shape, bytes)} of a safetensors file."""
    return {name: (t["dtype"], t["shape"], bytes(t["data"])) for name, t in safetensors.deserialize(pathlib.Path(path).read_bytes())}


def metadata(path):
    data = pathlib.Path(path).read_bytes()
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__", {})


def gguf_values(path):
    return {t.name: quants.dequantize(t.data, t.tensor_type).reshape(t.shape[::-1]) for t in gguf.GGUFReader(path).tensors
            if t.tensor_type.name not in ("I32", "I64")}


def gguf_types(path):
    return {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}


def file_type(path):
    return gguf.GGUFReader(path).get_field("general.file_type").contents()


@pytest.fixture(scope="module")
def tensors():
    rng = np.random.default_rng(7)
    return {"blk.0.up.weight": rng.normal(size=(8, 512)).astype(F32), "blk.0.down.weight": rng.normal(size=(4, 256)).astype(F32) * F32(0.02),
            "head.weight": rng.normal(size=(6, 256)).astype(np.float16), "norm.weight": np.ones(256, F32),
            "ids": np.arange(8, dtype=np.int32).reshape(2, 4)}


@pytest.fixture(scope="module")
def model(tensors, tmp_path_factory):
    path = tmp_path_factory.mktemp("quantize") / "m.safetensors"
    save_file(tensors, path, metadata={"by": "a test"})
    return path


MATRICES = ["blk.0.up.weight", "blk.0.down.weight", "head.weight"]


# ------------------------------------------------------------------------------------------------ GGUF


@pytest.mark.parametrize("kind, number", [("q4_0", 2), ("q4_1", 3), ("q5_0", 8), ("q5_1", 9), ("q8_0", 7), ("tq1_0", 36),
                                          ("tq2_0", 37), ("mxfp4", 38), ("f16", 1), ("bf16", 32), ("f32", 0)])
def test_gguf_holds_the_reference_bytes(model, tensors, tmp_path, kind, number):
    out = tmp_path / "m.gguf"
    report = quantize(model, "-o", out, "--type", kind)
    read = {t.name: t for t in gguf.GGUFReader(out).tensors}
    rows = {r["name"]: r for r in report["tensors"]}
    assert set(rows) == set(read) == set(tensors)
    for name in MATRICES:
        x, t = tensors[name].astype(F32), read[name]
        assert t.tensor_type.name == rows[name]["type"] == kind.upper()
        assert rows[name]["bytes"] == t.n_bytes
        want = quants.quantize(x, GGMLQuantizationType[kind.upper()])
        assert t.data.tobytes() == want.tobytes()
        values = quants.dequantize(want, GGMLQuantizationType[kind.upper()]).reshape(x.shape).astype(np.float64)
        np.testing.assert_allclose(rows[name]["rms_error"], np.sqrt(np.mean((values - x) ** 2)), rtol=1e-9)
        assert rows[name]["max_error"] == np.abs(values - x).max()
    assert read["norm.weight"].tensor_type.name == "F32" and "axes" in rows["norm.weight"]["note"]
    assert read["ids"].tensor_type.name == "I32" and "no float" in rows["ids"]["note"]
    assert file_type(out) == number


def test_nvfp4_has_a_tensor_scale(model, tensors, tmp_path):
    out = tmp_path / "m.gguf"
    report = quantize(model, "-o", out, "--type", "nvfp4")
    values, types = gguf_values(out), gguf_types(out)
    assert file_type(out) == 39
    for name in MATRICES:
        assert types[name] == "NVFP4"
        scale = values[name.replace(".weight", ".scale")]
        x = tensors[name].astype(F32)
        assert scale.shape == (1,) and scale[0] == np.abs(x).max() / F32(2688)
        np.testing.assert_allclose(values[name] * scale[0], x, atol=0.17 * np.abs(x).max())
    back = tmp_path / "back.safetensors"
    quantize(out, "-o", back, "--rule", "*.weight=f32")
    read = raw(back)
    assert "head.scale" not in read
    name = "head.weight"
    got = np.frombuffer(read[name][2], F32).reshape(tensors[name].shape)
    np.testing.assert_array_equal(got, values[name] * values["head.scale"][0])
    # Kept, it keeps its scale.
    again = tmp_path / "again.gguf"
    quantize(out, "-o", again, "--type", "nvfp4")
    assert gguf_types(again) == types
    for name, value in gguf_values(again).items():
        np.testing.assert_array_equal(value, values[name])
    rows = {r["name"]: r for r in report["tensors"]}
    assert rows["head.weight"]["bytes"] == 6 * 256 // 64 * 36 + 4


def test_rules_the_last_match_counts(model, tmp_path):
    out = tmp_path / "m.gguf"
    quantize(model, "-o", out, "--type", "q4_0", "--rule", "*.weight=q8_0", "--rule", "blk.?.up*=q5_1", "--rule", "norm*=f16",
             "--rule", "head.[vw]eight=keep")
    types = gguf_types(out)
    assert types == {"blk.0.up.weight": "Q5_1", "blk.0.down.weight": "Q8_0", "head.weight": "F16", "norm.weight": "F16", "ids": "I32"}
    assert file_type(out) == 9  # of most elements


def test_gguf_keys_stay(tmp_path, tensors):
    path, out = tmp_path / "in.gguf", tmp_path / "out.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint32("llama.block_count", 1)
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    writer.add_file_type(1)
    for name in MATRICES:
        writer.add_tensor(name, tensors[name].astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    quantize(path, "-o", out, "--type", "tq2_0")
    reader = gguf.GGUFReader(out)
    assert reader.get_field("general.architecture").contents() == "llama"
    assert reader.get_field("llama.block_count").contents() == 1
    assert reader.get_field("tokenizer.ggml.tokens").contents() == ["a", "b"]
    assert file_type(out) == 37 and set(gguf_types(out).values()) == {"TQ2_0"}
    # Every eligible tensor has the type, and the same type again changes no byte.
    again = tmp_path / "again.gguf"
    report = quantize(out, "-o", again, "--type", "TQ2_0")
    assert again.read_bytes() == out.read_bytes()
    assert all(r["max_error"] == 0 for r in report["tensors"])


def test_k_types_are_read(tmp_path):
    rng = np.random.default_rng(3)
    path, out = tmp_path / "k.gguf", tmp_path / "k.safetensors"
    writer = gguf.GGUFWriter(path, "llama")
    want = {}
    for name in ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"):
        kind = GGMLQuantizationType[name]
        data = rng.integers(0, 256, (4, gguf.GGML_QUANT_SIZES[kind][1])).astype(np.uint8)
        half = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
        for at in {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}[name]:
            data[:, at : at + 2] = half
        writer.add_tensor(name, data, raw_dtype=kind)
        want[name] = quants.dequantize(data, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    quantize(path, "-o", out, "--type", "f32")
    for name, (dtype, shape, data) in raw(out).items():
        np.testing.assert_array_equal(np.frombuffer(data, F32).reshape(shape), want[name])
    error = refused(tmp_path / "no.safetensors", path, "--rule", "Q2_K=f16")
    assert '"Q3_K": a safetensors file cannot hold it as Q3_K' in error
    error = refused(tmp_path / "no.gguf", path, "--type", "q4_k")
    assert "Q4_K cannot be written, only F32, F16, BF16, Q4_0" in error


# ------------------------------------------------------------------------------------------------ safetensors


def unpack(data, shape, bits):
    """Codes of rows of bits, the lowest first."""
    columns = shape[-1]
    rows = np.frombuffer(data, np.uint8).reshape(-1, (columns * bits + 7) // 8)
    b = np.unpackbits(rows, axis=1, bitorder="little")[:, : columns * bits].reshape(-1, columns, bits)
    return (b * (1 << np.arange(bits))).sum(-1).astype(np.uint8).reshape(shape)


def as_float(codes, name):
    return codes.astype(np.uint8).view(FLOAT_TYPES[name]).astype(F32)


def per_block(scales, block, columns):
    return np.repeat(scales, block, axis=-1)[..., :columns]


def dequantized(read, name, kind, shape):
    """What docs/quantize.md says, in NumPy."""
    dtype, _, data = read[name]
    scale_dtype, scale_shape, scale = read[name + "_scale"]
    if kind == "int8":
        return np.frombuffer(data, np.int8).reshape(shape) * np.frombuffer(scale, F32).reshape(scale_shape)
    if kind in ("int4", "ternary"):
        bits = BITS[kind]
        codes = unpack(data, shape, bits).astype(np.int32)
        codes = np.where(codes >= 1 << (bits - 1), codes - (1 << bits), codes)
        if kind == "ternary":
            return codes * np.frombuffer(scale, F32)
        return codes * per_block(np.frombuffer(scale, np.float16).reshape(scale_shape).astype(F32), 32, shape[-1])
    form = {"mxfp8": "f8e4m3", "mxfp8_e5m2": "f8e5m2", "mxfp6": "f6e2m3", "mxfp6_e3m2": "f6e3m2", "mxfp4": "f4e2m1",
            "nvfp4": "f4e2m1"}.get(kind, kind)
    codes = unpack(data, shape, BITS[form])
    assert dtype == {"f8e4m3": "F8_E4M3", "f8e5m2": "F8_E5M2"}.get(form, "U8")
    if kind.startswith("mx"):
        assert scale_dtype == "F8_E8M0"
        return as_float(codes, form) * per_block(as_float(np.frombuffer(scale, np.uint8), "e8m0").reshape(scale_shape), 32, shape[-1])
    if kind == "nvfp4":
        assert scale_dtype == "F8_E4M3"
        scales = as_float(np.frombuffer(scale, np.uint8), "f8e4m3").reshape(scale_shape)
        assert np.isfinite(scales).all()
        return as_float(codes, form) * per_block(scales, 16, shape[-1]) * np.frombuffer(read[name + "_scale_2"][2], F32)
    assert scale_dtype == "F32" and scale_shape == [1]
    return as_float(codes, form) * np.frombuffer(scale, F32)


KINDS = ["int8", "int4", "ternary", "f8e4m3", "f8e5m2", "f6e2m3", "mxfp8", "mxfp8_e5m2", "mxfp6", "mxfp6_e3m2", "mxfp4", "nvfp4"]


@pytest.mark.parametrize("kind", KINDS)
def test_safetensors_can_be_read_by_others(model, tensors, tmp_path, kind):
    out = tmp_path / "m.safetensors"
    report = quantize(model, "-o", out, "--type", kind)
    read = raw(out)
    rows = {r["name"]: r for r in report["tensors"]}
    about = json.loads(metadata(out)["rlx.quantized"])
    assert metadata(out)["by"] == "a test" and set(about) == set(MATRICES)
    for name in MATRICES:
        x = tensors[name].astype(F32)
        assert about[name] == {"type": kind, "shape": list(x.shape)}
        y = dequantized(read, name, kind, x.shape).astype(F32)
        error = np.abs(y.astype(np.float64) - x)
        assert error.max() == rows[name]["max_error"]
        np.testing.assert_allclose(rows[name]["rms_error"], np.sqrt(np.mean(error**2)), rtol=1e-9)
        sizes = [len(read[n][2]) for n in (name, name + "_scale", name + "_scale_2") if n in read]
        assert rows[name]["bytes"] == sum(sizes)
        bits = {"int8": 8, "f8e4m3": 8, "f8e5m2": 8}.get(kind) or {"mxfp8": 8.25, "mxfp8_e5m2": 8.25, "mxfp6": 6.25, "mxfp6_e3m2": 6.25,
                                                                   "mxfp4": 4.25, "nvfp4": 4.5, "int4": 4.5, "ternary": 2, "f6e2m3": 6}[kind]
        assert abs(rows[name]["bits_per_weight"] - bits) < 0.15
    assert read["norm.weight"] == ("F32", [256], tensors["norm.weight"].tobytes())
    assert read["ids"][0] == "I32"
    # It is read back for another type, and the same type again changes nothing.
    back = tmp_path / "back.safetensors"
    quantize(out, "-o", back, "--type", "f32")
    for name in MATRICES:
        x = tensors[name]
        np.testing.assert_array_equal(np.frombuffer(raw(back)[name][2], F32).reshape(x.shape), dequantized(read, name, kind, x.shape).astype(F32))
    again = tmp_path / "again.safetensors"
    quantize(out, "-o", again, "--type", kind)
    assert again.read_bytes() == out.read_bytes()


@pytest.mark.parametrize("kind", ["int8", "int4", "mxfp4", "nvfp4", "mxfp6", "ternary"])
def test_rows_of_any_length(tmp_path, kind):
    path, out = tmp_path / "odd.safetensors", tmp_path / "out.safetensors"
    x = np.random.default_rng(1).normal(size=(3, 2, 37)).astype(F32)
    save_file({"w": x}, path)
    report = quantize(path, "-o", out, "--type", kind)["tensors"][0]
    y = dequantized(raw(out), "w", kind, x.shape)
    assert np.abs(y - x.astype(np.float64)).max() == pytest.approx(report["max_error"], rel=1e-6)


def test_others_files_with_scales_are_read(tmp_path):
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 120, (4, 8)).astype(np.uint8)
    header = {"w": {"dtype": "F8_E4M3", "shape": [4, 8], "data_offsets": [4, 36]}, "w_scale": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    path, out = tmp_path / "fp8.safetensors", tmp_path / "out.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + F32(0.25).tobytes() + codes.tobytes())
    quantize(path, "-o", out, "--type", "f32")
    read = raw(out)
    assert set(read) == {"w"}
    np.testing.assert_array_equal(np.frombuffer(read["w"][2], F32).reshape(4, 8), as_float(codes, "f8e4m3") * F32(0.25))


# ------------------------------------------------------------------------------------------------ what goes wrong


@pytest.mark.parametrize("columns", [100, 255, 257, 5460])
@pytest.mark.parametrize("kind", ["tq1_0", "tq2_0"])
def test_rows_that_do_not_fit(tmp_path, columns, kind):
    path = tmp_path / "m.safetensors"
    save_file({"a.weight": np.ones((2, 256), F32), "ffn.weight": np.ones((2, columns), F32), "b.weight": np.ones((2, columns), F32)}, path)
    error = refused(tmp_path / "m.gguf", path, "--type", kind)
    for name in ("ffn.weight", "b.weight"):
        assert f'tensor "{name}": rows of {columns} elements are not a multiple of {kind.upper()}\'s blocks of 256; types that fit: ' in error
    assert "BF16" in error and "a.weight" not in error
    out = tmp_path / "m.gguf"
    quantize(path, "-o", out, "--type", kind, "--rule", "ffn*=f16", "--rule", "b.*=keep")
    assert gguf_types(out) == {"a.weight": kind.upper(), "ffn.weight": "F16", "b.weight": "F32"}


def test_requests_that_cannot_be_met(model, tmp_path):
    gguf_out, out = tmp_path / "m.gguf", tmp_path / "n.safetensors"
    assert "the rule 'nothing*=q8_0' matches no tensor" in refused(gguf_out, model, "--type", "q8_0", "--rule", "nothing*=q8_0")
    assert "the rule 'head*=q4_0' decides on no tensor" in refused(gguf_out, model, "--rule", "head*=q4_0", "--rule", "*weight=q8_0")
    assert "which is no float" in refused(gguf_out, model, "--rule", "ids=f16")
    assert "expected one of F32, F16" in refused(gguf_out, model, "--type", "mxfp6")
    assert "expected one of f32, f16, bf16, mxfp8" in refused(out, model, "--type", "q8_0")
    assert "expected a type or a rule" in refused(out, model)
    assert "ends in .gguf or .safetensors" in refused(tmp_path / "m.bin", model, "--type", "f16")
    assert "No such file" in refused(out, tmp_path / "none.safetensors", "--type", "f16")
    assert rlx(model, "-o", out, "--rule", "x").returncode == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e7])
@pytest.mark.parametrize("kind, ending", [("q8_0", "gguf"), ("q4_0", "gguf"), ("tq2_0", "gguf"), ("f16", "gguf"), ("f16", "safetensors"),
                                          ("int4", "safetensors"), ("nvfp4", "gguf"), ("mxfp4", "gguf")])
def test_values_that_cannot_be_held(tmp_path, kind, ending, bad):
    x = np.ones((2, 256), F32)
    x[1, 7] = bad
    path, out = tmp_path / "m.safetensors", tmp_path / f"out.{ending}"
    save_file({"w": x}, path)
    holds = bad == 1e7 and kind in ("nvfp4", "mxfp4") or bad != 1e7 and kind == "f16"
    if holds or (bad == 1e7 and kind == "q8_0" and 1e7 / 127 < 65504):
        quantize(path, "-o", out, "--type", kind)
    else:
        error = refused(out, path, "--type", kind)
        assert 'tensor "w"' in error and ("cannot hold" in error or "too large for f16" in error)


def test_losses_are_counted(tmp_path):
    x = np.zeros((2, 256), F32)
    x[0, 0], x[1, 20], x[1, 40] = 3000, 1e-5, 2
    path = tmp_path / "m.safetensors"
    save_file({"w": x}, path)
    for out in ("m.gguf", "n.safetensors"):
        row = quantize(path, "-o", tmp_path / out, "--type", "nvfp4")["tensors"][0]
        assert row["flushed_blocks"] == 1 and row["note"] == "flushed to 0 first in row 1"
    assert (np.frombuffer(raw(tmp_path / "n.safetensors")["w_scale"][2], np.uint8) & 127 != 127).all()
    tiny = np.full((1, 256), 1e-9, F32)
    save_file({"w": tiny}, path)
    row = quantize(path, "-o", tmp_path / "m.gguf", "--type", "q8_0")["tensors"][0]
    assert row["flushed_blocks"] == 8  # an f16 scale is 0 there
    signs = np.tile(np.array([8, 8, -7, 0], F32), 64).reshape(1, 256)
    save_file({"w": signs * F32(-1)}, path)
    row = quantize(path, "-o", tmp_path / "m.gguf", "--type", "q4_0")["tensors"][0]
    assert row["clipped_values"] == 0
    signs[0, ::32] = -8.5
    save_file({"w": signs}, path)
    assert quantize(path, "-o", tmp_path / "m.gguf", "--type", "q4_0")["tensors"][0]["clipped_values"] == 120


def test_inspect_says_what_codes_are(model, tmp_path):
    out = tmp_path / "m.safetensors"
    rows = quantize(model, "-o", out, "--type", "int4")["tensors"]
    listed = json.loads(subprocess.check_output([RLX, "inspect", out, "--json"], text=True))
    for row, seen in zip(rows, listed["tensors"], strict=True):
        assert row["name"] == seen["name"] and row["type"] == seen["type"] and row["bytes"] == seen["bytes"]
        assert row["bits_per_weight"] == seen["bits_per_weight"]
    assert {r["name"]: r["bits_per_weight"] for r in listed["tensors"]}["head.weight"] == 4.5


def test_table_and_one_line_of_totals(model, tmp_path):
    run = rlx(model, "-o", tmp_path / "m.gguf", "--type", "q8_0")
    assert run.returncode == 0
    lines = run.stdout.splitlines()
    assert lines[0].split()[:3] == ["tensor", "from", "type"]
    assert any(l.startswith("norm.weight") and "1 axes" in l for l in lines)
    assert "bits each" in lines[-1]
