"""Writes optimizers.json: what torch.optim.AdamW, torch.optim.Muon (Newton-Schulz in bf16), and Muon in NumPy f64 make of a
few params over a few steps.

    python make_optimizers.py    (needs torch and numpy)
"""

import json
import math
import pathlib

import numpy as np
import torch

rng = np.random.default_rng(7)
STEPS = 4


def listed(a):
    return {"shape": list(a.shape), "values": [float(v) for v in np.asarray(a).ravel()]}


def adamw():
    p = rng.standard_normal((3, 4))
    grads = [rng.standard_normal((3, 4)) * 10 ** (-k) for k in range(STEPS)]
    rates = [0.1, 0.05, 0.01, 0.001]
    t = torch.tensor(p, requires_grad=True)
    optimizer = torch.optim.AdamW([t], lr=1, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    for g, lr in zip(grads, rates):
        t.grad = torch.tensor(g)
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
    return {"param": listed(p), "gradients": [listed(g) for g in grads], "rates": rates, "decay": 0.1, "result": listed(t.detach().numpy())}


def newton_schulz(u, dtype):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = (u / max(np.linalg.norm(u), 1e-7)).astype(dtype)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


def muon(shape, scale):
    p = rng.standard_normal(shape)
    grads = [rng.standard_normal(shape) for _ in range(STEPS)]
    lr, decay, beta = 0.02, 0.1, 0.95
    w, m = p.copy(), np.zeros(shape)
    for g in grads:
        m = beta * m + (1 - beta) * g
        u = newton_schulz((1 - beta) * g + beta * m, np.float64)
        factor = {"original": math.sqrt(max(1, shape[0] / shape[1])), "match_rms_adamw": 0.2 * math.sqrt(max(shape)), "none": 1}
        w = w * (1 - lr * decay) - lr * factor[scale] * u
    out = {"scale": scale, "param": listed(p), "gradients": [listed(g) for g in grads], "rate": lr, "decay": decay,
           "result": listed(w)}
    if scale != "none":
        t = torch.tensor(p, dtype=torch.float32, requires_grad=True)
        optimizer = torch.optim.Muon([t], lr=lr, weight_decay=decay, momentum=beta, nesterov=True, adjust_lr_fn=scale)
        for g in grads:
            t.grad = torch.tensor(g, dtype=torch.float32)
            optimizer.step()
        out["torch"] = listed(t.detach().numpy())
    return out


def orthogonalized():
    cases = []
    for shape in [(4, 6), (6, 4), (5, 5), (1, 7), (7, 1), (6, 20), (24, 8)]:
        g = rng.standard_normal(shape)
        cases.append({"x": listed(g), "result": listed(newton_schulz(g, np.float64))})
    return cases


numbers = {"adamw": adamw(), "orthogonalized": orthogonalized(),
           "muon": [muon((4, 6), "original"), muon((6, 4), "original"), muon((8, 3), "match_rms_adamw"), muon((3, 3), "none")]}
pathlib.Path(__file__).with_name("optimizers.json").write_text(json.dumps(numbers) + "\n")
