#!/usr/bin/env bash
# make fuzz: builds the fuzzer and lets it loose on each decoder in turn. What it finds lies in build/fuzz/found, and ends
# the run. fuzz.sh SECONDS [NAME]
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=$1 only=${2:-}
clang=$(command -v clang++ || command -v clang++-14) ||
  { echo 'fuzz: clang++ is not here (no other target needs it): apt-get install clang' >&2; exit 1; }
cmake -S tests/fuzz -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER="$clang" >/dev/null
cmake --build build/fuzz -j "${JOBS:-$(nproc)}"
mkdir -p build/fuzz/found
for corpus in tests/fuzz/corpus/*/; do
  name=$(basename "$corpus")
  [ -z "$only" ] || [ "$only" = "$name" ] || continue
  grown=build/fuzz/corpus/$name
  mkdir -p "$grown"
  words=tests/fuzz/$name.dict
  echo "fuzz: $name, $seconds seconds"
  MOTLEY_FUZZ=$name build/fuzz/fuzz "$grown" "$corpus" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -max_len=4096 -artifact_prefix="build/fuzz/found/$name-" $([ -e "$words" ] && echo "-dict=$words") \
    >"build/fuzz/$name.log" 2>&1 ||
    { tail -n 40 "build/fuzz/$name.log"; echo "fuzz: $name: the input lies in build/fuzz/found" >&2; exit 1; }
  tail -n 2 "build/fuzz/$name.log"
  # Into the repository goes what reaches code that nothing there does, and is small.
  [ -z "${MERGE:-}" ] || MOTLEY_FUZZ=$name build/fuzz/fuzz -merge=1 -max_len=400 "$corpus" "$grown" 2>/dev/null
done
