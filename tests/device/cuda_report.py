#!/usr/bin/env python3
"""Registers, shared memory, stack and spills of every CUDA kernel, from what `ptxas -v` said: cuda_report.py LOG...

Writes a Markdown table to stdout. Exit 1 when a kernel spills registers or keeps arrays in local memory.
"""
import re
import subprocess
import sys


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


def main(logs):
    rows = [row for log in logs for row in kernels(log)]
    if not rows:
        sys.exit("cuda_report: no kernel in " + " ".join(logs))
    for row, name in zip(rows, short([row["name"] for row in rows])):
        row["name"] = name
    rows.sort(key=lambda row: (row["name"], row["arch"]))
    print("| kernel | architecture | registers | shared memory of fixed size | stack | spilled bytes |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print("| {name} | {arch} | {registers} | {shared} | {stack} | {spills} |".format(**row))
    bad = [row for row in rows if row["stack"] or row["spills"]]
    for row in bad:
        print(f"cuda_report: {row['name']} on {row['arch']}: {row['stack']} bytes of stack, {row['spills']} spilled",
              file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
