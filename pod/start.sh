#!/usr/bin/env bash
# What the container of a rented pod runs: fetch our code through the gateway, then boot.
# The cloud hands it over inside the create call, and starts it again whenever it ends.
set -u
export AXR_POD="${RUNPOD_POD_ID:-${CONTAINER_ID:-${AXR_POD:?the id of this pod}}}"
code="${HOME:-/root}/axr"
python="$(command -v python3 || command -v python)"
mkdir -p "$AXR_VOLUME"

fetch() {
  "$python" - "$code" <<'PY'
import io, os, pathlib, shutil, sys, tarfile, urllib.request

code = pathlib.Path(sys.argv[1])
fresh = code.with_name(code.name + ".new")
request = urllib.request.Request(
    f"{os.environ['AXR_GATEWAY']}/bundle/{os.environ['AXR_RUN']}",
    headers={"Authorization": f"Bearer {os.environ['AXR_TOKEN']}", "User-Agent": "axolotl-runner"},
)
with urllib.request.urlopen(request, timeout=60) as answer:
    bundle = io.BytesIO(answer.read())
shutil.rmtree(fresh, ignore_errors=True)
with tarfile.open(fileobj=bundle) as archive:
    archive.extractall(fresh)
shutil.rmtree(code, ignore_errors=True)
fresh.rename(code)
PY
}

# A pod that can't reach the gateway can never work: it must not cost anything for long.
give_up_at=$((SECONDS + 900))
until fetch; do
  if ((SECONDS > give_up_at)); then
    echo "start: no code from the gateway within 15 minutes, this pod ends itself"
    while sleep 15; do
      "$python" - <<'PY'
import os, urllib.request

vast = os.environ["AXR_CLOUD"] == "vast"
path = "/instances/{}/" if vast else "/pods/{}"
key = os.environ["CONTAINER_API_KEY" if vast else "RUNPOD_API_KEY"]
request = urllib.request.Request(
    os.environ["AXR_CLOUD_API"] + path.format(os.environ["AXR_POD"]), method="DELETE",
    headers={"Authorization": f"Bearer {key}", "User-Agent": "axolotl-runner"},
)
urllib.request.urlopen(request, timeout=30)
PY
    done
  fi
  sleep 5
done
export AXR_REPOSITORY="$code"
exec bash "$code/pod/boot.sh"
