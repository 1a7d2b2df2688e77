#!/usr/bin/env python3
"""One table of the demo's language model, trained for the same number of tokens in each precision.

    bench/precision_table.py [--rlx build/rlx] [--minutes 0.75 | --steps N] [--seeds 3] [--precisions f32,bf16,…] [--json FILE]
                             [--out FOLDER]

--minutes is how long f32 trains; the other precisions take as many steps. Bits per byte are the mean of runs from --seeds
seeds, since two f32 runs that differ in nothing else lie 1 % apart after a minute; beside it stand the least and the greatest.
Step times are those of short runs in turn (f32, bf16, …, f32, bf16, …), the fastest step of each. Ends with 1 where bf16, fp8
or mxfp8 lose more than 1 % to f32 in bits per byte, or a step takes more than twice as long.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PRECISIONS = ["f32", "bf16", "f16", "bitnet", "fp8", "mxfp8", "mxfp6", "mxfp4", "nvfp4", "codebook"]
CLOSE = {"bf16", "fp8", "mxfp8"}  # these stay within
MOST_LOSS, MOST_TIME = 1.01, 2.0
TIMED_STEPS, ROUNDS = 8, 2


def call(*command):
    result = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(f"precision_table: {' '.join(map(str, command[:2]))} exited {result.returncode}")
    return result.stdout


def text_file(folder):
    path = folder / "text.txt"
    text = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], input="\n", stdout=subprocess.PIPE, text=True).stdout
    if len(text) < 4_000_000:
        sys.exit(f"precision_table: bible printed only {len(text)} bytes of the King James text")
    path.write_text(text)
    return path


def train(rlx, text, run, config, precision, *length):
    return json.loads(call(rlx, "train", "--data", text, "--out", run, "--config", config, "--precision", precision, *length,
                           "--overwrite", "--json"))


def fastest_step(rlx, text, folder, config, precision):
    """Seconds; in codebook precision of a step with codebooks."""
    train(rlx, text, folder / "timed", config, precision, "--steps", TIMED_STEPS)
    lines = [json.loads(l) for l in (folder / "timed/metrics.jsonl").read_text().splitlines()]
    tokens = config_tokens(config)
    return tokens / max(l["tokens_per_s"] for l in lines[TIMED_STEPS // 2:])


def config_tokens(config):
    values = json.loads(config.read_text())
    return values["batch_size"] * values["context_length"] * values.get("accumulation", 1)


def bytes_in(folder):
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())


def measure(args, text, precision, length):
    bits = []
    for seed in range(args.seeds, 0, -1):  # the first seed's run is the one that stays
        result = train(args.rlx, text, args.out / precision, args.config, precision, *length, "--seed", seed)
        bits.append(result["val_bits_per_byte"])
        length = ("--steps", result["steps"])
    checkpoint = next((args.out / precision).glob("checkpoint-*"))
    suffix = ".safetensors" if precision in ("fp8", "mxfp8", "mxfp6", "codebook") else ".gguf"
    exported = args.out / (precision + suffix)
    call(args.rlx, "export", args.out / precision, "-o", exported)
    return {"precision": precision, "steps": result["steps"], "val_bits_per_byte": sum(bits) / len(bits),
            "least": min(bits), "greatest": max(bits), "checkpoint_bytes": bytes_in(checkpoint),
            "export_bytes": exported.stat().st_size, "export": exported.suffix[1:]}


def print_table(rows):
    base = next((r for r in rows if r["precision"] == "f32"), None)
    print("| precision | bits per byte | of the runs | to f32 | checkpoint, bytes | exported, bytes | file | step ÷ f32 |")
    print("|---|---|---|---|---|---|---|---|")
    for r in rows:
        loss = f"{100 * (r['val_bits_per_byte'] / base['val_bits_per_byte'] - 1):+.2f} %" if base else ""
        time = f"{r['step_seconds'] / base['step_seconds']:.2f}" if base else ""
        print(f"| {r['precision']} | {r['val_bits_per_byte']:.4f} | {r['least']:.3f} to {r['greatest']:.3f} | {loss} | "
              f"{r['checkpoint_bytes']} | {r['export_bytes']} | {r['export']} | {time} |")


def faults(rows):
    base = next((r for r in rows if r["precision"] == "f32"), None)
    for r in rows if base else []:
        if r["precision"] in CLOSE and r["val_bits_per_byte"] > MOST_LOSS * base["val_bits_per_byte"]:
            yield f"{r['precision']} loses more than 1 % to f32"
        if r["step_seconds"] > MOST_TIME * base["step_seconds"]:
            yield f"a step in {r['precision']} takes more than {MOST_TIME:g} f32 steps"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rlx", type=pathlib.Path, default=ROOT / "build/rlx")
    parser.add_argument("--config", type=pathlib.Path, default=ROOT / "demo/config.json")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/precisions")
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=0.75)
    length.add_argument("--steps", type=int)
    parser.add_argument("--seeds", type=int, default=3, choices=range(1, 100), metavar="N")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    chosen = args.precisions.split(",")
    args.out.mkdir(parents=True, exist_ok=True)
    text, sample = text_file(args.out), args.out / "sample.txt"
    sample.write_text(text.read_text()[:500_000])  # enough to time steps on

    rows = []
    for p in chosen:
        steps = args.steps or (rows[0]["steps"] if rows else None)
        rows.append(measure(args, text, p, ("--steps", steps) if steps else ("--minutes", args.minutes)))
    for _ in range(ROUNDS):
        for row in rows:
            seconds = fastest_step(args.rlx, sample, args.out, args.config, row["precision"])
            row["step_seconds"] = min(seconds, row.get("step_seconds", seconds))
    print_table(rows)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=2) + "\n")
    bad = list(faults(rows))
    for fault in bad:
        print(f"precision_table: {fault}", file=sys.stderr)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
