#!/usr/bin/env bash
# Writes the tables of docs/mismatch.md: trains the quickstart's model (or takes RUN, the folder of such a run), then
# runs every `$ motley mismatch ...` of the page and puts its output below it. About five minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
motley=$(realpath "${1:-build/release/motley}")
page=docs/mismatch.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ -n ${2:-} ]]; then
  mkdir "$work/runs"
  ln -s "$(realpath "$2")" "$work/runs/quickstart-0"
else
  "$motley" run experiments/quickstart.toml --set "run.dir=$work/runs" --set run.keep_trajectories=none >/dev/null
fi

skipping=false
while IFS= read -r line; do
  if [[ $line == '```' ]]; then skipping=false; fi
  if $skipping; then continue; fi
  printf '%s\n' "$line"
  if [[ $line == '$ motley mismatch '* ]]; then
    read -ra words <<<"${line#'$ motley '}"
    (cd "$work" && "$motley" "${words[@]}")
    skipping=true
  fi
done <"$page" >"$work/page"
cp "$work/page" "$page"
