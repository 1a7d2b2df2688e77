"""Writes torch_cases.npz: outputs and gradients of PyTorch in f64 for the cases that torch_test.py replays. Needs torch;
the tests only read the file.

    python torch_cases.py

A case is an op of the table, its attributes, its inputs, and the same function in PyTorch. Float inputs and cotangents
are bf16 numbers, so that every dtype starts from the same ones."""

import json
import pathlib
import zlib

import numpy as np
import torch
import torch.nn.functional as F

CASES = []


def case(op, function, *inputs, wrt=None, **attrs):
    """`inputs`: (shape, low, high) for random floats, an integer or bool array as it is. `wrt`: the inputs that PyTorch
    gives gradients of, by default all floats."""
    CASES.append({"op": op, "function": function, "inputs": inputs, "wrt": wrt, "attrs": attrs})


def shape(*sizes, low=-2.0, high=2.0):
    return (sizes, low, high)


def bf16(a):
    return torch.from_numpy(np.asarray(a)).to(torch.bfloat16).double()


def run(index, c):
    rng = np.random.default_rng(zlib.crc32(f"{c['op']} {index}".encode()))
    inputs = []
    for spec in c["inputs"]:
        if isinstance(spec, tuple):
            sizes, low, high = spec
            inputs.append(bf16(rng.uniform(low, high, sizes)).requires_grad_())
        else:
            inputs.append(torch.from_numpy(np.asarray(spec)))
    y = c["function"](*inputs)
    floats = [i for i, x in enumerate(inputs) if x.is_floating_point()]
    wrt = floats if c["wrt"] is None else c["wrt"]
    stored = {"y": y.detach().numpy()}
    for i, x in enumerate(inputs):
        a = x.detach()
        stored[f"x{i}"] = a.to(torch.bfloat16).view(torch.int16).numpy() if x.is_floating_point() else a.numpy()
    if wrt and y.is_floating_point():
        dy = bf16(rng.uniform(-1, 1, tuple(y.shape)))
        stored["dy"] = dy.to(torch.bfloat16).view(torch.int16).numpy()
        grads = torch.autograd.grad(y, [inputs[i] for i in wrt], dy, allow_unused=True)
        for i, g in zip(wrt, grads):
            stored[f"d{i}"] = np.zeros(inputs[i].shape) if g is None else (g.detach() + 0.0).numpy(force=True)
    about = {"op": c["op"], "attrs": {k: v for k, v in c["attrs"].items()}, "floats": floats, "inputs": len(inputs)}
    return about, stored


# ---- elementwise: domains where the derivative is smooth
away = shape(3, 4, low=0.3, high=2.0)
unit = shape(3, 4, low=-0.9, high=0.9)
for name in ["exp", "exp2", "expm1", "sin", "cos", "tan", "atan", "sinh", "cosh", "tanh", "asinh", "erf", "sigmoid", "neg", "abs",
             "square", "erfc"]:
    case(name, getattr(torch, name), shape(3, 4, low=-1.4, high=1.4))
for name in ["log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal"]:
    case(name, getattr(torch, name), away)
for name in ["asin", "acos", "atanh"]:
    case(name, getattr(torch, name), unit)
case("acosh", torch.acosh, shape(3, 4, low=1.1, high=3))
for name in ["add", "sub", "mul", "maximum", "minimum", "logaddexp"]:
    case(name, getattr(torch, name), shape(2, 1, 4), shape(3, 1))
case("div", torch.div, shape(2, 1, 4), shape(3, 1, low=0.5, high=2))
case("div", torch.div, shape(), shape(3, low=-2, high=-0.5))
case("atan2", torch.atan2, shape(2, 1, 4), shape(3, 1))
case("pow", torch.pow, shape(2, 1, 4, low=0.2, high=2), shape(3, 1))
case("mod", torch.remainder, shape(4, 3, low=-7, high=7), shape(3, low=0.7, high=1.3))
case("fmod", torch.fmod, shape(4, 3, low=-7, high=7), shape(3, low=0.7, high=1.3))
case("where", torch.where, np.array([[True], [False]]), shape(2, 3), shape(3))
case("clamp", torch.clamp, shape(3, 4), shape(low=-0.6, high=-0.5), shape(low=0.5, high=0.6))

# ---- activations, their derivatives as ops, and the derivatives of those
# F.hardsigmoid takes 1/6 in f32 in its derivative
ACTIVATIONS = {"relu": F.relu, "relu2": lambda x: F.relu(x).square(), "relu6": F.relu6, "silu": F.silu, "gelu": F.gelu,
               "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "softplus": F.softplus, "mish": F.mish,
               "hard_sigmoid": lambda x: F.relu6(x + 3) / 6, "hard_swish": lambda x: x * F.relu6(x + 3) / 6, "softsign": F.softsign}
for name, f in ACTIVATIONS.items():
    case(name, f, shape(4, 5, low=-8, high=8))
    case(name, f, shape(low=0.1, high=1))


def backward_of(f):
    return lambda x, dy: torch.autograd.grad(f(x), x, dy, create_graph=True)[0]


for kind, f in {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "silu": F.silu, "gelu": F.gelu, "gelu_tanh": ACTIVATIONS["gelu_tanh"],
                "exp": torch.exp, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan, "atan": torch.atan}.items():
    case("activation_backward", backward_of(f), shape(3, 4, low=-1.4, high=1.4), shape(3, 4), kind=kind)
for kind in ["log", "sqrt", "rsqrt"]:
    case("activation_backward", backward_of(getattr(torch, kind)), away, shape(3, 4), kind=kind)
for kind in ["relu", "neg", "abs"]:
    case("activation_backward", backward_of(getattr(torch, kind)), shape(3, 4), shape(3, 4), kind=kind)
for kind in ["round", "floor", "ceil"]:
    case("activation_backward", lambda x, dy: dy + 0 * x, shape(3, 4), shape(3, 4), kind=kind)  # straight-through
    case(kind, lambda x, f=getattr(torch, kind): x + (f(x) - x).detach(), shape(3, 4))
case("trunc", lambda x: x + (torch.trunc(x) - x).detach(), shape(3, 4))
case("relu_backward", lambda x, dy: dy * (x > 0), shape(3, 4), shape(3, 4))
case("cast", lambda x: x.clone(), shape(3, 4), dtype="f64")
case("stop_gradient", lambda x: x.detach() + 0 * x, shape(3, 4))


def main():
    manifest, arrays = [], {}
    for index, c in enumerate(CASES):
        about, stored = run(sum(d["op"] == c["op"] for d in CASES[:index]), c)
        manifest.append(about)
        for name, a in stored.items():
            arrays[f"{index}.{name}"] = a
    path = pathlib.Path(__file__).with_suffix(".npz")
    np.savez_compressed(path, manifest=json.dumps(manifest), **arrays)
    print(f"{len(CASES)} cases of {len({c['op'] for c in CASES})} ops, {path.stat().st_size} bytes, torch {torch.__version__}")


if __name__ == "__main__":
    main()
