"""Checks a GGUF file that `rlx export` wrote against llama.cpp and against the gguf package's reader.

    python check_llama.py --rlx build/rlx --gguf m.gguf --run RUN --text heldout.txt

Passes when the reader finds every tensor with the type and shape that the architecture asks for, llama.cpp gives the
same tokens for the whole text as the run trained with, and over 200 positions or more the most likely token agrees on at
least 98 % of them and the cosine of the logits is at least 0.9995 at each.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import gguf
import llama_cpp
import numpy as np

MIN_TOP1, MIN_COSINE = 0.98, 0.9995


def fail(message):
    sys.exit(f"check_llama: {message}")


def number(reader, key, default=None):
    field = reader.get_field(key)
    if field is None:
        if default is None:
            fail(f"the file has no key {key}")
        return default
    return field.contents()


def expected_tensors(reader):
    """Name → shape (row-major) of what the `bitnet` architecture needs."""
    width = number(reader, "bitnet.embedding_length")
    ffn = number(reader, "bitnet.feed_forward_length")
    heads = number(reader, "bitnet.attention.head_count")
    kv = number(reader, "bitnet.attention.head_count_kv", heads) * (width // heads)
    vocabulary = len(reader.get_field("tokenizer.ggml.tokens").data)
    tensors = {"token_embd.weight": [vocabulary, width], "output_norm.weight": [width]}
    for i in range(number(reader, "bitnet.block_count")):
        tensors |= {f"blk.{i}.{name}.weight": shape for name, shape in {
            "attn_norm": [width], "attn_sub_norm": [width], "ffn_norm": [width], "ffn_sub_norm": [ffn],
            "attn_q": [width, width], "attn_k": [kv, width], "attn_v": [kv, width], "attn_output": [width, width],
            "ffn_gate": [ffn, width], "ffn_up": [ffn, width], "ffn_down": [width, ffn]}.items()}
    return tensors


def check_tensors(path, linear_type):
    reader = gguf.GGUFReader(path)
    expected = expected_tensors(reader)
    missing = set(expected)
    for tensor in reader.tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        kind = tensor.tensor_type.name
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if not np.isfinite(values).all():
            fail(f"{tensor.name} has values that are not finite")
        if tensor.name.endswith(".scale"):
            if shape != [1] or kind != "F32" or tensor.name.replace(".scale", ".weight") not in expected:
                fail(f"{tensor.name}: got {kind} {shape}, expected F32 [1] beside a linear's weight")
            continue
        if tensor.name not in missing:
            fail(f"tensor {tensor.name} is none that the architecture knows, or stands twice")
        if shape != expected[tensor.name]:
            fail(f"{tensor.name}: got shape {shape}, expected {expected[tensor.name]}")
        is_linear = len(shape) == 2 and tensor.name != "token_embd.weight"
        if is_linear and kind != linear_type or len(shape) == 1 and kind != "F32":
            fail(f"{tensor.name}: got type {kind}, expected {linear_type if is_linear else 'F32'}")
        if kind.startswith("TQ") and len(np.unique(np.abs(values[values != 0]))) > 1:
            fail(f"{tensor.name} is not ternary: its magnitudes differ")
        missing.remove(tensor.name)
    if missing:
        fail(f"tensors are missing: {', '.join(sorted(missing))}")
    print(f"gguf: {len(reader.tensors)} tensors, every type and shape as the architecture asks")
    return number(reader, "bitnet.context_length")


def rlx_logits(rlx, model, text, folder):
    out = f"{folder}/logits.npy"
    run = subprocess.run([rlx, "logits", model, "--text", text, "-o", out, "--json"], capture_output=True, text=True)
    if run.returncode != 0:
        fail(f"rlx logits exited {run.returncode}: {run.stderr.strip()}")
    return json.loads(run.stdout)["tokens"], np.load(out)


def pieces(llama, text, limit):
    """The text in pieces of whole lines, as many as fit in `limit` tokens; a longer line is cut."""
    fits = lambda piece: len(llama.tokenize(piece.encode(), add_bos=True, special=False)) <= limit
    piece = ""
    for line in text.splitlines(keepends=True):
        if fits(piece + line):
            piece += line
            continue
        if piece:
            yield piece
        while not fits(line):
            line = line[: len(line) // 2]
        piece = line
    yield piece


def compare_logits(llama, rlx, model, text, context, positions, folder):
    agree, cosines = [], []
    for piece in pieces(llama, text, context):
        if len(cosines) >= positions:
            break
        tokens = llama.tokenize(piece.encode(), add_bos=True, special=False)
        ours, logits = rlx_logits(rlx, model, piece, folder)
        if ours != tokens:
            fail(f"tokens differ for {piece[:60]!r}: rlx {ours[:8]} …, llama.cpp {tokens[:8]} …")
        llama.reset()
        llama.eval(tokens)
        theirs = np.asarray(llama.scores[: len(tokens)], np.float64)
        if logits.shape != theirs.shape:
            fail(f"rlx gave logits {logits.shape}, llama.cpp {theirs.shape}")
        ours = logits.astype(np.float64)
        agree += list(ours.argmax(1) == theirs.argmax(1))
        cosines += list((ours * theirs).sum(1) / (np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)))
    return np.array(agree), np.array(cosines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rlx", default="build/rlx")
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--run", required=True, help="the run that the file was exported from")
    parser.add_argument("--text", required=True, help="the held-out text of that run")
    parser.add_argument("--type", default="TQ2_0", help="what the linear layers were exported as")
    parser.add_argument("--positions", type=int, default=200)
    args = parser.parse_args()

    context = check_tensors(args.gguf, args.type.upper())
    text = pathlib.Path(args.text).read_bytes().decode()
    llama = llama_cpp.Llama(args.gguf, n_ctx=context, n_batch=context, logits_all=True, n_threads=2, verbose=False)

    tokens = llama.tokenize(text.encode(), add_bos=True, special=False)
    ours = np.load(pathlib.Path(args.run) / "validation_tokens.npy").tolist()
    if tokens != ours:
        first = next((i for i, (a, b) in enumerate(zip(tokens, ours)) if a != b), min(len(tokens), len(ours)))
        fail(f"the text's tokens differ from token {first} on: llama.cpp has {len(tokens)}, the run {len(ours)}")
    print(f"llama.cpp: the same {len(tokens)} tokens for the whole text")

    with tempfile.TemporaryDirectory() as folder:
        agree, cosines = compare_logits(llama, args.rlx, args.gguf, text, context, args.positions, folder)
    print(f"llama.cpp: {len(agree)} positions: same top-1 on {agree.mean():.2%}, "
          f"logit cosine at least {cosines.min():.6f}, mean {cosines.mean():.6f}")
    if len(agree) < args.positions:
        fail(f"the text has only {len(agree)} positions, expected {args.positions}")
    if agree.mean() < MIN_TOP1 or not cosines.min() >= MIN_COSINE:
        fail(f"expected top-1 on {MIN_TOP1:.0%} or more and cosines of {MIN_COSINE} or more")
    print("interop: passed")


main()
