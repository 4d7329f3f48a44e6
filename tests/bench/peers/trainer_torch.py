"""Compares motley's training step with PyTorch's, taking turns step by step on one thread.

    python trainer_torch.py TRAINER_BENCH [--models 1M,25M,135M] [--dtypes fp32,bf16] [--steps 3]

TRAINER_BENCH is the program built from tests/bench/trainer_bench.cpp. The peer is the same Llama shape, batch and step
(forward, cross-entropy on all tokens, backward, fused AdamW): eager, and under torch.compile, each in a process of its
own. bf16 is autocast over fp32 parameters, as motley's trainer keeps fp32 masters. Prints one JSON line per case:
medians of tokens/s, and the peak of resident memory less what the process held before the model was made. In a
compiled process that peak counts the compiler's own memory, so the lower one of the two is the peer's.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

SHAPES = {  # vocabulary, layers, width, heads, kv_heads, ffn; the batch as (sequences, length)
    "1M": ((2048, 4, 128, 4, 2, 352), (16, 128)),
    "25M": ((32000, 8, 384, 6, 2, 1024), (4, 256)),
    "135M": ((49152, 30, 576, 9, 3, 1536), (2, 256)),
}


def status_bytes(key):
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    return 0


def make_model(torch, shape):
    import torch.nn.functional as F
    from torch import nn

    vocabulary, layers, width, heads, kv_heads, ffn = shape
    head_dim = width // heads

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-6), nn.RMSNorm(width, eps=1e-6)
            linear = lambda inputs, outputs: nn.Linear(inputs, outputs, bias=False)
            self.q, self.o = linear(width, width), linear(width, width)
            self.k, self.v = linear(width, kv_heads * head_dim), linear(width, kv_heads * head_dim)
            self.gate, self.up, self.down = linear(width, ffn), linear(width, ffn), linear(ffn, width)

        def forward(self, x, cos, sin):
            batch, length, _ = x.shape
            split = lambda y: y.view(batch, length, -1, head_dim).transpose(1, 2)

            def rotate(y):
                a, b = y.chunk(2, dim=-1)
                return y * cos + torch.cat((-b, a), dim=-1) * sin

            h = self.norm1(x)
            q, k, v = rotate(split(self.q(h))), rotate(split(self.k(h))), split(self.v(h))
            y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=True, enable_gqa=True)
            x = x + self.o(y.transpose(1, 2).reshape(batch, length, width))
            h = self.norm2(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    class Llama(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(vocabulary, width)
            self.layers = nn.ModuleList(Layer() for _ in range(layers))
            self.norm = nn.RMSNorm(width, eps=1e-6)
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    nn.init.uniform_(parameter, -0.02, 0.02)

        def forward(self, ids, targets, cos, sin):
            x = self.embed(ids)
            for layer in self.layers:
                x = layer(x, cos, sin)
            x = self.norm(x)[:, :-1].reshape(-1, width)
            return F.cross_entropy(F.linear(x, self.embed.weight).float(), targets)

    return Llama()


def serve(mode, name, dtype):
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(1)
    (torch.randn(64, 64, requires_grad=True) @ torch.randn(64, 64)).sum().backward()  # libraries are loaded
    before = status_bytes("VmRSS")
    shape, (sequences, length) = SHAPES[name]
    model = make_model(torch, shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    ids = torch.randint(0, shape[0], (sequences, length))
    targets = ids[:, 1:].reshape(-1)
    head_dim = shape[2] // shape[3]
    frequency = 10000.0 ** (-torch.arange(0, head_dim, 2).double() / head_dim)
    angles = torch.outer(torch.arange(length).double(), frequency).repeat(1, 2)
    autocast = dtype == "bf16"
    kind = torch.bfloat16 if autocast else torch.float32
    cos, sin = angles.cos().to(kind), angles.sin().to(kind)
    forward = torch.compile(model) if mode == "compiled" else model

    def step():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            loss = forward(ids, targets, cos, sin)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    print(json.dumps({"parameters": sum(p.numel() for p in model.parameters())}), flush=True)
    warm = False
    for _ in sys.stdin:
        start = time.perf_counter()
        loss = step()
        seconds = time.perf_counter() - start
        print(
            json.dumps({"seconds": seconds, "loss": loss, "peak_bytes": status_bytes("VmHWM") - before}), flush=True
        )
        if not warm:
            warm = True
            with open("/proc/self/clear_refs", "w") as peak:
                peak.write("5")


class Worker:
    def __init__(self, command):
        environment = dict(os.environ, OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", TORCHINDUCTOR_COMPILE_THREADS="1")
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.parameters = json.loads(self.process.stdout.readline())["parameters"]
        self.seconds, self.peak, self.loss = [], 0, None

    def step(self, timed):
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline())
        if timed:
            self.seconds.append(reply["seconds"])
            self.peak = reply["peak_bytes"]
        self.loss = reply["loss"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def compare(bench, name, dtype, steps, modes):
    sequences, length = SHAPES[name][1]
    ours = [bench, "--model", name, "--dtype", dtype, "--sequences", str(sequences), "--length", str(length)]
    workers = {"motley": Worker(ours)}
    for mode in modes:
        workers[mode] = Worker([sys.executable, __file__, "--serve", mode, name, dtype])
    for worker in workers.values():
        worker.step(timed=False)
        worker.step(timed=False)
    for _ in range(steps):
        for worker in workers.values():
            worker.step(timed=True)
    row = {"model": name, "dtype": dtype, "tokens": sequences * length, "parameters": workers["motley"].parameters}
    for key, worker in workers.items():
        worker.close()
        row[key] = {
            "tokens_per_s": round(sequences * length / statistics.median(worker.seconds), 1),
            "peak_mib": round(worker.peak / 2**20, 1),
        }
    if modes:
        best = max(row[mode]["tokens_per_s"] for mode in modes)
        row["speed_ratio"] = round(row["motley"]["tokens_per_s"] / best, 3)
        row["memory_ratio"] = round(row["motley"]["peak_mib"] / min(row[mode]["peak_mib"] for mode in modes), 3)
    print(json.dumps(row), flush=True)


def main():
    if sys.argv[1:2] == ["--serve"]:
        return serve(*sys.argv[2:5])
    parser = argparse.ArgumentParser()
    parser.add_argument("bench")
    parser.add_argument("--models", default="1M,25M,135M")
    parser.add_argument("--dtypes", default="fp32,bf16")
    parser.add_argument("--modes", default="eager,compiled")
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    for name in arguments.models.split(","):
        for dtype in arguments.dtypes.split(","):
            compare(arguments.bench, name, dtype, arguments.steps, [m for m in arguments.modes.split(",") if m])


if __name__ == "__main__":
    main()
