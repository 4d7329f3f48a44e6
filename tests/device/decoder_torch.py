"""The decoder that motley trains, Llama's or Qwen3's, and its training step in PyTorch: what motley's is timed beside."""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Shape:
    vocabulary: int
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    qk_norm: bool = False
    rope_base: float = 1e4


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def norm(width):
    return nn.RMSNorm(width, eps=1e-6)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.head_dim, width, inner = shape.head_dim, shape.width, shape.heads * shape.head_dim
        self.norm1, self.norm2 = norm(width), norm(width)
        self.q_norm, self.k_norm = (norm(shape.head_dim) if shape.qk_norm else nn.Identity() for _ in range(2))
        self.q, self.o = linear(width, inner), linear(inner, width)
        self.k, self.v = (linear(width, shape.kv_heads * shape.head_dim) for _ in range(2))
        self.gate, self.up, self.down = linear(width, shape.ffn), linear(width, shape.ffn), linear(shape.ffn, width)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape

        def heads(y):
            return y.view(batch, length, -1, self.head_dim).transpose(1, 2)

        h = self.norm1(x)
        v = heads(self.v(h))
        q = rotate(self.q_norm(heads(self.q(h))), cos, sin).to(v.dtype)
        k = rotate(self.k_norm(heads(self.k(h))), cos, sin).to(v.dtype)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    """Random weights; the head is the embedding. The cross-entropy on all tokens."""

    def __init__(self, shape):
        super().__init__()
        self.embed = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = norm(shape.width)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.uniform_(parameter, -0.02, 0.02)

    def forward(self, ids, targets, cos, sin):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        x = self.norm(x)[:, :-1].flatten(0, 1)
        return F.cross_entropy(F.linear(x, self.embed.weight).float(), targets)


def training_step(shape, sequences, length, device, bf16, compiled):
    """A function that does a step of a batch of random tokens (forward, backward, fused AdamW) and returns its loss, and
    the number of parameters. bf16 is autocast over fp32 parameters, as motley's trainer keeps fp32 masters."""
    torch.manual_seed(1)
    with torch.device(device):
        model = Decoder(shape)
        ids = torch.randint(0, shape.vocabulary, (sequences, length))
        frequency = shape.rope_base ** (-torch.arange(0, shape.head_dim, 2).double() / shape.head_dim)
        angles = torch.outer(torch.arange(length).double(), frequency).repeat(1, 2)
    kind = torch.bfloat16 if bf16 else torch.float32
    cos, sin = angles.cos().to(kind), angles.sin().to(kind)
    targets = ids[:, 1:].reshape(-1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    forward = torch.compile(model) if compiled else model

    def step():
        with torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=bf16):
            loss = forward(ids, targets, cos, sin)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss

    return step, sum(parameter.numel() for parameter in model.parameters())
