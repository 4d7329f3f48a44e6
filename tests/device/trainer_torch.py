#!/usr/bin/env python3
"""The training step of bench_trainer.cpp in PyTorch: trainer_torch.py cuda:0 FILE

Qwen3-0.6B's sizes, random weights, 4 x 1024 tokens: forward, cross-entropy on all tokens, backward, fused AdamW; bf16 is
autocast over fp32 parameters, as motley's trainer keeps fp32 masters. Eager, and under torch.compile where that works.
Prints tokens/s; FILE gets one JSON line per row, as device_bench writes them.
"""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_DIM, FFN = 151936, 28, 1024, 16, 8, 128, 3072
SEQUENCES, LENGTH, STEPS = 4, 1024, 5


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def rotate(x, cos, sin):
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH, eps=1e-6), nn.RMSNorm(WIDTH, eps=1e-6)
        self.q_norm, self.k_norm = nn.RMSNorm(HEAD_DIM, eps=1e-6), nn.RMSNorm(HEAD_DIM, eps=1e-6)
        self.q, self.o = linear(WIDTH, HEADS * HEAD_DIM), linear(HEADS * HEAD_DIM, WIDTH)
        self.k, self.v = linear(WIDTH, KV_HEADS * HEAD_DIM), linear(WIDTH, KV_HEADS * HEAD_DIM)
        self.gate, self.up, self.down = linear(WIDTH, FFN), linear(WIDTH, FFN), linear(FFN, WIDTH)

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape

        def heads(y):
            return y.view(batch, length, -1, HEAD_DIM).transpose(1, 2)

        h = self.norm1(x)
        v = heads(self.v(h))
        q = rotate(self.q_norm(heads(self.q(h))), cos, sin).to(v.dtype)
        k = rotate(self.k_norm(heads(self.k(h))), cos, sin).to(v.dtype)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, HEADS * HEAD_DIM))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-6)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.uniform_(parameter, -0.02, 0.02)

    def forward(self, ids, targets, cos, sin):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        x = self.norm(x)[:, :-1].reshape(-1, WIDTH)
        return F.cross_entropy(F.linear(x, self.embed.weight).float(), targets)


def seconds_of_step(device, compiled):
    torch.manual_seed(1)
    with torch.device(device):
        model = Decoder()
        ids = torch.randint(0, VOCABULARY, (SEQUENCES, LENGTH))
        frequency = 1e6 ** (-torch.arange(0, HEAD_DIM, 2).double() / HEAD_DIM)
        angles = torch.outer(torch.arange(LENGTH).double(), frequency).repeat(1, 2)
        cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
    targets = ids[:, 1:].reshape(-1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    forward = torch.compile(model) if compiled else model

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = forward(ids, targets, cos, sin)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(3):
        step()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / STEPS


def main(device, file):
    torch.cuda.set_device(device)
    with open(file, "w", encoding="utf-8") as out:
        for name, compiled in (("eager", False), ("compiled", True)):
            try:
                seconds = seconds_of_step(device, compiled)
            except Exception as error:  # torch.compile needs a compiler that the machine may lack
                if not compiled:
                    raise
                print(f"PyTorch {torch.__version__}, {name}: {type(error).__name__}")
                continue
            rate = SEQUENCES * LENGTH / seconds
            print(f"PyTorch {torch.__version__}, {name}, bf16, {SEQUENCES} x {LENGTH}: {rate:.1f} tokens/s", flush=True)
            row = {"group": "torch", "name": f"{name}, bf16, {SEQUENCES} x {LENGTH}", "seconds": seconds}
            out.write(json.dumps({**row, "tokens_per_second": rate}) + "\n")
            out.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
