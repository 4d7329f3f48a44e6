#!/usr/bin/env bash
# Checks and times a device: device_check.sh [STEP...] (default: all). Lies in the folder that `make device-check` makes,
# and needs beside it bash, coreutils, sed and awk. Settings come from the environment:
#
#   DEVICE=cuda:0    the device; emulated: a dry run with the smallest sizes
#   BIN=FOLDER       where the programs are, if not beside this script
#   RESULTS=FOLDER   what is written: a log for each step, table.txt, device-check.json (default: ./device-check)
#   SECONDS_IN_ALL=540
#
# Every step has its own time limit, and one that fails stops no other. Exit 1 when a check failed or had no time.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
self=$here/$(basename "$0")
DEVICE=${DEVICE:-cuda:0}
BIN=$(cd "${BIN:-$here}" && pwd) || exit 2
RESULTS=${RESULTS:-device-check}
SECONDS_IN_ALL=${SECONDS_IN_ALL:-540}
mkdir -p "$RESULTS" && RESULTS=$(cd "$RESULTS" && pwd) || exit 2
tiny='' card=none driver=none
if [ "$DEVICE" = emulated ]; then
  tiny=--tiny
else
  card=$(nvidia-smi --query-gpu=name --format=csv,noheader -i "${DEVICE#cuda:}" 2>/dev/null) || card=unknown
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader -i "${DEVICE#cuda:}" 2>/dev/null) || driver=unknown
fi

# name, seconds at most, what it does. Functions return 77 for what this machine has no tool for.
steps=(
  'formats 30 number formats and random numbers, bit for bit'
  'fragments 30 matrix fragments by their documented layouts'
  'kernels 120 every kernel against the CPU or float64'
  'gradients 120 gradient checks, training and decoding (test_tensor [device])'
  'bitwise 60 the bitwise profile: no mismatch at all'
  'quickstart 150 trainer and samplers on the device: the reward rises'
  'products 60 products against the peak of the card'
  'attention 40 attention'
  'quantizers 30 quantizers against a copy'
  'decode 90 decoding, Qwen3-0.6B'
  'trainer 90 a training step, Qwen3-0.6B'
  'torch 90 the same step in PyTorch'
  'memcheck 60 compute-sanitizer: accesses'
  'racecheck 60 compute-sanitizer: shared memory'
  'synccheck 60 compute-sanitizer: barriers'
)

run_formats() { cuda_alone formats_check; }
run_fragments() { cuda_alone fragments_check; }
run_kernels() { "$BIN/kernels_check" --device "$DEVICE" ${tiny:+--short}; }
run_gradients() { MOTLEY_TEST_DEVICE=$DEVICE "$BIN/test_tensor" '[device]'; }
run_products() { bench products; }
run_attention() { bench attention; }
run_quantizers() { bench quantizers; }
run_decode() { bench decode; }
run_trainer() { bench trainer; }
run_torch() {
  [ -z "$tiny" ] || return 77
  python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' 2>/dev/null || return 77
  python3 "$here/trainer_torch.py" "$DEVICE" "$RESULTS/torch.jsonl"
}
run_memcheck() { sanitizer memcheck; }
run_racecheck() { sanitizer racecheck; }
run_synccheck() { sanitizer synccheck; }

# Number of an update's metric: metric LINE NAME.
metric() { printf '%s' "$1" | grep -oE "\"$2\":[-+0-9.e]+" | head -1 | cut -d: -f2; }
experiment() {  # $1: name; then the samplers' count, then more settings
  local name=$1 groups=$2 file=$here/$1.toml sets=(--set "trainer.device=$DEVICE" --set "eval.device=$DEVICE") i
  shift 2
  sets+=("$@")
  for ((i = 0; i < groups; ++i)); do sets+=(--set "samplers.$i.device=$DEVICE"); done
  if [ -n "$tiny" ]; then
    sets+=(--set model.layers=1 --set model.width=16 --set model.heads=2 --set model.kv_heads=1)
    sets+=(--set run.updates=2 --set run.async=false)
    sets+=(--set warmstart.steps=2 --set warmstart.batch=2 --set algo.prompts=2 --set algo.group_size=2)
    sets+=(--set eval.prompts=1 --set eval.every=2 --set run.concurrency=4 --set sampling.max_tokens=2)
  fi
  [ -e "$file" ] || file=$here/../../experiments/$name.toml  # in the source tree
  rm -rf "$RESULTS/runs" && cd "$RESULTS" &&
    "$BIN/motley" run "$file" "${sets[@]}" >&2 && metrics=$(cat "runs/$name-0/metrics.jsonl")
}
run_bitwise() {
  local updates kl
  experiment bitwise 1 || return 1
  updates=$(grep -c 'kl/sampler_trainer' <<<"$metrics")
  kl=$(grep -oE '"(kl/sampler_trainer|ratio/max)":[^,}]*' <<<"$metrics" | grep -vcE 'trainer":-?0(\.0)?$|max":1(\.0)?$')
  echo "updates with tokens: $updates; numbers other than KL 0 and ratio 1: $kl"
  [ "$updates" -gt 0 ] && [ "$kl" -eq 0 ]
}
run_quickstart() {
  local before after
  # The learning rate as in the first 40 of the 240 updates that docs/results.md reports.
  experiment quickstart 3 --set run.updates=40 --set trainer.schedule=constant || return 1
  before=$(metric "$(head -1 <<<"$metrics")" 'eval/pass_at_1') after=$(metric "$(tail -1 <<<"$metrics")" 'eval/pass_at_1')
  echo "pass@1 before: $before, after: $after (on the CPU, docs/results.md: 0.553, and 0.951 after 40 updates)"
  [ -n "$tiny" ] || awk "BEGIN {exit !($after > 0.85 && $after > $before + 0.15)}"
}
cuda_alone() { [ -z "$tiny" ] || return 77; "$BIN/$1"; }
bench() { "$BIN/device_bench" "$1" --device "$DEVICE" --card "$card" $tiny --json "$RESULTS/$1.jsonl"; }
sanitizer() {
  [ -z "$tiny" ] && command -v compute-sanitizer >/dev/null || return 77
  compute-sanitizer --tool "$1" --error-exitcode 1 "$BIN/kernels_check" --device "$DEVICE" --short
}

if [ "${1:-}" = --step ]; then  # this script again, for `timeout`
  "run_$2"
  exit
fi

names=" $(for step in "${steps[@]}"; do read -r name _ <<<"$step" && printf '%s ' "$name"; done)"
for name in "$@"; do
  [[ $names == *" $name "* ]] || { echo "device_check.sh: no step '$name'; there are:$names" >&2; exit 2; }
done
say() { printf '%s\n' "$1" | tee -a "$RESULTS/table.txt"; }
wanted=" $* " failed=0 report='' began=$SECONDS
rm -f "$RESULTS"/*.jsonl "$RESULTS"/*.log "$RESULTS/table.txt"
say "device $DEVICE, card $card, driver $driver"
for step in "${steps[@]}"; do
  read -r name limit text <<<"$step"
  [ $# -eq 0 ] || [[ $wanted == *" $name "* ]] || continue
  left=$((SECONDS_IN_ALL - (SECONDS - began)))
  [ "$limit" -le "$left" ] || limit=$left
  [ -z "${STEP_LIMIT:-}" ] || limit=$STEP_LIMIT
  start=$(date +%s.%N)
  if [ "$left" -le 0 ]; then
    code=1 outcome='no time left'
  else
    DEVICE=$DEVICE BIN=$BIN RESULTS=$RESULTS timeout -k 5 "$limit" bash "$self" --step "$name" >"$RESULTS/$name.log" 2>&1
    code=$?
    case $code in
      0) outcome=ok ;;
      77) code=0 outcome='not here' ;;
      124 | 137) outcome='out of time' ;;
      *) outcome=FAILED ;;
    esac
  fi
  took=$(awk "BEGIN {printf \"%.1f\", $(date +%s.%N) - $start}")
  say "$(printf '%-11s %-12s %6s s  %s' "$name" "$outcome" "$took" "$text")"
  if [ "$code" -ne 0 ]; then
    failed=1
    [ ! -e "$RESULTS/$name.log" ] || say "$(tail -8 "$RESULTS/$name.log" | sed 's/^/    /')"
  fi
  report+="${report:+,}{\"step\":\"$name\",\"outcome\":\"$outcome\",\"seconds\":$took}"
done
for name in products attention quantizers decode trainer torch; do
  [ ! -s "$RESULTS/$name.jsonl" ] || say "$(cat "$RESULTS/$name.log")"
done
rows=$(cat "$RESULTS"/*.jsonl 2>/dev/null | paste -sd, -)
printf '{"device":"%s","card":"%s","driver":"%s","date":"%s","steps":[%s],"rows":[%s]}\n' "$DEVICE" "$card" "$driver" \
  "$(date -u +%FT%TZ)" "$report" "$rows" >"$RESULTS/device-check.json"
say "$RESULTS/device-check.json; $([ $failed -eq 0 ] && echo 'all checks passed' || echo 'A CHECK FAILED')"
exit $failed
