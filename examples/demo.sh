#!/usr/bin/env bash
# What `make demo` shows: a script that runs out of memory, the same script under `memfit run`, and what happened.
# Without a GPU the limit is the CPU's: TensorFlow's own GPU allocator, its statistics and its error are the real ones.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH" TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-3}" PYTHONUNBUFFERED=1
record=demo.memfit.jsonl page=demo.memfit.html
said=$(mktemp)
trap 'rm -f "$said"' EXIT

show() { printf '\n$ %s\n' "$*"; }

echo "A U-Net, trained at batch 32 in plain Keras where there are 150 MiB:"
show python examples/train_unet.py
if TF_CPU_ALLOCATOR_USE_BFC=1 TF_CPU_BFC_MEM_LIMIT_IN_MB=150 python examples/train_unet.py 2> "$said"; then
  echo "It fitted, which it should not have."
  exit 1
fi
grep -m 1 "OOM when allocating" "$said"

printf '\nThe same script, not a line changed, with the same batch:\n'
show memfit run --budget 150MiB examples/train_unet.py
# Without what TensorFlow says at its start whatever its log level is.
memfit run --budget 150MiB --record "$record" --force examples/train_unet.py 2>&1 | sed -u "/^WARNING: All log/d; /^I0000/d"

show memfit report
memfit report "$record" -o "$page" --force
