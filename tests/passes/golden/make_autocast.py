"""Writes autocast.json: a small MLP under torch.autocast in bf16 and f16, for auto_mixed_precision_test.cpp.

Usage: make_autocast.py > autocast.json   (PyTorch 2.x)
"""

import json

import torch

torch.manual_seed(7)
x, w1, b1, w2, b2 = (torch.randn(*s) * f for s, f in [((6, 8), 1), ((16, 8), 0.4), ((16,), 0.1), ((5, 16), 0.4), ((5,), 0.1)])
labels = torch.tensor([0, 4, 2, 1, 3, 4])
out = {"labels": labels.tolist()}
for name, t in {"x": x, "w1": w1, "b1": b1, "w2": w2, "b2": b2}.items():
    out[name] = {"shape": list(t.shape), "values": t.flatten().tolist()}
for name, dtype in {"bf16": torch.bfloat16, "f16": torch.float16}.items():
    params = [t.clone().requires_grad_() for t in (w1, b1, w2, b2)]
    with torch.autocast("cpu", dtype=dtype):
        h = torch.relu(torch.nn.functional.linear(x, params[0], params[1]))
        logits = torch.nn.functional.linear(h, params[2], params[3])
        loss = torch.nn.functional.cross_entropy(logits, labels)
    assert h.dtype == logits.dtype == dtype and loss.dtype == torch.float32
    loss.backward()
    out[name] = {"loss": loss.item(), "gradients": [p.grad.flatten().tolist() for p in params]}
print(json.dumps(out))
