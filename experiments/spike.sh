#!/usr/bin/env bash
# Runs experiments/spike.toml for plain GRPO, MIS and SC+MIS over seeds 1 to 3 and prints one table: pass@1 before the
# first update, and the mean of the last three evaluations. Usage: experiments/spike.sh [MOTLEY] [FOLDER]
set -euo pipefail
motley=${1:-build/release/motley}
folder=${2:-$(mktemp -d)}
cd "$(dirname "$0")/.."
printf '%-8s %5s %7s %7s\n' arm seed start end
for arm in grpo mis sc+mis; do
  for seed in 1 2 3; do
    "$motley" run experiments/spike.toml --seed "$seed" --set "algo.correction=$arm" \
      --set "run.dir=$folder" --set "name=spike-$arm" 2>"$folder/spike-$arm-$seed.log" >/dev/null
    python3 - "$folder/spike-$arm-$seed/metrics.jsonl" "$arm" "$seed" <<'P'
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
evals = [row['eval/pass_at_1'] for row in rows if 'eval/pass_at_1' in row]
print(f'{sys.argv[2]:8} {sys.argv[3]:>5} {evals[0]:7.3f} {sum(evals[-3:]) / 3:7.3f}', flush=True)
P
  done
done
