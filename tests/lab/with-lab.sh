#!/usr/bin/env bash
# Runs a command with the lab up and the guest's images built, and takes the lab down again if it was down before.
#   with-lab.sh COMMAND [ARGUMENT..]
set -euo pipefail
scripts=$(dirname "${BASH_SOURCE[0]}")
up_before=
if "$scripts/lab-status.sh" >/dev/null 2>&1; then up_before=yes; fi
"$scripts/lab-up.sh"
finish() {
  local status=$?
  if [[ -z $up_before ]]; then "$scripts/lab-down.sh"; fi
  exit "$status"
}
trap finish EXIT
"$scripts/guest.sh"
# What runs now need not ask the build for each of its guests.
VOLFERRY_LAB_IMAGES_BUILT=yes "$@"
