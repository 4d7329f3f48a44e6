#!/usr/bin/env bash
# Our products against OpenBLAS (Debian's libopenblas-dev, installed when it is missing), in turns in one process.
#   tests/bench/peers/products.sh [BUILD_FOLDER] [options of products_bench]
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
build=${1:-$root/build/bench}
shift || true
if ! pkg-config --exists openblas; then
  as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get install -y -q --no-install-recommends libopenblas-dev >&2
fi
cmake -S "$root" -B "$build" -G Ninja -DMOTLEY_BENCH=ON >/dev/null
cmake --build "$build" --target products_bench >&2
exec "$build/products_bench" "$@"
