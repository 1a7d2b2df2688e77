"""What `rlx export` writes, read by the gguf package, beside what NumPy makes of the run's checkpoint."""

import json
import os
import pathlib
import subprocess

import gguf
import numpy as np
import pytest
from safetensors.numpy import load_file

RLX = os.environ["RLX_BINARY"]
CONFIG = {"tokenizer": "bytes", "context_length": 16, "embedding_length": 256, "block_count": 2, "feed_forward_length": 512,
          "head_count": 4, "head_count_kv": 2, "batch_size": 2}


def rlx(*args):
    result = subprocess.run([RLX, *args], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    (folder / "text.txt").write_text("".join(f"line {i} of a text about nothing, {i * i} times over\n" for i in range(200)))
    (folder / "config.json").write_text(json.dumps(CONFIG))
    rlx("train", "--data", folder / "text.txt", "--out", folder / "run", "--config", folder / "config.json", "--steps", "2")
    return folder / "run"


def weights(run):
    return load_file(next(run.glob("checkpoint-*")) / "weights.safetensors")


def ternary(w):
    """The scale and codes of BitNet b1.58: the mean in f64, rounded once; ties to even."""
    scale = np.float32(max(np.abs(w).astype(np.float64).mean(), 1e-5))
    return scale, np.clip(np.round(w / scale), -1, 1)


def is_linear(name, w):
    return w.ndim == 2 and name != "token_embd.weight"


@pytest.mark.parametrize("kind", ["tq2_0", "tq1_0", "f16", "bf16", "f32"])
def test_codes_and_scales(run, tmp_path, kind):
    path = tmp_path / "m.gguf"
    listed = json.loads(rlx("export", run, "-o", path, "--type", kind, "--json"))
    tensors = {t.name: t for t in gguf.GGUFReader(path).tensors}
    assert {t["name"] for t in listed["tensors"]} == set(tensors)
    for name, w in weights(run).items():
        tensor = tensors.pop(name)
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).reshape(w.shape)
        if is_linear(name, w):
            scale, codes = ternary(w)
            assert tensor.tensor_type.name == kind.upper()
            np.testing.assert_array_equal(values, codes, err_msg=name)
            np.testing.assert_array_equal(tensors.pop(name.replace(".weight", ".scale")).data, [scale])
        elif w.ndim == 1:
            np.testing.assert_array_equal(values, w, err_msg=name)
        else:
            assert np.abs(values - w).max() <= {"f32": 0, "f16": 1e-4, "bf16": 5e-4}.get(kind, 1e-3)
    assert not tensors


def test_keys(run, tmp_path):
    path = tmp_path / "m.gguf"
    rlx("export", run, "-o", path)
    reader = gguf.GGUFReader(path)
    u32, f32 = gguf.GGUFValueType.UINT32, gguf.GGUFValueType.FLOAT32
    expected = {"bitnet.context_length": (u32, 16), "bitnet.embedding_length": (u32, 256), "bitnet.block_count": (u32, 2),
                "bitnet.feed_forward_length": (u32, 512), "bitnet.attention.head_count": (u32, 4),
                "bitnet.attention.head_count_kv": (u32, 2), "bitnet.rope.dimension_count": (u32, 64),
                "bitnet.attention.layer_norm_rms_epsilon": (f32, np.float32(1e-5)), "bitnet.rope.freq_base": (f32, 10000),
                "general.file_type": (u32, 37), "general.quantization_version": (u32, 2)}
    for key, (kind, value) in expected.items():
        field = reader.get_field(key)
        assert field.types == [kind] and field.contents() == value, key
    assert reader.get_field("general.architecture").contents() == "bitnet"
    for key in ("tokens", "scores", "token_type"):
        assert len(reader.get_field(f"tokenizer.ggml.{key}").data) == 260, key
    assert reader.get_field("tokenizer.ggml.model").contents() == "llama"


@pytest.mark.parametrize("kind", ["tq2_0", "tq1_0"])
def test_the_file_computes_what_the_run_does(run, tmp_path, kind):
    rlx("export", run, "-o", tmp_path / "m.gguf", "--type", kind, "--embedding", "f32")
    for model, out in ((run, "a.npy"), (tmp_path / "m.gguf", "b.npy")):
        rlx("logits", model, "--text", "line 7 of a text", "-o", tmp_path / out)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))


# ---------------------------------------------------------------------------------------------- scaled weights

def trained_in(precision, tmp_path, run):
    """A run like the fixture's, in another precision."""
    rlx("train", "--data", run.parent / "text.txt", "--out", tmp_path / "run", "--config", run.parent / "config.json", "--steps",
        "2", "--precision", precision)
    return tmp_path / "run"


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E4M3 = np.array([m / 8 * 2.0**-6 for m in range(8)] + [(1 + m / 8) * 2.0 ** (e - 7) for e in range(1, 16) for m in range(8)])[:127]


def nearest(x, values):
    """Of the values of a format's codes from 0 on, by magnitude; a tie goes to the even code."""
    code = np.searchsorted(values, np.abs(x))
    above, below = np.minimum(code, len(values) - 1), np.maximum(code - 1, 0)
    up, down = values[above] - np.abs(x), np.abs(x) - values[below]
    return np.sign(x) * np.where((up < down) | ((up == down) & (above % 2 == 0)), values[above], values[below])


def fp4_blocks(w, precision):
    """MX and NVFP4 by their formulas: values, with ties to the even code."""
    size = 32 if precision == "mxfp4" else 16
    blocks = w.reshape(-1, size)
    amax = np.abs(blocks).max(axis=1, keepdims=True).astype(np.float32)
    if precision == "mxfp4":
        scale = np.exp2(np.ceil(np.log2(amax.astype(np.float64) / 6))).astype(np.float32)
    else:
        tensor = np.float32(np.abs(w).max()) / np.float32(2688)
        ratio = np.clip(amax / np.float32(6) / tensor, np.float32(2**-9), np.float32(448))
        scale = nearest(ratio, E4M3).astype(np.float32)
        scale = scale * tensor
    q = nearest((blocks / scale).astype(np.float64), E2M1).astype(np.float32)
    return (q * scale).reshape(w.shape)


@pytest.mark.parametrize("precision", ["mxfp4", "nvfp4"])
def test_fp4_files_hold_what_the_formulas_give(run, tmp_path, precision):
    folder = trained_in(precision, tmp_path, run)
    rlx("export", folder, "-o", tmp_path / "m.gguf")
    tensors = {t.name: t for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    for name, w in weights(folder).items():
        if not is_linear(name, w):
            continue
        assert tensors[name].tensor_type.name == precision.upper()
        values = gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type).reshape(w.shape)
        if precision == "nvfp4":
            values = values * tensors[name.replace(".weight", ".scale")].data
        np.testing.assert_allclose(values, fp4_blocks(w, precision), rtol=2e-7, atol=0, err_msg=name)


@pytest.mark.parametrize("precision", ["fp8", "mxfp8", "mxfp6", "mxfp4", "nvfp4"])
def test_quantize_reads_exported_safetensors(run, tmp_path, precision):
    """The file is in the form of rlx quantize, which turns it into floats again, near the weights."""
    folder = trained_in(precision, tmp_path, run)
    rlx("export", folder, "-o", tmp_path / "m.safetensors")
    rlx("quantize", tmp_path / "m.safetensors", "-o", tmp_path / "f32.safetensors", "--type", "f32")
    values = load_file(tmp_path / "f32.safetensors")
    worst = {"fp8": 0.04, "mxfp8": 0.04, "mxfp6": 0.06, "mxfp4": 0.2, "nvfp4": 0.2}[precision]
    for name, w in weights(folder).items():
        error = np.sqrt(np.mean((values[name] - w) ** 2) / np.mean(w**2))
        assert error <= (worst if is_linear(name, w) else 0), name
        assert error > 0 or not is_linear(name, w), name
    for model, out in ((folder, "a.npy"), (tmp_path / "m.safetensors", "b.npy")):
        rlx("logits", model, "--text", "line 7 of a text", "-o", tmp_path / out)
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))
