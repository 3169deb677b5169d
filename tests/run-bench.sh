#!/usr/bin/env bash
# Measures the budgets on the lab, which is up: tests/lab/with-lab.sh sees to that. The figures are recorded by hand in
# docs/performance.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target/release/lab-latency "${MIGRATIONS:-200}"
target/release/lab-compare "${PAIRS:-10}"
target/release/lab-offline "${OFFLINE_PAIRS:-3}"
