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

# ---- reductions and scans
for axes in [[0], [1, 2], [-1], [], [0, 1, 2]]:
    for keepdims in [False, True]:
        def over(f, axes=axes, keepdims=keepdims):
            return (lambda x: f(x, dim=axes, keepdim=keepdims)) if axes else (lambda x: x.clone())
        case("sum", over(torch.sum), shape(2, 3, 4), axes=axes, keepdims=keepdims)
        case("mean", over(torch.mean), shape(2, 3, 4), axes=axes, keepdims=keepdims)
        case("max", over(torch.amax), shape(2, 3, 4), axes=axes, keepdims=keepdims)
        case("min", over(torch.amin), shape(2, 3, 4), axes=axes, keepdims=keepdims)
case("prod", lambda x: x.prod(1), shape(2, 3, 4), axes=[1], keepdims=False)
case("prod", lambda x: x.prod(2).prod(0), shape(2, 3, 2), axes=[0, 2], keepdims=False)


def scan(f, axis, exclusive, reverse, one):
    def on(x):
        x = x.flip(axis) if reverse else x
        y = f(x, axis)
        if exclusive:
            first = torch.full_like(x.narrow(axis, 0, 1), one)
            y = torch.cat([first, y.narrow(axis, 0, x.shape[axis] - 1)], axis)
        return y.flip(axis) if reverse else y
    return on


for exclusive in [False, True]:
    for reverse in [False, True]:
        for axis in [0, -1]:
            flags = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
            case("cumsum", scan(torch.cumsum, axis, exclusive, reverse, 0.0), shape(3, 4), **flags)
            case("cumprod", scan(torch.cumprod, axis, exclusive, reverse, 1.0), shape(3, 4), **flags)

# ---- movement
case("reshape", lambda x: x.reshape(3, 4), shape(2, 6), shape=[3, 4])
case("expand", lambda x: x.expand(2, 3, 4), shape(3, 1), shape=[2, 3, 4])
case("expand", lambda x: x.expand(0, 3), shape(3), shape=[0, 3])
case("transpose", lambda x: x.permute(2, 0, 1), shape(2, 3, 4), perm=[2, 0, 1])
case("slice", lambda x: x[1:3, ::2], shape(4, 5), starts=[1, 0], sizes=[2, 3], steps=[1, 2])
case("slice", lambda x: x.flip(0)[1:], shape(4), starts=[2], sizes=[3], steps=[-1])
case("slice", lambda x: x.flip(1)[:, ::2], shape(2, 6), starts=[0, 5], sizes=[2, 3], steps=[1, -2])
case("pad", lambda x: F.pad(x, (0, 2, 1, 0), value=0.5), shape(2, 3), low=[1, 0], high=[0, 2], value=0.5)
case("concat", lambda *xs: torch.cat(xs, 1), shape(2, 3), shape(2, 0), shape(2, 1), axis=1)
case("flip", lambda x: x.flip(0, 2), shape(2, 3, 4), axes=[0, 2])

# ---- index
places = np.array([[2, -1], [0, 2]])
wrapped = torch.from_numpy(np.where(places < 0, places + 3, places))
case("gather", lambda x, i: x[:, wrapped], shape(2, 3, 4), places, axis=1)
case("gather", lambda x, i: x[i.long()], shape(5, 2), np.array([4, 4, 0], np.int32), axis=0)
picks = np.array([[0, 2, 1, 0], [2, 2, 0, 1]])
case("gather_elements", lambda x, i: x.gather(0, i), shape(3, 4), picks, axis=0)
case("scatter", lambda x, i, u: x.index_add(0, i, u), shape(4, 3), np.array([1, 3, 1]), shape(3, 3), axis=0, mode="add")
case("scatter", lambda x, i, u: x.index_copy(1, i, u), shape(2, 4), np.array([3, 0]), shape(2, 2), axis=1, mode="set")
case("scatter_elements", lambda x, i, u: x.scatter_add(0, i, u), shape(3, 4), picks, shape(2, 4), axis=0, mode="add")
case("scatter_elements", lambda x, i, u: x.scatter(0, i, u), shape(3, 4), np.array([[0, 2, 1, 0], [2, 1, 0, 1]]), shape(2, 4),
     axis=0, mode="set")
case("sort", lambda x: x.sort(1).values, shape(3, 7), axis=1, descending=False)
case("sort", lambda x: x.sort(0, descending=True).values, shape(6, 2), axis=0, descending=True)

# ---- contractions
for a, b in [((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)), ((2, 1, 3, 4), (5, 4, 2)),
             ((3, 4), (2, 4, 5)), ((1, 3, 4), (2, 4, 5)), ((0, 4), (4, 2)), ((3, 0), (0, 2)), ((2, 3, 4), (4,))]:
    case("matmul", torch.matmul, shape(*a), shape(*b))
case("dot_general", lambda a, b: torch.einsum("bki,jbk->bij", a, b), shape(2, 4, 3), shape(5, 2, 4), lhs_batch=[0], rhs_batch=[1],
     lhs_contract=[1], rhs_contract=[2])
case("dot_general", lambda a, b: torch.einsum("iklj,lmk->ijm", a, b), shape(2, 3, 4, 2), shape(4, 5, 3), lhs_batch=[], rhs_batch=[],
     lhs_contract=[1, 2], rhs_contract=[2, 0])
case("dot_general", lambda a, b: torch.einsum("i,j->ij", a, b), shape(2), shape(3), lhs_batch=[], rhs_batch=[], lhs_contract=[],
     rhs_contract=[])

CONVOLUTIONS = [  # input, weight, strides, padding before and after, dilation, groups
    ((2, 3, 8), (4, 3, 3), [1], [0], [0], [1], 1),
    ((1, 4, 9), (6, 2, 3), [2], [1], [2], [2], 2),
    ((2, 3, 6, 7), (4, 3, 3, 2), [1, 1], [0, 0], [0, 0], [1, 1], 1),
    ((1, 4, 7, 8), (4, 1, 3, 3), [2, 1], [1, 2], [1, 0], [1, 2], 4),
    ((1, 2, 5, 6), (3, 2, 1, 1), [2, 3], [0, 0], [0, 0], [1, 1], 1),
    ((1, 2, 4, 5, 6), (2, 2, 2, 3, 2), [1, 2, 1], [1, 0, 1], [0, 1, 1], [1, 1, 2], 1),
    ((2, 2, 3), (0, 2, 2), [1], [0], [0], [1], 1),
]


def pad_both(x, low, high):
    return F.pad(x, [n for pair in zip(reversed(low), reversed(high)) for n in pair])


def convolve(strides, low, high, dilation, groups):
    def on(x, w):
        f = [F.conv1d, F.conv2d, F.conv3d][len(strides) - 1]
        x = pad_both(x, low, high)
        if w.shape[0] == 0:
            return f(x, torch.ones(1, *w.shape[1:], dtype=w.dtype))[:, :0] * w.sum()
        return f(x, w, stride=strides, dilation=dilation, groups=groups)
    return on


for x, w, strides, low, high, dilation, groups in CONVOLUTIONS:
    attrs = {"strides": strides, "low": low, "high": high, "dilation": dilation, "groups": groups}
    f = convolve(strides, low, high, dilation, groups)
    case("conv", f, shape(*x), shape(*w), **attrs)
    if w[0] == 0:
        continue
    out = tuple(f(torch.zeros(x), torch.zeros(w)).shape)

    def to_input(dy, w, f=f, x=x):
        at = torch.zeros(x, dtype=dy.dtype, requires_grad=True)
        return torch.autograd.grad(f(at, w), at, dy, create_graph=True)[0]

    def to_weight(x, dy, f=f, w=w):
        at = torch.zeros(w, dtype=dy.dtype, requires_grad=True)
        return torch.autograd.grad(f(x, at), at, dy, create_graph=True)[0]
    case("conv_backward_input", to_input, shape(*out), shape(*w), **attrs, size=list(x[2:]))
    case("conv_backward_weight", to_weight, shape(*x), shape(*out), **attrs, size=list(w[2:]))

for x, w, strides, padding, dilation, extra, groups in [
        ((2, 3, 5), (3, 4, 3), [1], [0], [1], [0], 1), ((1, 4, 4), (4, 3, 3), [2], [1], [1], [1], 2),
        ((1, 3, 4, 5), (3, 2, 3, 2), [2, 1], [1, 0], [1, 2], [0, 0], 1),
        ((1, 2, 3, 2, 3), (2, 2, 2, 3, 2), [1, 2, 2], [0, 1, 0], [1, 1, 1], [0, 1, 0], 1)]:
    f = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][len(strides) - 1]
    case("conv_transpose", lambda x, w, f=f, strides=strides, padding=padding, dilation=dilation, extra=extra, groups=groups: f(
        x, w, stride=strides, padding=padding, dilation=dilation, output_padding=extra, groups=groups), shape(*x), shape(*w),
         strides=strides, low=padding, high=padding, dilation=dilation, output_padding=extra, groups=groups)

# ---- normalisation and losses
for axis in [0, -1]:
    case("softmax", lambda x, axis=axis: x.softmax(axis), shape(3, 4, low=-6, high=6), axis=axis)
    case("log_softmax", lambda x, axis=axis: x.log_softmax(axis), shape(3, 4, low=-6, high=6), axis=axis)
    hole = np.array([[True, False, True, True], [True] * 4, [False, True, False, True]])
    case("masked_softmax", lambda x, axis=axis: x.softmax(axis), shape(3, 4), axis=axis)
    case("masked_softmax", lambda x, m, axis=axis: x.masked_fill(~m, -torch.inf).softmax(axis), shape(3, 4), hole, axis=axis)
    for keepdims in [False, True]:
        case("logsumexp", lambda x, axis=axis, keepdims=keepdims: x.logsumexp(axis, keepdims), shape(3, 4, low=-6, high=6), axis=axis,
             keepdims=keepdims)
case("layer_norm", lambda x, g, b: F.layer_norm(x, (4,), g, b, 1e-5), shape(2, 3, 4), shape(4), shape(4), axis=-1, eps=1e-5)
case("layer_norm", lambda x, g, b: F.layer_norm(x, (3, 4), g, b, 1e-2), shape(2, 3, 4), shape(3, 4), shape(3, 4), axis=1, eps=1e-2)
case("layer_norm", lambda x, g: F.layer_norm(x, (4,), g, None, 1e-5), shape(2, 3, 4), shape(4), axis=-1, eps=1e-5)
case("layer_norm", lambda x: F.layer_norm(x, (4,)), shape(2, 3, 4), axis=-1, eps=1e-5)
case("rms_norm", lambda x: F.rms_norm(x, (6,), None, 1e-5), shape(2, 6), eps=1e-5)
case("rms_norm", lambda x, g: F.rms_norm(x, (6,), g, 1e-5), shape(2, 3, 6), shape(6), eps=1e-5)
case("group_norm", lambda x, g, b: F.group_norm(x, 2, g, b, 1e-5), shape(2, 4, 3, 2), shape(4), shape(4), groups=2, eps=1e-5)
case("group_norm", lambda x, g, b: F.group_norm(x, 3, g, b, 1e-3), shape(2, 3, 5), shape(3), shape(3), groups=3, eps=1e-3)


def batch_norm(x, gamma, beta, mean, var, axis):
    y = F.batch_norm(x.movedim(axis, 1), mean.detach(), var.detach(), gamma, beta, training=False, eps=1e-3)
    return y.movedim(1, axis)


def channel_last_or_first(axis):
    return shape(2, 3, 4, 2) if axis == 1 else shape(2, 4, 2, 3)


positive = shape(3, low=0.5, high=2)
for axis in [1, -1]:
    x = channel_last_or_first(axis)
    flags = {"channel_axis": axis, "eps": 1e-3}
    # PyTorch takes mean and variance for constants: the gradients of the formula itself
    case("batch_norm_inference", lambda x, g, b, m, v, axis=axis: (
        (x.movedim(axis, -1) - m) / torch.sqrt(v + 1e-3) * g + b).movedim(-1, axis), x, shape(3), shape(3), shape(3), positive, **flags)
    case("batch_norm_inference", lambda x, g, b, m, v, axis=axis: batch_norm(x, g, b, m, v, axis), x, shape(3), shape(3), shape(3),
         positive, wrt=[0, 1, 2], **flags)

    def to_input(dy, g, v, axis=axis):
        return (dy.movedim(axis, -1) * g / torch.sqrt(v + 1e-3)).movedim(-1, axis)

    def to_gamma(x, dy, m, v, axis=axis):
        return (dy.movedim(axis, -1) * (x.movedim(axis, -1) - m) / torch.sqrt(v + 1e-3)).flatten(0, -2).sum(0)
    case("batch_norm_inference_backward_input", to_input, x, shape(3), positive, **flags)
    case("batch_norm_inference_backward_gamma", to_gamma, x, x, shape(3), positive, **flags)
    case("batch_norm_inference_backward_beta", lambda dy, axis=axis: dy.movedim(axis, -1).flatten(0, -2).sum(0), x, channel_axis=axis)

labels = np.array([[1, 0, 3], [2, 2, 1]])
ignoring = np.array([[1, -100, 3], [2, -100, 1]], np.int32)
for reduction in ["mean", "sum", "none"]:
    def loss(logits, labels, reduction=reduction, ignore=-100):
        return F.cross_entropy(logits.movedim(-1, 1), labels.long(), reduction=reduction, ignore_index=ignore)
    case("cross_entropy", loss, shape(2, 3, 4, low=-5, high=5), labels, reduction=reduction, ignore_index=-100)
    case("cross_entropy", loss, shape(2, 3, 4, low=-5, high=5), ignoring, reduction=reduction, ignore_index=-100)
    case("cross_entropy", lambda x, i, loss=loss: loss(x, i, ignore=2), shape(2, 3, 4), labels, reduction=reduction, ignore_index=2)


def rope(base, interleaved, dims, inverse):
    """By complex numbers: the pair (a, b) turns as a + ib."""
    def on(x, positions):
        size = dims or x.shape[-1]
        head, rest = x[..., :size], x[..., size:]
        pair = head.unflatten(-1, (-1, 2)) if interleaved else head.unflatten(-1, (2, -1)).transpose(-1, -2)
        frequency = base ** (-torch.arange(size // 2, dtype=x.dtype) * 2 / size)
        angle = positions.to(x.dtype)[..., None] * frequency * (-1 if inverse else 1)
        turned = torch.view_as_real(torch.view_as_complex(pair.contiguous()) * torch.polar(torch.ones_like(angle), angle))
        turned = turned.flatten(-2) if interleaved else turned.transpose(-1, -2).flatten(-2)
        return torch.cat([turned, rest], -1)
    return on


steps = np.array([0, 1, 5, 7, 100], np.int32)
for interleaved in [False, True]:
    for dims in [0, 4]:
        for inverse in [False, True]:
            case("rope", rope(1e4, interleaved, dims, inverse), shape(2, 3, 5, 8), steps, base=1e4, interleaved=interleaved, dims=dims,
                 inverse=inverse)
case("rope", rope(100.0, False, 0, False), shape(5, 6), steps, base=100.0)


def attend(mask=None, window=0, scale=0.0, softcap=0.0, has_lengths=False):
    """The definition, step by step; query i of T stands at position i + (keys - T)."""
    def on(q, k, v, *rest):
        repeats = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        scores = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        queries, keys = scores.shape[-2:]
        if has_lengths:
            ends = rest[-1].long()[:, None, None, None]
            rest = rest[:-1]
        else:
            ends = torch.full((q.shape[0], 1, 1, 1), keys)
        at = torch.arange(queries)[:, None] + ends - queries
        key = torch.arange(keys)
        seen = key < ends
        if mask in ["causal", "sliding_window"]:
            seen = seen & (key <= at)
        if mask == "sliding_window":
            seen = seen & (key > at - window)
        if mask == "custom":
            seen = seen & rest[0]
        if mask == "bias":
            scores = scores + rest[0]
            seen = seen & ~torch.isneginf(rest[0])
        seen = seen.expand(scores.shape)
        none = ~seen.any(-1, keepdim=True)
        weights = scores.masked_fill(~seen & ~none, -torch.inf).softmax(-1).masked_fill(none, 0)
        return weights @ v
    return on


q, k = shape(2, 4, 3, 4), shape(2, 2, 5, 4)
mask = np.array([[True, False, True, True, False], [False] * 5, [True, True, True, False, False]])
lengths = np.array([5, 3], np.int32)
case("attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), shape(2, 2, 3, 4), shape(2, 2, 5, 4), shape(2, 2, 5, 6))
case("attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), shape(1, 2, 4, 4), shape(1, 2, 4, 4),
     shape(1, 2, 4, 4), mask="causal")
case("attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True, scale=0.3), q, k, k, scale=0.3)
case("attention", attend("causal"), q, k, k, mask="causal")
case("attention", attend("sliding_window", window=2), q, k, k, mask="sliding_window", window=2)
case("attention", attend(softcap=2.0), q, k, k, softcap=2.0)
case("attention", attend("custom"), q, k, k, mask, mask="custom")
case("attention", attend("bias"), q, k, k, shape(4, 3, 5), mask="bias")
case("attention", attend(has_lengths=True), q, k, k, lengths, has_lengths=True)
case("attention", attend("causal", has_lengths=True), q, k, k, lengths, mask="causal", has_lengths=True)
case("attention", attend("custom", has_lengths=True), q, k, k, mask, lengths, mask="custom", has_lengths=True)

# ---- pools: PyTorch pads both ends alike, so unequal padding is put on with pad_both
POOLS = [  # input, kernel, strides, padding, dilation, ceil_mode
    ((2, 3, 9), [3], [2], [1], [1], False), ((1, 2, 10), [3], [3], [0], [2], True), ((1, 2, 7, 8), [2, 3], [2, 2], [1, 1], [1, 1], False),
    ((1, 2, 7, 8), [3, 2], [2, 3], [0, 1], [1, 1], True), ((1, 1, 5, 6, 4), [2, 3, 2], [2, 1, 2], [1, 0, 0], [1, 1, 1], False),
    ((1, 2, 6, 7), [2, 2], [1, 2], [0, 0], [2, 3], False)]
for x, kernel, strides, padding, dilation, ceil_mode in POOLS:
    rank = len(kernel)
    attrs = {"kernel": kernel, "strides": strides, "low": padding, "high": padding, "dilation": dilation, "ceil_mode": ceil_mode}
    f = [F.max_pool1d, F.max_pool2d, F.max_pool3d][rank - 1]
    flags = {"kernel_size": kernel, "stride": strides, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
    case("max_pool", lambda x, f=f, flags=flags: f(x, **flags), shape(*x), **attrs)
    case("max_pool_indices", lambda x, f=f, flags=flags: f(x, **flags, return_indices=True)[1], shape(*x), **attrs)
    if max(dilation) > 1:
        continue
    f = [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d][rank - 1]
    flags = {"kernel_size": kernel, "stride": strides, "padding": padding, "ceil_mode": ceil_mode}
    for with_pad in [False, True]:
        def average(x, f=f, flags=flags, with_pad=with_pad):
            return f(x, **flags, count_include_pad=with_pad)
        case("avg_pool", average, shape(*x), **attrs, count_include_pad=with_pad)

        def backward(dy, x=x, average=average):
            at = torch.zeros(x, dtype=dy.dtype, requires_grad=True)
            return torch.autograd.grad(average(at), at, dy, create_graph=True)[0]
        case("avg_pool_backward", backward, shape(*average(torch.zeros(x)).shape), shape=list(x), **attrs, count_include_pad=with_pad)
case("max_pool", lambda x: F.max_pool2d(F.pad(x, (0, 1, 1, 0), value=-torch.inf), (2, 2), (1, 2)), shape(1, 2, 4, 5), kernel=[2, 2],
     strides=[1, 2], low=[1, 0], high=[0, 1])
case("avg_pool", lambda x: F.avg_pool1d(F.pad(x, (0, 1)), 2, 2), shape(1, 2, 5), kernel=[2], strides=[2], low=[0], high=[1],
     count_include_pad=True)


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
