#!/usr/bin/env python3
"""Registers and shared memory of every CUDA kernel, from what `ptxas -v` said: cuda_report.py LOG...

Writes a Markdown page to stdout. Exit 1 when a kernel spills registers or keeps arrays in local memory.
"""
import re
import subprocess
import sys

PAGE = """# Registers of the CUDA kernels

Written by `make cuda-report` from what `ptxas -v` says of every kernel: registers of a thread by architecture, and the
bytes of its block's shared memory of fixed size. No kernel spills registers or keeps an array in local memory: the
target fails where one does. A test sees that every kernel is listed, and none that is gone. No GPU has run them yet.

"""


def short(names):
    """Demangled names without return type, arguments and our namespaces."""
    text = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout
    result = []
    for name in text.splitlines():
        name = re.sub(r"\((?:anonymous namespace|[^()]*INTERNAL[^()]*)\)::|_NV_ANON_NAMESPACE::|motley::kernels::(cuda::)?", "", name)
        name = re.sub(r"^void ", "", name)
        depth = 0
        for i, letter in enumerate(name):  # the arguments start at the first ( outside <>
            depth += (letter == "<") - (letter == ">")
            if letter == "(" and depth == 0:
                name = name[:i]
                break
        result.append(name)
    return result


def kernels(log):
    found = []
    for line in open(log, encoding="utf-8"):
        if match := re.search(r"Compiling entry function '(\w+)' for '(\w+)'", line):
            found.append({"name": match[1], "arch": match[2]})
        elif match := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line):
            found[-1].update(stack=int(match[1]), spills=int(match[2]) + int(match[3]))
        elif match := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            found[-1].update(registers=int(match[1]), shared=int(shared[1]) if shared else 0)
    return found


def capability(arch):
    """sm_100a: (100, 'a')."""
    number, letter = re.fullmatch(r"sm_(\d+)(\w*)", arch).groups()
    return int(number), letter


def table(rows):
    """A row for each kernel: shared memory, and registers by architecture."""
    archs = sorted({row["arch"] for row in rows}, key=capability)
    found = {(row["name"], row["arch"]): row for row in rows}
    yield "| kernel | shared memory | " + " | ".join(archs) + " |"
    yield "|---|---|" + "---|" * len(archs)
    for name in sorted({row["name"] for row in rows}):
        own = [found.get((name, arch)) for arch in archs]
        shared = "/".join(str(size) for size in sorted({row["shared"] for row in own if row}))
        yield f"| {name} | {shared} | " + " | ".join(str(row["registers"]) if row else "-" for row in own) + " |"


def main(logs):
    rows = [row for log in logs for row in kernels(log)]
    if not rows:
        sys.exit("cuda_report: no kernel in " + " ".join(logs))
    for row, name in zip(rows, short([row["name"] for row in rows])):
        row["name"] = name
    bad = [row for row in rows if row["stack"] or row["spills"]]
    for row in bad:
        print(f"cuda_report: {row['name']} on {row['arch']}: {row['stack']} bytes of stack, {row['spills']} spilled",
              file=sys.stderr)
    if bad:
        return 1
    print(PAGE + "\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
