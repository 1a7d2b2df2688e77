"""Training tokens/s of RLX beside eager PyTorch on the same model, and what quantisation-aware training costs.

    python train_speed.py build/rlx

Both run in turn, three times each (A, B, A, B, …), and the fastest step of each counts. Prints a table, and with --json
FILE also writes the numbers.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import torch

from torch_model import Model, optimizers

CONFIG = {"vocab_size": 2048, "context_length": 256, "embedding_length": 256, "block_count": 4,
          "feed_forward_length": 768, "head_count": 4, "head_count_kv": 4, "rope_freq_base": 10000.0,
          "rms_norm_epsilon": 1e-5}
BATCH, LENGTH, STEPS, ROUNDS = 8, CONFIG["context_length"], 12, 3


def made_up_text():
    """Enough text of a few thousand made-up words for 2048 pieces."""
    draw = random.Random(1)
    parts = ["ka", "to", "ri", "men", "sol", "ve", "an", "ther", "i", "lo", "quen", "sta", "bor", "du", "gla", "phe"]
    words = ["".join(draw.choice(parts) for _ in range(draw.randint(1, 4))) for _ in range(4000)]
    return "\n".join(" ".join(words[int(draw.random() ** 3 * 4000)] for _ in range(20)) for _ in range(10000)) + "\n"


def rlx_speed(rlx, text, folder, precision, optimizer):
    config = folder / "config.json"
    config.write_text(json.dumps(CONFIG | {"batch_size": BATCH, "context_length": LENGTH}))
    run = folder / "run"
    result = subprocess.run([rlx, "train", "--data", text, "--out", run, "--config", config, "--steps", str(STEPS),
                             "--precision", precision, "--optimizer", optimizer, "--overwrite"],
                            capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"train_speed: rlx train exited {result.returncode}: {result.stderr.strip()}")
    lines = [json.loads(l) for l in (run / "metrics.jsonl").read_text().splitlines()]
    return max(l["tokens_per_s"] for l in lines if l.get("tokens_per_s"))


class Torch:
    def __init__(self, precision, optimizer):
        torch.manual_seed(1)
        self.model = Model(CONFIG, precision == "bitnet")
        self.optimizers = optimizers(self.model, optimizer)
        self.tokens = torch.randint(0, CONFIG["vocab_size"], (BATCH, LENGTH + 1))

    def step(self):
        loss = self.model(self.tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for o in self.optimizers:
            o.step()
            o.zero_grad()
        return loss.item()

    def speed(self):
        times = []
        for _ in range(STEPS):
            start = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - start)
        return BATCH * LENGTH / min(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rlx")
    parser.add_argument("--json")
    args = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))

    cases = [(p, o) for p in ("bitnet", "f32") for o in ("adamw", "muon")]
    peers = {case: Torch(*case) for case in cases}
    best = {case: {"rlx": 0.0, "pytorch": 0.0} for case in cases}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        text = folder / "text.txt"
        text.write_text(made_up_text())
        for _ in range(ROUNDS):
            for case in cases:
                best[case]["rlx"] = max(best[case]["rlx"], rlx_speed(args.rlx, text, folder, *case))
                best[case]["pytorch"] = max(best[case]["pytorch"], peers[case].speed())

    parameters = sum(p.numel() for p in peers[cases[0]].model.parameters())
    print(f"Training, {parameters / 1e6:.1f} M parameters, {BATCH} x {LENGTH} tokens a step, {torch.get_num_threads()} "
          f"threads, PyTorch {torch.__version__.split('+')[0]} eager; tokens/s of the fastest step")
    print(f"{'precision':10} {'optimizer':10} {'RLX':>8} {'PyTorch':>8} {'ratio':>6}")
    for (precision, optimizer), speed in best.items():
        print(f"{precision:10} {optimizer:10} {speed['rlx']:8.0f} {speed['pytorch']:8.0f} "
              f"{speed['rlx'] / speed['pytorch']:6.2f}")
    for optimizer in ("adamw", "muon"):
        ratio = best["f32", optimizer]["rlx"] / best["bitnet", optimizer]["rlx"]
        print(f"RLX, {optimizer}: a QAT step takes {ratio:.2f} times as long as the f32 step")
    if args.json:
        rows = [{"precision": p, "optimizer": o} | {f"{k}_tokens_per_s": v for k, v in speed.items()}
                for (p, o), speed in best.items()]
        ratios = {o: best["f32", o]["rlx"] / best["bitnet", o]["rlx"] for o in ("adamw", "muon")}
        pathlib.Path(args.json).write_text(json.dumps({"training": rows, "qat_step_over_f32_step": ratios}, indent=2) + "\n")


main()
