#!/usr/bin/env python3
"""The training step of bench_trainer.cpp in PyTorch: trainer_torch.py cuda:0 FILE

Qwen3-0.6B's sizes, random weights, 4 x 1024 tokens (decoder_torch.py, which lies beside this file). Eager, and under
torch.compile where that works. Prints tokens/s; FILE gets one JSON line per row, as device_bench writes them.
"""
import json
import sys
import time

import torch
from decoder_torch import Shape, training_step

QWEN3 = Shape(vocabulary=151936, layers=28, width=1024, heads=16, kv_heads=8, head_dim=128, ffn=3072, qk_norm=True,
              rope_base=1e6)
SEQUENCES, LENGTH, STEPS = 4, 1024, 5


def seconds_of_step(device, compiled):
    step, _ = training_step(QWEN3, SEQUENCES, LENGTH, device, True, compiled)
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
