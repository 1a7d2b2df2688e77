"""Writes golden.inc: outputs and gradients of PyTorch and NumPy in f64 for contract_test.cpp and nn_test.cpp, which say
beside each name what is built from its inputs. Needs torch; the tests only read the file.

    python make_golden.py
"""

import pathlib
import zlib

import numpy as np
import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
OUT = []


def text(a):
    a = np.asarray(a)
    kind = {"f": "F64", "i": "I64", "b": "Bool"}[a.dtype.kind]
    values = ", ".join(repr(float(v)).replace("inf", "INFINITY").replace("nan", "NAN") for v in a.reshape(-1))
    return f"{{DType::{kind}, {{{', '.join(map(str, a.shape))}}}, {{{values}}}}}"


def case(name, function, *inputs, gradient=True):
    """A tuple is the shape of random floats (multiples of 1/64, exact in every dtype), anything else is a value. The
    case holds the inputs, the output, and its cotangent and the gradients of the float inputs."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    draw = lambda shape: np.rint(rng.uniform(-2, 2, shape) * 64) / 64
    x = [torch.tensor(draw(i) if isinstance(i, tuple) else np.asarray(i)) for i in inputs]
    floats = [t.requires_grad_() for t in x if t.is_floating_point()]
    y = function(*x)
    arrays = [*x, y]
    if gradient:
        dy = torch.tensor(draw(tuple(y.shape)))
        grads = torch.autograd.grad(y, floats, dy, allow_unused=True)
        arrays += [dy, *(torch.zeros_like(t) if g is None else g for g, t in zip(grads, floats))]
    rows = ",\n    ".join(text(a.detach().numpy()) for a in arrays)
    OUT.append(f'{{"{name}", {{{len(x)}, {{\n    {rows}}}}}}},\n')


# ---- matmul
for name, a, b in [("plain", (3, 4), (4, 5)), ("vector_vector", (4,), (4,)), ("vector_matrix", (4,), (4, 3)), ("matrix_vector", (3, 4), (4,)),
                   ("vector_batch", (4,), (2, 4, 3)), ("batch_vector", (2, 3, 4), (4,)), ("batch", (2, 3, 4), (2, 4, 5)),
                   ("one_matrix", (2, 3, 4), (4, 5)), ("batch_of_right", (3, 4), (2, 4, 5)), ("broadcast", (2, 1, 3, 4), (3, 4, 2)),
                   ("inner_0", (2, 3, 0), (2, 0, 2)), ("rows_0", (0, 3), (3, 2))]:
    case(f"matmul_{name}", torch.matmul, a, b)
case("dot_general", lambda a, b: torch.einsum("bxkyl,lzkb->bxyz", a, b), (2, 3, 2, 2, 3), (3, 2, 2, 2))
case("dot_general_all", lambda a, b: torch.einsum("xy,yx->", a, b), (2, 3), (3, 2))
case("dot_general_outer", lambda a, b: torch.einsum("x,y->xy", a, b), (2,), (3,))


# ---- convolution
def conv(dims, stride=1, low=0, high=0, dilation=1, groups=1):
    f = [F.conv1d, F.conv2d, F.conv3d][dims - 1]
    each = lambda v: list(v) if isinstance(v, tuple) else [v] * dims
    pads = [p for pair in reversed(list(zip(each(low), each(high)))) for p in pair]
    return lambda x, w: f(F.pad(x, pads), w, stride=each(stride), dilation=each(dilation), groups=groups)


case("conv1d", conv(1), (2, 3, 6), (4, 3, 3))
case("conv1d_all", conv(1, 2, 1, 2, 2, 2), (2, 4, 7), (4, 2, 3))
case("conv2d", conv(2), (2, 2, 4, 5), (3, 2, 3, 2))
case("conv2d_strided", conv(2, (2, 3), (1, 0), (0, 2)), (1, 2, 6, 7), (2, 2, 3, 3))
case("conv2d_dilated", conv(2, 1, 1, 1, (2, 1)), (1, 2, 5, 4), (2, 2, 3, 2))
case("conv2d_depthwise", conv(2, 1, 1, 1, 1, 3), (1, 3, 4, 4), (6, 1, 3, 3))
case("conv2d_past_the_end", conv(2, 2), (1, 1, 6, 6), (1, 1, 3, 3))
case("conv3d", conv(3, (1, 2, 1), 1, (1, 0, 1), 1, 2), (1, 2, 3, 4, 3), (2, 1, 2, 3, 2))
case("conv_batch_0", conv(2), (0, 2, 4, 4), (3, 2, 3, 3))


def conv_transpose(dims, **how):
    f = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][dims - 1]
    return lambda x, w: f(x, w, **how)


case("conv_transpose1d", conv_transpose(1), (2, 3, 4), (3, 2, 3))
case("conv_transpose2d", conv_transpose(2, stride=(2, 3), padding=1, output_padding=(1, 2), dilation=(1, 2)), (1, 2, 3, 2), (2, 3, 3, 2))
case("conv_transpose2d_groups", conv_transpose(2, stride=2, groups=2), (1, 4, 2, 3), (4, 1, 2, 2))
case("conv_transpose3d", conv_transpose(3, stride=(1, 2, 1), padding=(0, 1, 0)), (1, 1, 2, 2, 2), (1, 2, 2, 3, 1))
# the gradients as functions of their own
case("conv_backward_input", lambda dy, w: torch.nn.grad.conv2d_input((1, 2, 5, 6), w, dy, stride=2, padding=1), (1, 3, 3, 4), (3, 2, 3, 2))
case("conv_backward_weight", lambda x, dy: torch.nn.grad.conv2d_weight(x, (3, 2, 3, 2), dy, stride=2, padding=1), (1, 2, 5, 6), (1, 3, 3, 4))

# ---- softmax
inf = np.inf
rows = np.array([[0.5, -inf, 2, -1], [129, 130, -1000, 0], [2.0**100, 2.0**100, -2.0**100, 0], [-32768, -32768, -33024, -inf]])
for name, f in [("softmax", torch.softmax), ("log_softmax", torch.log_softmax), ("logsumexp", torch.logsumexp)]:
    case(name, lambda x, f=f: f(x, -1), (2, 3, 4))
    case(f"{name}_axis", lambda x, f=f: f(x, 1), (2, 3, 4))
    # (PyTorch's own gradient of logsumexp is exp(x - y), which is wrong where log 2 is lost beside 2^100)
    case(f"{name}_rows", lambda x, f=f: f(x, -1), rows if name != "logsumexp" else rows[[0, 1, 3]])
    case(f"{name}_infinite", lambda x, f=f: f(x, -1), np.array([[-inf, -inf], [inf, 1.0], [np.nan, 1]]), gradient=False)

# ---- norms
case("layer_norm", lambda x, g, b: F.layer_norm(x, (4,), g, b, 1e-5), (3, 4), (4,), (4,))
case("layer_norm_axes", lambda x, g, b: F.layer_norm(x, (3, 4), g, b, 1e-3), (2, 3, 4), (3, 4), (3, 4))
case("layer_norm_plain", lambda x: F.layer_norm(x, (4,)), (3, 4))
case("rms_norm", lambda x, g: F.rms_norm(x, (4,), g, 1e-5), (2, 3, 4), (4,))
case("rms_norm_plain", lambda x: F.rms_norm(x, (4,), None, 1e-2), (3, 4))
case("group_norm", lambda x, g, b: F.group_norm(x, 2, g, b, 1e-5), (2, 4, 3, 2), (4,), (4,))
case("instance_norm", lambda x: F.group_norm(x, 4), (2, 4, 5))
case("batch_norm", lambda x, g, b, m, v: F.batch_norm(x, m.detach(), v.detach(), g, b, eps=1e-5), (2, 3, 2, 2), (3,), (3,), (3,), np.array([0.5, 1.25, 2]))
case("batch_norm_nhwc", lambda x, g, b, m, v: F.batch_norm(x.movedim(-1, 1), m.detach(), v.detach(), g, b, eps=1e-3).movedim(1, -1), (2, 2, 2, 3), (3,), (3,), (3,),
     np.array([0.5, 1.25, 2]))

# ---- cross entropy
labels = np.array([2, 0, 4])
case("cross_entropy", F.cross_entropy, (3, 5), labels)
case("cross_entropy_each", lambda x, t: F.cross_entropy(x.movedim(-1, 1), t, reduction="none"), (2, 3, 5), np.array([[1, 4, 0], [2, 2, 3]]))
case("cross_entropy_sum", lambda x, t: F.cross_entropy(x, t, reduction="sum"), (3, 5), labels)
case("cross_entropy_ignored", lambda x, t: F.cross_entropy(x, t, ignore_index=4), (3, 5), labels)


# ---- rope: complex numbers turned by their angle
def rope(base, dims, interleaved, spread):
    def f(x, positions):
        head, rest = x[..., :dims], x[..., dims:]
        pairs = head.unflatten(-1, (-1, 2)) if interleaved else head.unflatten(-1, (2, -1)).transpose(-1, -2)
        angle = spread(positions)[..., None] * base ** (-torch.arange(dims // 2) * 2 / dims)
        turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.polar(torch.ones_like(angle), angle))
        return torch.cat([turned.flatten(-2) if interleaved else turned.transpose(-1, -2).flatten(-2), rest], -1)
    return f


place = np.array([0, 1, 7])
case("rope_half", rope(10000, 4, False, lambda p: p), (2, 2, 3, 4), place)
case("rope_interleaved", rope(10000, 4, True, lambda p: p), (2, 2, 3, 4), place)
case("rope_partial", rope(500, 4, False, lambda p: p), (1, 2, 3, 6), place)
case("rope_partial_interleaved", rope(500, 2, True, lambda p: p), (1, 2, 3, 6), place)
case("rope_batch", rope(10000, 4, False, lambda p: p[:, None]), (2, 2, 3, 4), np.array([[0, 1, 2], [5, 6, -1]]))


# ---- attention
def attention(mask=None, bias=None, **how):
    def f(q, k, v, m=None):
        allowed = m if mask == "custom" else mask
        return F.scaled_dot_product_attention(q, k, v, m if bias else allowed, **how)
    return f


def capped(q, k, v):
    scores = torch.tanh(q @ k.mT / q.shape[-1] ** 0.5 / 0.7) * 0.7
    return torch.softmax(scores, -1) @ v


q, k, v = (2, 2, 3, 4), (2, 2, 5, 4), (2, 2, 5, 3)
at = torch.arange(3)[:, None] + 2
before = torch.arange(5)[None] <= at
case("attention", attention(), q, k, v)
case("attention_scale", attention(scale=0.3), q, k, v)
case("attention_causal", attention(before), q, k, v)
case("attention_window", attention(before & (torch.arange(5)[None] > at - 2)), q, k, v)
case("attention_softcap", capped, q, k, v)
case("attention_custom", attention("custom"), q, k, v, np.array([[1, 0, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]], dtype=bool))
case("attention_bias", attention(bias=True), q, k, v, (2, 2, 3, 5))
case("attention_bias_row", attention(bias=True), q, k, v, (2, 1, 1, 5))
case("attention_hidden_by_bias", attention(bias=True), q, k, v, np.array([[0, -inf, 1, -inf, 0.5]]))
case("attention_grouped", attention(before, enable_gqa=True), (2, 4, 3, 4), k, v)
case("attention_grouped_mask", attention("custom", enable_gqa=True), (1, 4, 2, 4), (1, 2, 3, 4), (1, 2, 3, 3),
     np.array([1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1, 1, 1, 0, 1, 0], dtype=bool).reshape(1, 4, 2, 3))
length = lambda *n: torch.stack([torch.arange(5)[None].expand(3, 5) < i for i in n])[:, None]
case("attention_lengths", attention(length(2, 5)), q, k, v)
ends = torch.tensor([4, 5])[:, None, None, None]
case("attention_lengths_causal", attention(torch.arange(5)[None] <= (ends - 3 + torch.arange(3)[:, None])), q, k, v)

pathlib.Path(__file__).with_name("golden.inc").write_text(
    f"// Written by make_golden.py with torch {torch.__version__.split('+')[0]}.\n" + "".join(OUT))
