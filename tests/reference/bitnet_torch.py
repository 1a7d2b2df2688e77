"""An independent PyTorch implementation of the language model and its training, from the papers and the formulas in the
documentation: the BitNet b1.58 transformer (f32 or quantisation-aware), AdamW, Muon, clipping and schedules.

    bitnet_torch.py CHECKPOINT BATCHES.npy [--steps 50]

prints the losses of training on the token batches i32 [steps, batch, length + 1] from these weights, as JSON."""

import argparse
import json
import math

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

EPSILON = 1e-5  # the floor of both quantisation scales


def straight_through(x, quantized):
    """The value of `quantized` to the bit, the gradient of x."""
    return quantized.detach() + (x - x.detach())


def ternary(w):
    """Each weight as gamma times -1, 0 or 1, where gamma is the mean magnitude of the matrix."""
    gamma = w.detach().abs().double().mean().float().clamp(min=EPSILON)
    return straight_through(w, (w / gamma).round().clamp(-1, 1) * gamma)


def int8_per_token(x):
    """Each row of the last axis on 256 levels, the largest magnitude at 127."""
    scale = 127 / x.detach().abs().amax(-1, keepdim=True).clamp(min=EPSILON)
    return straight_through(x, (x * scale).round().clamp(-128, 127) / scale)


def rotate(x, base):
    """Rotary position embedding of [batch, heads, time, size] in half-split order."""
    half = x.shape[-1] // 2
    frequency = base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * frequency
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Bitnet:
    """The model over a dict of weights in [out, in] layout, named as in GGUF."""

    def __init__(self, config, weights):
        self.config = config
        self.weights = {name: w.clone().requires_grad_() for name, w in weights.items()}
        self.is_quantized = config.get("precision", "bitnet") == "bitnet"

    def linear(self, x, name):
        w = self.weights[name + ".weight"]
        return F.linear(int8_per_token(x), ternary(w)) if self.is_quantized else F.linear(x, w)

    def norm(self, x, name):
        w = self.weights[name + ".weight"]
        return F.rms_norm(x, w.shape, w, self.config["rms_norm_epsilon"])

    def attention(self, x, block):
        batch, time, _ = x.shape
        def heads(name, count):
            return self.linear(x, block + name).view(batch, time, count, -1).transpose(1, 2)
        config = self.config
        q = rotate(heads("attn_q", config["head_count"]), config["rope_freq_base"])
        k = rotate(heads("attn_k", config["head_count_kv"]), config["rope_freq_base"])
        v = heads("attn_v", config["head_count_kv"])
        repeats = config["head_count"] // config["head_count_kv"]
        if repeats > 1:
            k, v = k.repeat_interleave(repeats, 1), v.repeat_interleave(repeats, 1)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.transpose(1, 2).reshape(batch, time, -1)

    def feed_forward(self, x, block):
        gate, up = self.linear(x, block + "ffn_gate"), self.linear(x, block + "ffn_up")
        act = F.relu(gate).square() if self.config.get("activation", "silu") == "relu2" else F.silu(gate)
        return self.linear(self.norm(act * up, block + "ffn_sub_norm"), block + "ffn_down")

    def logits(self, tokens, layers=None):
        """[batch, time, vocab]; the stream after each block is appended to `layers`."""
        h = F.embedding(tokens, self.weights["token_embd.weight"])
        for i in range(self.config["block_count"]):
            block = f"blk.{i}."
            attn = self.attention(self.norm(h, block + "attn_norm"), block)
            h = h + self.linear(self.norm(attn, block + "attn_sub_norm"), block + "attn_output")
            h = h + self.feed_forward(self.norm(h, block + "ffn_norm"), block)
            if layers is not None:
                layers.append(h)
        return F.linear(self.norm(h, "output_norm"), self.weights["token_embd.weight"])

    def loss(self, batch):
        """Mean cross entropy in nats of tokens [batch, length + 1], each given those before it."""
        batch = batch.long()
        return F.cross_entropy(self.logits(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def newton_schulz(u, steps=5, epsilon=1e-7):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = u / u.norm().clamp(min=epsilon)
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum with orthogonalised updates, Newton-Schulz in f32, for weights in [out, in] layout."""

    def __init__(self, params, lr, momentum=0.95, weight_decay=0.0, scale="original"):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "scale": scale})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            beta, lr = group["momentum"], group["lr"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                m.mul_(beta).add_(p.grad, alpha=1 - beta)
                update = newton_schulz((1 - beta) * p.grad + beta * m)
                out, inner = p.shape
                scale = {"original": math.sqrt(max(1, out / inner)), "match_rms_adamw": 0.2 * math.sqrt(max(out, inner)), "none": 1}
                p.mul_(1 - lr * group["weight_decay"]).add_(update, alpha=-lr * scale[group["scale"]])


def schedule(config, step, steps):
    """The parts of the full learning rate and weight decay at `step`, counted from 0: a linear warm-up, then constant,
    linear or cosine to 0, or BitNet's two stages, where rate and decay drop halfway."""
    warmup, kind = config["warmup_steps"], config["schedule"]
    done = min(1.0, max(0, step - warmup) / max(1, steps - warmup))
    second = kind == "bitnet" and 2 * step >= steps
    rate = {"constant": 1.0, "linear": 1 - done, "cosine": 0.5 + 0.5 * math.cos(math.pi * done),
            "bitnet": (1 - done) * (2 / 3 if second else 1)}[kind]
    return (step + 1) / (warmup + 1) if step < warmup else rate, 0.0 if second else 1.0


def make_optimizers(config, model):
    """Muon for the 2-D weights of the blocks and AdamW for the rest, or AdamW for all. Only those 2-D weights decay. Each
    param group keeps its full learning rate and weight decay."""
    blocks = [w for name, w in model.weights.items() if name.startswith("blk.") and w.ndim == 2]
    rest = [w for name, w in model.weights.items() if not (name.startswith("blk.") and w.ndim == 2)]
    by_muon = config["optimizer"] == "muon"
    groups = [{"params": rest, "weight_decay": 0.0}]
    if not by_muon:
        groups.append({"params": blocks, "weight_decay": config["weight_decay"]})
    out = [torch.optim.AdamW(groups, lr=config["learning_rate"], betas=(config["beta1"], config["beta2"]), eps=config["epsilon"])]
    if by_muon:
        out.append(Muon(blocks, config["muon_learning_rate"], config["momentum"], config["weight_decay"], config["muon_scale"]))
    for optimizer in out:
        for group in optimizer.param_groups:
            group["full"] = group["lr"], group["weight_decay"]
    return out


def train(config, model, batches, steps, total_steps=None, on_step=None):
    """The losses of `steps` steps of a run of `total_steps`."""
    optimizers = make_optimizers(config, model)
    losses = []
    for step in range(steps):
        for w in model.weights.values():
            w.grad = None
        loss = model.loss(torch.from_numpy(batches[step]))
        loss.backward()
        if config["clip_norm"] > 0:
            torch.nn.utils.clip_grad_norm_(model.weights.values(), config["clip_norm"])
        rate, decay = schedule(config, step, total_steps or steps)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"], group["weight_decay"] = group["full"][0] * rate, group["full"][1] * decay
            optimizer.step()
        losses.append(loss.item())
        if on_step:
            on_step(step, loss.item())
    return losses


def load_checkpoint(folder):
    """The config and the weights of a checkpoint that `rlx` wrote."""
    with open(f"{folder}/state.json") as file:
        config = json.load(file)["config"]
    return config, load_file(f"{folder}/weights.safetensors")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", help="a folder with weights.safetensors and state.json")
    parser.add_argument("batches")
    parser.add_argument("--steps", type=int, default=50)
    args = parser.parse_args()
    torch.set_num_threads(2)
    config, weights = load_checkpoint(args.checkpoint)
    batches = np.load(args.batches)
    losses = train(config, Bitnet(config, weights), batches, min(args.steps, len(batches)), config["steps"])
    print(json.dumps({"losses": losses}))


if __name__ == "__main__":
    main()
