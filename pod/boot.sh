#!/usr/bin/env bash
# The first program of every pod, rented or local. Clouds start it again whenever it ends, so it must be
# safe to run twice: nothing here trains anything, the trainer belongs to flows that look before they start.
set -euo pipefail
: "${AXR_POD:?the id of this pod}" "${AXR_RUN:?the run it belongs to}" "${AXR_VOLUME:?where its volume is mounted}"
cd "${AXR_REPOSITORY:?where this code lies on the pod}"
export PYTHONPATH="$AXR_REPOSITORY" PYTHONUNBUFFERED=1
python="${AXR_PYTHON:-python3}"
queue="axr-$AXR_RUN"

# The dead-man switch comes before anything that can fail: from here on the pod ends by itself.
"$python" -m pod.guard &

# A worker that dies is started again. Flow runs that it left behind are set going first, else the
# server would call them Running for ever; a follower that still lives keeps its lock and is left alone.
while true; do
  if [[ -e "$AXR_VOLUME/.booted" ]]; then
    "$python" -m deployments.revive --queue "$queue" || true
  fi
  touch "$AXR_VOLUME/.booted"
  "$python" -m prefect worker start --pool pods --work-queue "$queue" --limit 1 \
    --name "pod-$AXR_POD" --type process || true
  sleep 1
done
