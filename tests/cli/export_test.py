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
