#!/usr/bin/env bash
# Runs the tests that need the lab, one after the other. The lab is up: tests/lab/with-lab.sh sees to that.
#   tests/lab/with-lab.sh tests/run-lab-tests.sh [FILTER]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# shellcheck source=/dev/null
source tests/lab/env.sh
set -a
# shellcheck source=/dev/null
source "$LAB/env"
set +a
export VOLFERRY_LAB=1
export VOLFERRY_LAB_CEPH_KEY_FILE=$VOLFERRY_LAB_KEY_FILE VOLFERRY_LAB_CEPH_USER=$VOLFERRY_LAB_RBD_USER
export VOLFERRY_LAB_CEPH_POOL=$VOLFERRY_LAB_RBD_POOL_A

# The same features as the quick tests, so that nothing is built twice. The agent under test is the release binary.
features=rbdutils/native,volferry-agent/testing,volferry-tests/lab
# All of them, also after one has failed: a run is long, and says all there is to mend.
run_by() {
  local threads=$1
  shift
  cargo test --workspace --features "$features" --locked --no-fail-fast "$@" -- --test-threads="$threads" --nocapture
}
run() { run_by 1 "$@"; }
log=$LAB/tests.log
{
  if [[ $# -gt 0 ]]; then
    cargo test --workspace --features "$features" --locked --test 'lab_*' -- --test-threads=1 --nocapture "$@"
  else
    # A test that hangs ends the run and says so; those of the guest have a watchdog of their own.
    export -f run run_by
    export features
    failed=
    timeout --kill-after=10 900 bash -c "run --test native --test native_qemu --test real_ports" || failed=yes
    # Each of these has its own domain and volumes, and waits for keys to be derived most of the time.
    timeout --kill-after=10 900 bash -c "run_by 2 --test contract" || failed=yes
    timeout --kill-after=10 2700 bash -c "run --test 'lab_*'" || failed=yes
    timeout --kill-after=10 1500 tests/run-torture.sh --agent 10 --libvirtd 4 --qemu 2 --seed 1 || failed=yes
    if [[ -n $failed ]]; then
      echo "lab tests: some failed" >&2
      exit 1
    fi
  fi
} 2>&1 | tee "$log"
if grep 'SKIPPED ' "$log"; then
  echo "lab tests: some were skipped although the lab is up" >&2
  exit 1
fi
echo "lab tests: nothing was skipped"
