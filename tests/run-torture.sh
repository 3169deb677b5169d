#!/usr/bin/env bash
# Kills the agent, libvirtd and QEMU at every point of moves of a writing guest's disks, in the lab, which is up:
# tests/lab/with-lab.sh sees to that. The daemon is built with its test points.
#   tests/lab/with-lab.sh tests/run-torture.sh [ARGUMENTS OF lab-torture]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${CARGO_TARGET_DIR:-target}
# With a test among them, so that what the lab tests were built with is what is used here: nothing is built twice.
cargo build --workspace --features rbdutils/native,volferry-agent/testing,volferry-tests/lab --locked --bins --test lab_moves
VOLFERRY_BIN_DIR=$target/debug exec "$target/debug/lab-torture" "$@"
