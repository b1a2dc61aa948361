#!/usr/bin/env bash
# Post an event to the gateway: post.sh FILE, with GATEWAY and TOKEN in the environment. An empty file is
# a push that starts nothing. Sending it twice starts nothing twice, so every failure is tried again.
set -euo pipefail
event="${1:?the file with the event}"
if [[ ! -s "$event" ]]; then
  echo "nothing to start"
  exit 0
fi
if [[ -z "${TOKEN:-}" ]]; then
  echo "the secret AXR_PUSH_TOKEN is not set: axolotl-runner connect prints it" >&2
  exit 1
fi
# The token goes through a file that only we can read: a command line can be seen by others.
header="$(umask 077 && mktemp)"
trap 'rm -f "$header"' EXIT
printf 'Authorization: Bearer %s\n' "$TOKEN" > "$header"
curl --fail-with-body --silent --show-error --max-time 30 \
  --retry "${RETRIES:-6}" --retry-all-errors --retry-max-time 300 \
  --header @"$header" --header 'Content-Type: application/json' \
  --data-binary @"$event" "${GATEWAY%/}/push"
echo
