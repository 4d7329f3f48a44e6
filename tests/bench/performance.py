"""Measures what docs/performance.md reports, and writes its tables and plot anew.

    python3 tests/bench/performance.py BUILD_FOLDER [--peers VENV] [--only PART,...] [--data FOLDER] [--prefix COMMAND]

BUILD_FOLDER holds motley, products_bench and trainer_bench (the bench preset). Each part is measured by short commands
and kept as JSON in the data folder, so that parts can be measured again one by one; a part without data leaves its
tables in the document as they are. --peers: the Python that tests/bench/peers/venv.sh made. --prefix goes before each
command that measures, as in "taskset -c 0". `--only none` renders alone.
"""

import argparse
import json
import math
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"
PLOT = ROOT / "docs" / "cost_per_token.svg"
GROUPS = ("attention", "rows", "head", "quantizers", "optimizer", "sampling")
CONTEXTS, BATCHES, CONTEXT_SHAPE = (1024, 4096, 16384, 65536), (1, 16, 64), "25M"
STORED = ("bf16", "fp16", "fp8", "mxfp8", "mxfp4", "nvfp4")


class Measure:
    def __init__(self, options):
        self.build = pathlib.Path(options.build).resolve()
        self.peers, self.prefix = options.peers, options.prefix.split()
        self.data = pathlib.Path(options.data or self.build / "performance")
        self.data.mkdir(parents=True, exist_ok=True)

    def call(self, *command):
        words = self.prefix + [str(word) for word in command]
        print("performance:", " ".join(words), file=sys.stderr, flush=True)
        return subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout

    def motley(self, *words):
        return json.loads(self.call(self.build / "motley", "bench", *words, "--json"))

    def save(self, name, value):
        (self.data / f"{name}.json").write_text(json.dumps(value))

    def load(self, name):
        file = self.data / f"{name}.json"
        return json.loads(file.read_text()) if file.exists() else None

    def products(self):
        for threads in (1, 2):
            found = json.loads(self.call(self.build / "products_bench", "--threads", threads, "--json"))
            self.save(f"products{threads}", found)
            if not found["ceilings"]["two_cores"]:
                break

    def kernels(self):
        for group in GROUPS:
            self.save(f"kernels-{group}", self.motley("kernels", "--only", group))

    def sampler(self):
        for shape in ("1M", "25M", "135M"):
            self.save(f"sampler-{shape}", self.motley("sampler", "--shape", shape, "--repetitions", 3))

    def context(self):
        for context in CONTEXTS:
            words = ("--shape", CONTEXT_SHAPE, "--profile", "bf16", "--context", context, "--repetitions", 3)
            self.save(f"context-{context}", self.motley("sampler", *words, "--batch", ",".join(map(str, BATCHES))))

    def trainer(self):
        self.save("trainer", self.motley("trainer", "--repetitions", 3))

    def run(self):
        self.save("run", self.motley("run", "experiments/quickstart.toml"))

    def torch(self):
        rows = []
        for model in ("1M", "25M", "135M"):
            for dtype in ("fp32", "bf16"):
                out = self.call(f"{self.peers}/bin/python", ROOT / "tests/bench/peers/trainer_torch.py",
                                self.build / "trainer_bench", "--models", model, "--dtypes", dtype)
                rows += [json.loads(line) for line in out.splitlines()]
        self.save("torch", rows)

    def llama(self):
        rows = []
        for threads in (1, 2):
            for profile in ("bf16", "fp8", "nvfp4"):
                out = self.call(f"{self.peers}/bin/python", ROOT / "tests/bench/peers/llama.py",
                                self.build / "motley", "--profiles", profile, "--threads", threads,
                                "--models", self.data / "models")
                rows += [json.loads(line) for line in out.splitlines()]
        self.save("llama", rows)


PARTS = ("products", "kernels", "sampler", "context", "trainer", "run")
PEER_PARTS = ("torch", "llama")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def percent(share):
    return "-" if share is None else f"{100 * share:.0f} %"


def number(value, digits=1):
    return "-" if value is None else f"{value:,.{digits}f}"


def rate(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def duration(seconds):
    for unit, factor in (("s", 1), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1 or unit == "µs":
            return f"{seconds * factor:.3g} {unit}"


def ceilings_table(measured):
    ceilings = measured["ceilings"]
    rows = [(c["threads"], number(c["gflops"], 0), number(c["read_gigabytes_per_second"])) for c in ceilings["by_threads"]]
    text = table(("threads", "multiply-adds, GFLOP/s", "read bandwidth, GB/s"), rows)
    machine, build = measured["machine"], measured["build"]
    cores = "two real cores" if ceilings["two_cores"] else "one core shared, so that rows of two threads do not count"
    return (f"{text}\n\n{machine['processor']}, {machine['cores']} cores, {machine['instruction_set']} as Highway calls "
            f"it, last-level cache {machine['last_level_cache_bytes'] / 2**20:.0f} MiB as the system tells it; "
            f"GCC {build['compiler']}; OpenBLAS's kernels for {measured['openblas']}. Two threads at once do {ceilings['cores_in_pair']:.2f} times the multiply-adds of "
            f"one: {cores}. Read from {ceilings['footprint_bytes'] / 2**20:.0f} MiB per thread.")


def product_key(row):
    return row["rows"], row.get("gemm", False), row["profile"]


def products_table(measured):
    by_key = {product_key(row): row for row in measured["rows"]}
    rows = []
    for row in measured["rows"]:
        if row["profile"] == "openblas":
            continue
        ours32 = by_key[row["rows"], row.get("gemm", False), "fp32"]
        rows.append((row["name"], number(row["gflops"]), number(row["gigabytes_per_second"]),
                     percent(row["roofline_share"]), number(row["times_openblas"], 2),
                     number(ours32["seconds"]["median"] / row["seconds"]["median"], 2)))
    return table(("product", "GFLOP/s", "GB/s stored", "roofline", "x OpenBLAS fp32", "x our fp32"), rows)


def kernels_table(parts):
    rows = []
    for part in parts:
        for row in part["rows"]:
            rows.append((row["group"], row["name"], duration(row["seconds"]["median"]), number(row.get("gflops")),
                         number(row.get("gigabytes_per_second")), percent(row.get("roofline_share"))))
    return table(("group", "kernel", "median", "GFLOP/s", "GB/s", "roofline"), rows)


def sampler_table(parts):
    rates = {}
    for part in parts:
        for row in part["rows"]:
            rates.setdefault((row["shape"], row["profile"]), {})[row["batch"]] = row["tokens_per_second"]
    batches = sorted({batch for row in rates.values() for batch in row})
    rows = [(*key, *(rate(row[batch]) for batch in batches)) for key, row in rates.items()]
    return table(("shape", "profile", *(f"batch {batch}" for batch in batches)), rows)


def trainer_table(measured):
    rows = [(row["shape"], row["profile"], rate(row["tokens_per_second"]), number(row["gflops"], 0),
             f"{row['peak_bytes'] / 2**20:,.0f}") for row in measured["rows"]]
    return table(("shape", "profile", "tokens/s", "GFLOP/s (6 x parameters x tokens)", "peak MiB"), rows)


def torch_table(rows):
    modes = [mode for mode in ("eager", "compiled") if mode in rows[0]]
    cells = [(row["model"], row["dtype"], rate(row["motley"]["tokens_per_s"]),
              *(rate(row[mode]["tokens_per_s"]) for mode in modes), number(row["speed_ratio"], 2),
              number(row["motley"]["peak_mib"], 0), *(number(row[mode]["peak_mib"], 0) for mode in modes),
              number(row["memory_ratio"], 2)) for row in rows]
    return table(("shape", "type", "motley tokens/s", *(f"PyTorch {mode}" for mode in modes), "ratio", "motley peak MiB",
                  *(f"{mode} MiB" for mode in modes), "ratio"), cells)


def llama_table(rows):
    kinds = ("F16", "BF16", "Q8_0", "Q4_0")
    cells = [(row["profile"], row["threads"], row["batch"], rate(row["motley"]),
              *(rate(row[kind]) if kind in row else "" for kind in kinds)) for row in rows]
    return table(("profile", "threads", "batch", "motley tokens/s", *(f"llama.cpp {kind}" for kind in kinds)), cells)


def context_costs(parts):
    return {(row["context"], row["batch"]): 1e6 * row["seconds"]["median"] / row["batch"]
            for part in parts for row in part["rows"]}


def context_table(parts):
    costs = context_costs(parts)
    batches = sorted({batch for _, batch in costs})
    rows = [(f"{context:,}", *(rate(costs[context, batch]) if (context, batch) in costs else "-" for batch in batches))
            for context in sorted({context for context, _ in costs})]
    return table(("context", *(f"batch {batch}" for batch in batches)), rows)


def context_plot(parts):
    costs = context_costs(parts)
    contexts = sorted({context for context, _ in costs})
    width, height, left, right, top, bottom = 640, 360, 64, 96, 24, 44
    low = 10 ** math.floor(math.log10(min(costs.values())))
    high = 10 ** math.ceil(math.log10(max(costs.values())))
    span = math.log2(contexts[-1] / contexts[0]) or 1

    def x(context):
        return left + (width - left - right) * math.log2(context / contexts[0]) / span

    def y(cost):
        return top + (height - top - bottom) * (1 - math.log10(cost / low) / math.log10(high / low))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
           f'font-size="12">', f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{left}" y="16">microseconds per token against context ({CONTEXT_SHAPE}, bf16, one thread)</text>']
    level = low
    while level <= high:
        out.append(f'<line x1="{left}" x2="{width - right}" y1="{y(level):.1f}" y2="{y(level):.1f}" stroke="#ddd"/>'
                   f'<text x="{left - 6}" y="{y(level) + 4:.1f}" text-anchor="end">{level:,.0f}</text>')
        level *= 10
    for context in contexts:
        out.append(f'<text x="{x(context):.1f}" y="{height - bottom + 18}" text-anchor="middle">{context // 1024}K</text>')
    for batch, color in zip(sorted({batch for _, batch in costs}), ("#1b6ca8", "#c8553d", "#3a7d44", "#6b4e9b")):
        points = [(x(c), y(costs[c, batch])) for c in contexts if (c, batch) in costs]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        out.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        out += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{color}"/>' for a, b in points]
        out.append(f'<text x="{points[-1][0] + 8:.1f}" y="{points[-1][1] + 4:.1f}" fill="{color}">batch {batch}</text>')
    return "\n".join(out + ["</svg>", ""])


def run_table(measured):
    row = measured["rows"][0]
    return table(("", "value"), [
        ("wall time, cold start", f"{row['wall_seconds']:.1f} s"),
        ("before the first update (with the warm start)", f"{row['before_first_update_seconds']:.1f} s"),
        ("at least one thread on the model", f"{row['model_compute_seconds']:.1f} s"),
        ("outside model compute", f"{100 * row['outside_model_compute_share']:.1f} % of wall time"),
        ("compute threads busy", f"{100 * row['busy_share']:.1f} % of their time"),
        ("idle while a session or a batch was ready", f"{100 * row['starved_share']:.2f} % of their time"),
        ("the learner trains, waits, evaluates",
         f"{row['train_seconds']:.1f}, {row['wait_seconds']:.1f}, {row['eval_seconds']:.1f} s"),
        ("peak memory", f"{row['peak_bytes'] / 2**20:.0f} MiB")])


def verdict(met):
    return "met" if met else "**not met**"


def product_targets(measured, threads):
    rows = {product_key(row): row for row in measured["rows"]}
    times = lambda key: rows[key]["seconds"]["median"]
    thread = f"{threads} thread" + ("s" if threads > 1 else "")
    worst = min(row["times_openblas"] for (_, gemm, profile), row in rows.items() if gemm and profile == "fp32")
    out = [(f"fp32 GEMM, 512 to 2048 square, {thread}", "0.95 x OpenBLAS", f"{worst:.2f} x (the worst)",
            verdict(worst >= 0.95))]
    if threads > 1:
        return out
    if (1, False, "fp32") in rows:
        first = rows[1, False, "fp32"]["times_openblas"]
        out.append(("1 row, fp32", "1.0 x sgemv", f"{first:.2f} x", verdict(first >= 1.0)))
        for profile, target in (("bf16", 1.8), ("fp8", 3.0), ("nvfp4", 4.0)):
            ratio = times((1, False, "fp32")) / times((1, False, profile))
            out.append((f"1 row, {profile}", f"{target} x our fp32", f"{ratio:.2f} x", verdict(ratio >= target)))
    ceiling = measured["ceilings"]["by_threads"][0]
    for count in (4, 16, 64):
        for profile in ("fp32", *STORED):
            row = rows.get((count, False, profile))
            if row is None:
                continue
            share = row["roofline_share"]
            by_bandwidth = row["bytes"] / ceiling["read_gigabytes_per_second"] > row["flop"] / ceiling["gflops"]
            if profile == "fp32":
                ratio, target, of = row["times_openblas"], 0.95, "x sgemm"
            else:
                ratio = times((count, False, "fp32")) / times((count, False, profile))
                target, of = (0.6 if count == 4 else 0.85), "x our fp32"
            met = share >= 0.9 if by_bandwidth else ratio >= target
            wanted = "90 % of the bandwidth roofline" if by_bandwidth else f"{target} {of}"
            out.append((f"{count} rows, {profile}", wanted, f"{percent(share)} of the roofline, {ratio:.2f} {of}",
                        verdict(met)))
    for profile, target in (("bf16", 0.75), ("fp8", 0.75), ("nvfp4", 0.5)):
        share = rows[1, False, profile]["roofline_share"]
        out.append((f"batch 1 from weights larger than the last-level cache, {profile}",
                    f"{100 * target:.0f} % of the read bandwidth", percent(share), verdict(share >= target)))
    return out


def torch_targets(rows):
    target = {"1M": 1.5, "25M": 1.1, "135M": 1.0}
    return [(f"trainer step, {row['model'].upper()}, {row['dtype']}",
             f"{target[row['model']]} x PyTorch, no more memory",
             f"{row['speed_ratio']:.2f} x, {row['memory_ratio']:.2f} x the memory",
             verdict(row["speed_ratio"] >= target[row["model"]] and row["memory_ratio"] <= 1.0)) for row in rows]


def llama_targets(rows, two_cores):
    out = []
    for row in rows:
        if row["threads"] > 1 and not two_cores:
            continue
        peers = {kind: row[kind] for kind in ("F16", "BF16", "Q8_0", "Q4_0") if kind in row}
        kind, best = max(peers.items(), key=lambda item: item[1])
        if row["batch"] > 1 and row["profile"] == "bf16":
            kind, best = "F16", peers["F16"]
        ratio = row["motley"] / best
        judged = row["batch"] == 1 or row["profile"] == "bf16"
        out.append((f"sampler 135M, {row['profile']}, batch {row['batch']}, {row['threads']} thread(s)",
                    f"1.0 x llama.cpp {kind}" if judged else f"reported, llama.cpp {kind}", f"{ratio:.2f} x",
                    verdict(ratio >= 1.0) if judged else "reported"))
    return out


def run_targets(measured):
    row = measured["rows"][0]
    outside, starved = row["outside_model_compute_share"], row["starved_share"]
    return [("quickstart, wall time outside model compute", "under 10 %", f"{100 * outside:.1f} %", verdict(outside < 0.1)),
            ("quickstart, core time idle while work is ready", "under 2 %", f"{100 * starved:.2f} %",
             verdict(starved < 0.02))]


def replace(text, name, body):
    pattern = re.compile(rf"(<!-- begin:{name} -->\n).*?(<!-- end:{name} -->)", re.S)
    if not pattern.search(text):
        raise SystemExit(f"performance: {PAGE} has no section {name}")
    return pattern.sub(lambda match: match[1] + body + "\n" + match[2], text)


def render(measure):
    text = PAGE.read_text()
    products = measure.load("products1")
    pair = measure.load("products2")
    two_cores = bool(products and products["ceilings"]["two_cores"])
    kernels = [part for part in (measure.load(f"kernels-{group}") for group in GROUPS) if part]
    sampler = [part for part in (measure.load(f"sampler-{shape}") for shape in ("1M", "25M", "135M")) if part]
    context = [part for part in (measure.load(f"context-{context}") for context in CONTEXTS) if part]
    trainer, run = measure.load("trainer"), measure.load("run")
    torch, llama = measure.load("torch"), measure.load("llama")
    sections = {}
    targets = []
    if products:
        sections["ceilings"] = ceilings_table(products)
        sections["products"] = products_table(products)
        targets += product_targets(products, 1)
    if pair and two_cores:
        sections["products2"] = products_table(pair)
        targets += product_targets(pair, 2)
    elif products:
        sections["products2"] = "Not measured: the two threads of this machine shared a core (see the ceilings)."
    if kernels:
        sections["kernels"] = kernels_table(kernels)
    if sampler:
        sections["sampler"] = sampler_table(sampler)
    if context:
        sections["context"] = context_table(context) + f"\n\n![cost per token]({PLOT.name})"
        PLOT.write_text(context_plot(context))
    if trainer:
        sections["trainer"] = trainer_table(trainer)
    if torch:
        sections["torch"] = torch_table(torch)
        targets += torch_targets(torch)
    if llama:
        sections["llama"] = llama_table(llama)
        targets += llama_targets(llama, two_cores)
    if run:
        sections["run"] = run_table(run)
        targets += run_targets(run)
    for name, part in (("products", products), ("trainer step against PyTorch", torch),
                       ("sampler against llama.cpp", llama), ("quickstart", run)):
        if not part:
            targets.append((name, "", "not measured", ""))
    sections["targets"] = table(("what", "target", "measured", ""), targets)
    for name, body in sections.items():
        text = replace(text, name, body)
    PAGE.write_text(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--peers")
    parser.add_argument("--only", default="")
    parser.add_argument("--data")
    parser.add_argument("--prefix", default="")
    options = parser.parse_args()
    measure = Measure(options)
    wanted = [part for part in options.only.split(",") if part]
    if not wanted:
        wanted = [*PARTS, *(PEER_PARTS if options.peers else ())]
    for part in wanted:
        if part == "none":
            continue
        if part not in (*PARTS, *PEER_PARTS):
            raise SystemExit(f"performance: no part {part}; there are {', '.join((*PARTS, *PEER_PARTS))}")
        if part in PEER_PARTS and not options.peers:
            raise SystemExit(f"performance: {part} needs --peers")
        getattr(measure, part)()
    render(measure)


if __name__ == "__main__":
    main()
