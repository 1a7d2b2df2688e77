"""Writes steps.json: the params after each of ten steps under each optimizer, by torch.optim in f64 (SGD, AdamW,
Adafactor; Muon, whose Newton-Schulz is in bf16, in f32) and by the papers' formulas in NumPy f64 (Muon, Lion, LAMB). Start
and gradients are formulas that the test has too.

    python make_steps.py    (needs torch and numpy)
"""

import json
import math
import pathlib

import numpy as np
import torch

STEPS = 10
SHAPES = [(5,), (3, 4), (7, 2), (2, 9), (2, 3, 2)]
MATRICES = [(3, 4), (7, 2), (2, 9), (4, 4), (1, 5), (5, 1)]


def start(shape):
    return np.cos(0.9 * np.arange(math.prod(shape)) + 0.4).reshape(shape)


def gradient(shape, step):
    i = np.arange(math.prod(shape))
    g = np.sin(0.7 * i * (1 + 0.1 * step) + 1.3 * step) * 10.0 ** -(step % 3)
    return np.where(i % 5 == 3, 0, g).reshape(shape)


def rate(step):
    return 0.02 / (1 + 0.1 * step)


def by_torch(make, shape, dtype=torch.float64):
    t = torch.tensor(start(shape), dtype=dtype, requires_grad=True)
    optimizer = make([t])
    out = []
    for step in range(1, STEPS + 1):
        t.grad = torch.tensor(gradient(shape, step), dtype=dtype)
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.step()
        out.append(t.detach().double().numpy().ravel().tolist())
    return out


def by_formula(update, shape):
    p, state, out = start(shape), {}, []
    for step in range(1, STEPS + 1):
        p = update(p, gradient(shape, step), rate(step), step, state)
        out.append(p.ravel().tolist())
    return out


def lion(decay):
    def update(p, g, lr, step, state):
        m = state.get("m", np.zeros_like(p))
        c = 0.9 * m + 0.1 * g
        state["m"] = 0.99 * m + 0.01 * g
        return p - lr * (np.sign(c) + decay * p)
    return update


def lamb(decay):
    def update(p, g, lr, step, state):
        m = state["m"] = 0.9 * state.get("m", 0) + 0.1 * g
        v = state["v"] = 0.999 * state.get("v", 0) + 0.001 * g * g
        r = m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step)) + 1e-6)
        u = r + decay * p
        return p - lr * np.linalg.norm(p) / np.linalg.norm(u) * u
    return update


def newton_schulz(u):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = u / max(np.linalg.norm(u), 1e-7)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


def muon(scale, decay, nesterov):
    def update(p, g, lr, step, state):
        m = state["m"] = 0.95 * state.get("m", 0) + 0.05 * g
        u = 0.05 * g + 0.95 * m if nesterov else m
        u = u.reshape(u.shape[0], -1)
        rows, columns = u.shape
        factor = {"original": math.sqrt(max(1, rows / columns)), "match_rms_adamw": 0.2 * math.sqrt(max(rows, columns)), "none": 1}
        return p * (1 - lr * decay) - lr * factor[scale] * newton_schulz(u).reshape(p.shape)
    return update


def case(optimizer, decay, run, shapes, tolerance=0, **settings):
    return {"optimizer": optimizer, "settings": settings, "decay": decay, "tolerance": tolerance,
            "params": [{"shape": list(s), "steps": run(s)} for s in shapes]}


def torch_case(optimizer, make, decay, shapes=SHAPES, dtype=torch.float64, tolerance=0, **settings):
    return case(optimizer, decay, lambda s: by_torch(make, s, dtype), shapes, tolerance, **settings)


O = torch.optim
cases = [
    torch_case("sgd", lambda p: O.SGD(p), 0),
    torch_case("sgd", lambda p: O.SGD(p, momentum=0.9, weight_decay=0.1), 0.1, momentum=0.9, coupled_decay=True),
    torch_case("sgd", lambda p: O.SGD(p, momentum=0.9, dampening=0.3), 0, momentum=0.9, dampening=0.3),
    torch_case("sgd", lambda p: O.SGD(p, momentum=0.9, nesterov=True, weight_decay=0.1), 0.1, momentum=0.9, nesterov=True,
               coupled_decay=True),
    torch_case("adamw", lambda p: O.AdamW(p, betas=(0.9, 0.95), weight_decay=0.1), 0.1, beta2=0.95),
    torch_case("adafactor", lambda p: O.Adafactor(p, weight_decay=0.1), 0.1),
    torch_case("adafactor", lambda p: O.Adafactor(p, beta2_decay=-0.5, eps=(1e-4, 1e-2), d=1.5), 0, beta2_decay=-0.5, epsilon1=1e-4,
               epsilon2=1e-2, clip=1.5),
    case("lion", 0.1, lambda s: by_formula(lion(0.1), s), SHAPES),
    case("lamb", 0.1, lambda s: by_formula(lamb(0.1), s), SHAPES),
    case("muon", 0.1, lambda s: by_formula(muon("original", 0.1, True), s), MATRICES),
    case("muon", 0.1, lambda s: by_formula(muon("match_rms_adamw", 0.1, False), s), MATRICES, scale="match_rms_adamw", nesterov=False),
    case("muon", 0, lambda s: by_formula(muon("none", 0, True), s), [(3, 2, 2), (4, 3)], scale="none", flatten=True),
    torch_case("muon", lambda p: O.Muon(p, weight_decay=0.1), 0.1, MATRICES, torch.float32, 1e-2, bf16=True),
    torch_case("muon", lambda p: O.Muon(p, weight_decay=0, adjust_lr_fn="match_rms_adamw"), 0, MATRICES, torch.float32, 1e-2, bf16=True,
               scale="match_rms_adamw"),
]
pathlib.Path(__file__).with_name("steps.json").write_text(json.dumps({"cases": cases}) + "\n")
