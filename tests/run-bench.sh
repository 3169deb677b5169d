#!/usr/bin/env bash
# Measures the budgets on the lab; figures are recorded by hand in docs/performance.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
up_before=
if tests/lab/lab-status.sh >/dev/null 2>&1; then up_before=yes; fi
tests/lab/lab-up.sh
finish() {
  local status=$?
  if [[ -z $up_before ]]; then tests/lab/lab-down.sh; fi
  exit "$status"
}
trap finish EXIT
tests/lab/guest.sh
target/release/lab-latency "${MIGRATIONS:-200}"
