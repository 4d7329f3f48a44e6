#!/usr/bin/env bash
# The rules that a grep can hold: formatting, the direction of includes, no floats in messages. Exit 1 with what broke.
set -u
cd "$(dirname "$0")/.."
bad=0
fail() { bad=1; echo "style: $1" >&2; }
files() { git ls-files -- "$@"; }

unformatted=$(files '*.h' '*.cpp' | xargs -r clang-format --dry-run 2>&1 | grep -oE '^[^:]+\.(h|cpp):[0-9]+' | sort -u -t: -k1,1)
[ -z "$unformatted" ] || fail "run 'make format': $(echo "$unformatted" | tr '\n' ' ')"

backward() {  # $1: folder; $2: pattern of includes that it may not have
  found=$(files "$1/*" | grep -E '\.(h|cpp|cu)$' | xargs -r grep -nE "#include *[<\"]($2)" || true)
  [ -z "$found" ] || fail "include against the arrows kernels <- tensor <- algos <- actors <- app: $found"
}
backward kernels '(tensor|algos|envs|actors|app)/|caf/|zmq|toml'
backward tensor '(algos|envs|actors|app)/|caf/|zmq|toml'
backward algos '(envs|actors|app)/|caf/|zmq|toml'
backward envs '(algos|actors|app)/|caf/|zmq|toml'
backward actors 'app/|toml'
exit $bad
