"""Compares motley's training step with PyTorch's, taking turns step by step on one thread.

    python trainer_torch.py TRAINER_BENCH [--models 1M,25M,135M] [--dtypes fp32,bf16] [--steps 3]

TRAINER_BENCH is the program built from tests/bench/trainer_bench.cpp. The peer is the same Llama shape, batch and step
(tests/device/decoder_torch.py): eager, and under torch.compile, each in a process of its own. Prints one JSON line per
case: medians of tokens/s, and the peak of resident memory less what the process held before the model was made. In a
compiled process that peak counts the compiler's own memory, so the lower one of the two is the peer's.
"""

import argparse
import json
import os
import pathlib
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


def serve(mode, name, dtype):
    import torch

    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "device"))
    from decoder_torch import Shape, training_step

    torch.set_num_threads(1)
    (torch.randn(64, 64, requires_grad=True) @ torch.randn(64, 64)).sum().backward()  # libraries are loaded
    before = status_bytes("VmRSS")
    (vocabulary, layers, width, heads, kv_heads, ffn), (sequences, length) = SHAPES[name]
    shape = Shape(vocabulary, layers, width, heads, kv_heads, width // heads, ffn)
    step, parameters = training_step(shape, sequences, length, "cpu", dtype == "bf16", mode == "compiled")
    print(json.dumps({"parameters": parameters}), flush=True)
    warm = False
    for _ in sys.stdin:
        start = time.perf_counter()
        loss = step().item()
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
