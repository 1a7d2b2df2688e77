"""The bitnet transformer in eager PyTorch: what RLX's training speed is measured beside."""

import torch
import torch.nn.functional as F
from torch import nn


class BitLinear(nn.Linear):
    """Ternary weights per tensor and int8 activations per row, straight-through."""

    def __init__(self, inputs, outputs, quantized):
        super().__init__(inputs, outputs, bias=False)
        self.quantized = quantized

    def forward(self, x):
        w = self.weight
        if self.quantized:
            scale = w.abs().mean().clamp(min=1e-5)
            w = w + ((w / scale).round().clamp(-1, 1) * scale - w).detach()
            scale = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5)
            x = x + ((x * scale).round().clamp(-128, 127) / scale - x).detach()
        return F.linear(x, w)


class Block(nn.Module):
    def __init__(self, c, quantized):
        super().__init__()
        d, ffn = c["embedding_length"], c["feed_forward_length"]
        self.heads, self.head = c["head_count"], d // c["head_count"]
        kv = c["head_count_kv"] * self.head
        linear = lambda i, o: BitLinear(i, o, quantized)
        self.q, self.k, self.v, self.o = linear(d, d), linear(d, kv), linear(d, kv), linear(d, d)
        self.gate, self.up, self.down = linear(d, ffn), linear(d, ffn), linear(ffn, d)
        norm = lambda n: nn.RMSNorm(n, eps=c["rms_norm_epsilon"])
        self.attn_norm, self.attn_sub_norm, self.ffn_norm, self.ffn_sub_norm = norm(d), norm(d), norm(d), norm(ffn)

    def forward(self, x, cos, sin):
        b, t, d = x.shape
        h = self.attn_norm(x)
        split = lambda y: y.view(b, t, -1, self.head).transpose(1, 2)
        q, k, v = (split(f(h)) for f in (self.q, self.k, self.v))
        q, k = (y * cos + torch.cat((-y[..., self.head // 2:], y[..., : self.head // 2]), -1) * sin for y in (q, k))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=k.shape[1] != q.shape[1])
        x = x + self.o(self.attn_sub_norm(a.transpose(1, 2).reshape(b, t, d)))
        h = self.ffn_norm(x)
        return x + self.down(self.ffn_sub_norm(F.silu(self.gate(h)) * self.up(h)))


class Model(nn.Module):
    def __init__(self, c, quantized):
        super().__init__()
        self.embedding = nn.Embedding(c["vocab_size"], c["embedding_length"])
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(c, quantized) for _ in range(c["block_count"]))
        self.norm = nn.RMSNorm(c["embedding_length"], eps=c["rms_norm_epsilon"])
        head = c["embedding_length"] // c["head_count"]
        angle = torch.arange(c["context_length"])[:, None] * c["rope_freq_base"] ** (-torch.arange(0, head, 2) / head)
        self.cos, self.sin = torch.cat((angle, angle), -1).cos(), torch.cat((angle, angle), -1).sin()

    def forward(self, tokens):
        """The mean cross-entropy of tokens [batch, length + 1]."""
        x, t = self.embedding(tokens[:, :-1]), tokens.shape[1] - 1
        for block in self.blocks:
            x = block(x, self.cos[:t], self.sin[:t])
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def optimizers(model, kind):
    """AdamW for everything, or Muon for the blocks' matrices and AdamW for the rest."""
    matrices = [p for b in model.blocks for p in b.parameters() if p.ndim == 2] if kind == "muon" else []
    chosen = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    made = [torch.optim.AdamW(rest, lr=3e-3, betas=(0.9, 0.95), weight_decay=0)]
    if matrices:
        made.append(torch.optim.Muon(matrices, lr=0.02, weight_decay=0))
    return made
