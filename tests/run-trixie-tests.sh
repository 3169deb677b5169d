#!/usr/bin/env bash
# Runs the tests that need a newer libvirt and QEMU: the lab is up (tests/lab/with-lab.sh), a Debian 13 joins it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tests/lab/lab-up.sh trixie
# The same features as the other tests, so that nothing is built twice.
timeout --kill-after=10 900 cargo test --workspace --features rbdutils/native,volferry-agent/testing,volferry-tests/lab \
  --locked --test 'trixie_*' -- --test-threads=1 --nocapture
