"""Compares motley's sampler with llama.cpp on one Llama shape, taking turns run by run.

    python llama.py MOTLEY [--batches 1,16] [--threads 1] [--rounds 3] [--quick]

The peer is llama.cpp as llama-cpp-python ships it, driven through its own C interface: random weights of the 135M shape
of `motley bench` in F16, BF16, Q8_0 and Q4_0 (4.5 bits per weight, as NVFP4), written with the gguf package. Both
decode 64 tokens after a prompt of 32, per sequence. Prints one JSON line per case: medians of tokens/s over the rounds.
llama.cpp's Q8_0 and Q4_0 round the activations to 8 bits and multiply integers; motley's fp8 and NVFP4 compute what the
accelerators compute, in fp32 chains: not the same arithmetic.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

LAYERS, WIDTH, HEADS, KV_HEADS, FFN, VOCABULARY = 30, 576, 9, 3, 1536, 49152
PROMPT, DECODED = 32, 64
PEERS = {"bf16": ("F16", "BF16"), "fp8": ("Q8_0",), "nvfp4": ("Q4_0",)}


def write_model(path, kind, layers):
    import gguf
    import numpy as np

    types = gguf.GGMLQuantizationType
    quantization = {"F16": types.F16, "BF16": types.BF16, "Q8_0": types.Q8_0, "Q4_0": types.Q4_0}[kind]
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(8192)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("no_vocab")

    def matrix(name, rows, cols, how=quantization):
        values = random.uniform(-0.02, 0.02, (rows, cols)).astype(np.float32)
        writer.add_tensor(name, gguf.quants.quantize(values, how), raw_dtype=how)

    def ones(name):
        writer.add_tensor(name, np.ones(WIDTH, dtype=np.float32))

    # The tied head stays in 16 bits, as motley keeps it.
    wide = quantization if kind in ("F16", "BF16") else types.F16
    matrix("token_embd.weight", VOCABULARY, WIDTH, wide)
    ones("output_norm.weight")
    for i in range(layers):
        ones(f"blk.{i}.attn_norm.weight")
        ones(f"blk.{i}.ffn_norm.weight")
        matrix(f"blk.{i}.attn_q.weight", WIDTH, WIDTH)
        matrix(f"blk.{i}.attn_k.weight", KV_HEADS * (WIDTH // HEADS), WIDTH)
        matrix(f"blk.{i}.attn_v.weight", KV_HEADS * (WIDTH // HEADS), WIDTH)
        matrix(f"blk.{i}.attn_output.weight", WIDTH, WIDTH)
        matrix(f"blk.{i}.ffn_gate.weight", FFN, WIDTH)
        matrix(f"blk.{i}.ffn_up.weight", FFN, WIDTH)
        matrix(f"blk.{i}.ffn_down.weight", WIDTH, FFN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Peer:
    """One model, with a context for each batch size and number of threads."""

    def __init__(self, path, repack):
        import llama_cpp

        self.api = llama_cpp
        params = llama_cpp.llama_model_default_params()
        params.use_extra_bufts = repack
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise RuntimeError("llama.cpp does not load the model")

    def tokens_per_second(self, batch, threads, decoded):
        api = self.api
        params = api.llama_context_default_params()
        params.n_ctx = batch * (PROMPT + DECODED + 8)
        params.n_batch = params.n_ubatch = max(512, batch * PROMPT)
        params.n_seq_max = batch
        params.n_threads = params.n_threads_batch = threads
        context = api.llama_init_from_model(self.model, params)
        if not context:
            raise RuntimeError("llama.cpp gives no context")
        rows = api.llama_batch_init(max(512, batch * PROMPT), 0, 1)
        try:
            self.fill(rows, [(s, p, (s * 131 + p * 7919) % VOCABULARY, p == PROMPT - 1)
                             for s in range(batch) for p in range(PROMPT)])
            self.decode(context, rows)
            tokens = [self.draw(context, s * PROMPT + PROMPT - 1) for s in range(batch)]
            start = time.perf_counter()
            for step in range(decoded):
                self.fill(rows, [(s, PROMPT + step, tokens[s], True) for s in range(batch)])
                self.decode(context, rows)
                tokens = [self.draw(context, s) for s in range(batch)]
            return batch * decoded / (time.perf_counter() - start)
        finally:
            api.llama_batch_free(rows)
            api.llama_free(context)

    def fill(self, rows, entries):
        rows.n_tokens = len(entries)
        for i, (sequence, position, token, wanted) in enumerate(entries):
            rows.token[i], rows.pos[i], rows.n_seq_id[i] = token, position, 1
            rows.seq_id[i][0], rows.logits[i] = sequence, wanted

    def decode(self, context, rows):
        if self.api.llama_decode(context, rows) != 0:
            raise RuntimeError("llama.cpp cannot decode the batch")

    def draw(self, context, row):
        """The next token from one of the logits: motley samples from all of them within the time that it reports."""
        logits = self.api.llama_get_logits_ith(context, row)
        return int(abs(logits[0]) * 1e6) % VOCABULARY


def survives_repacking(path):
    """Whether llama.cpp decodes this file from its repacked weights, its default, tried in a process of its own: on
    processors that name AMX but do not grant it (some virtual machines) it dies there."""
    code = (f"import sys; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r}); import llama; "
            f"llama.silence(); llama.Peer({path!r}, True).tokens_per_second(1, 1, 1)")
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode == 0


def silence():
    import llama_cpp

    silence.callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
    llama_cpp.llama_log_set(silence.callback, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()


def motley(binary, profile, batches, threads, quick):
    command = [binary, "bench", "sampler", "--shape", "135M", "--profile", profile, "--rows-only", "--json",
               "--batch", ",".join(map(str, batches)), "--threads", str(threads), "--repetitions", "1"]
    out = subprocess.run(command + (["--quick"] if quick else []), capture_output=True, check=True, text=True).stdout
    return {row["batch"]: row["tokens_per_second"] for row in json.loads(out)["rows"]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("motley")
    parser.add_argument("--batches", default="1,16")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--profiles", default="bf16,fp8,nvfp4")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--models", help="folder that keeps the GGUF files; default: a scratch one")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    batches = [int(b) for b in options.batches.split(",")]
    rounds = 1 if options.quick else options.rounds
    decoded = 4 if options.quick else DECODED

    silence()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.models or scratch
        os.makedirs(folder, exist_ok=True)
        for profile in options.profiles.split(","):
            peers, plain = {}, []
            for kind in PEERS[profile]:
                path = os.path.join(folder, f"llama-135m-{kind}.gguf")
                if not os.path.exists(path):
                    write_model(path, kind, LAYERS)
                repack = survives_repacking(path)
                plain += [] if repack else [kind]
                peers[kind] = Peer(path, repack)
            for threads in map(int, options.threads.split(",")):
                found = {}
                for _ in range(rounds):
                    for kind, peer in peers.items():
                        for batch in batches:
                            rate = peer.tokens_per_second(batch, threads, decoded)
                            found.setdefault((kind, batch), []).append(rate)
                    for batch, rate in motley(options.motley, profile, batches, threads, options.quick).items():
                        found.setdefault(("motley", batch), []).append(rate)
                for batch in batches:
                    row = {"profile": profile, "threads": threads, "batch": batch, "rounds": rounds, "not_repacked": plain}
                    for kind in ["motley", *peers]:
                        row[kind] = round(statistics.median(found[kind, batch]), 2)
                    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    sys.exit(main())
