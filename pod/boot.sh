#!/usr/bin/env bash
# The first program of every pod, rented or local. Clouds start it again whenever it ends, so it must be
# safe to run twice: nothing here trains anything, the trainer belongs to flows that look before they start.
set -euo pipefail
: "${AXR_POD:?the id of this pod}" "${AXR_RUN:?the run it belongs to}" "${AXR_VOLUME:?where its volume is mounted}"
cd "${AXR_REPOSITORY:?where this code lies on the pod}"
export PYTHONPATH="$AXR_REPOSITORY" PYTHONUNBUFFERED=1
queue="axr-$AXR_RUN"
# Rented images bring axolotl, whose Python is new enough for us too; local pods name both.
if [[ -z "${AXR_AXOLOTL_ENV:-}" ]] && axolotl="$(command -v axolotl)"; then
  AXR_AXOLOTL_ENV="$(dirname "$(dirname "$axolotl")")"
  export AXR_AXOLOTL_ENV
fi
found="${AXR_PYTHON:-${AXR_AXOLOTL_ENV:-/usr}/bin/python}"
[[ -x "$found" ]] || found="$(command -v python3)"

# What the pod says of itself is also kept in files: pod.sending brings them home. Whatever becomes of
# `tee`, bash waits for the program itself.
logs="${HOME:-/root}/axr-logs"
mkdir -p "$logs"

# A container that is started again after its pod was over has nothing to do, and costs money.
"$found" -m pod.guard --over || true

# The dead-man switch comes before anything that can fail: from here on the pod ends by itself. Whatever
# ends the guard, it is started again; one more guard than needed only waits.
while true; do
  "$found" -m pod.guard || true
  sleep 1
done &

# The worker's Python is not axolotl's: they want other versions of the same packages.
until python="$("$found" -m pod.install 2> >(tee -a "$logs/boot.log" >&2) | tail -n 1)" && [[ -x "$python" ]]; do
  "$found" -m pod.sending || true
  sleep 10
done
export AXR_PYTHON="$python"

# A worker that dies is started again. Flow runs that it left behind are set going first, else the
# server would call them Running for ever; a follower that still lives keeps its lock and is left alone.
while true; do
  if [[ -e "$AXR_VOLUME/.booted" ]]; then
    "$python" -m deployments.revive --queue "$queue" || true
  fi
  touch "$AXR_VOLUME/.booted"
  "$python" -m prefect worker start --pool pods --work-queue "$queue" --limit 1 \
    --name "pod-$AXR_RUN" --type process > >(tee -a "$logs/worker.log") 2>&1 || true
  "$found" -m pod.sending || true  # it ends by itself only where it can't work: nobody else may tell why
  sleep 1
done
