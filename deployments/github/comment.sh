#!/usr/bin/env bash
# Leave COMMENT at pull request NUMBER of REPOSITORY, or put it in the place of our earlier one. Ours is
# the bot's comment that begins with the mark which deployments/commenting.py writes.
set -euo pipefail
: "${REPOSITORY:?owner/name}" "${NUMBER:?of the pull request}" "${COMMENT:?the text}"
mark='<!-- axolotl-runner check -->'
body="$(mktemp)"
trap 'rm -f "$body"' EXIT
printf '%s\n' "$COMMENT" > "$body"
comments="repos/$REPOSITORY/issues/$NUMBER/comments"
ours="$(MARK="$mark" gh api --paginate "$comments?per_page=100" --jq \
  '.[] | select(.user.type == "Bot" and (.body | startswith(env.MARK))) | .id' | head -n 1)"
if [[ -n "$ours" ]]; then
  gh api --method PATCH "repos/$REPOSITORY/issues/comments/$ours" -F body=@"$body" --jq .html_url
elif [[ "$COMMENT" != *'<!-- nothing to say -->'* ]]; then
  gh api --method POST "$comments" -F body=@"$body" --jq .html_url
fi
