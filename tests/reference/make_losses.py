"""Writes losses_adamw.json and losses_muon.json: what the independent PyTorch implementation gives for the checkpoints and
batches that build/rlx_reference_case writes. Needs torch; the tests only read the files.

    python make_losses.py

For each precision: the first 50 losses; of the first batch the logits of its first row at some places, and of each param's
gradient its norm and its products with three fixed vectors."""

import json
import pathlib
import subprocess
import tempfile

import numpy as np
import torch

from bitnet_torch import Bitnet, load_checkpoint, train

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def fingerprint(gradient):
    g = gradient.detach().double().flatten()
    i = torch.arange(len(g), dtype=torch.float64)
    return [g.norm().item()] + [(g * w).sum().item() for w in (torch.cos(0.1 * i), torch.cos(0.37 * i), torch.sin(1.3 * i))]


def first_batch(config, weights, batch):
    model = Bitnet(config, weights)
    batch = torch.from_numpy(batch)
    logits = model.logits(batch[:1, :-1].long())[0]
    model.loss(batch).backward()
    return {"logits": [[round(v, 7) for v in row] for row in logits[:, ::20].tolist()],
            "gradients": {name: fingerprint(w.grad) for name, w in model.weights.items()}}


def main():
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([ROOT / "build/rlx_reference_case", ROOT, folder], check=True)
        batches = np.load(f"{folder}/batches.npy")
        for optimizer in ("adamw", "muon"):
            stored = {"torch": torch.__version__.split("+")[0]}
            for precision in ("bitnet", "f32"):
                config, weights = load_checkpoint(f"{folder}/{precision}-{optimizer}/checkpoint-00000000")
                losses = train(config, Bitnet(config, weights), batches, len(batches), config["steps"])
                stored[precision] = {"losses": losses} | first_batch(config, weights, batches[0])
                print(optimizer, precision, losses[0], losses[-1])
            (HERE / f"losses_{optimizer}.json").write_text(json.dumps(stored) + "\n")


if __name__ == "__main__":
    main()
