#!/usr/bin/env bash
# Runs the real-world cases against the release binary: the copies kept here, and a newer set beside the checkout
# if there is one. Every case must pass.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

run() {
  local report
  report=$(python3 "$1/check.py" target/release/volferry "$1")
  tail -n 1 <<<"$report"
  if grep -A 2 '^FAIL' <<<"$report"; then return 1; fi
  grep -qE '^total ([1-9][0-9]*)/\1 passed' <<<"$report"
}

run fixtures/cases
if [[ -f ../shared/cases/check.py ]]; then run ../shared/cases; fi
