#!/usr/bin/env bash
# Exit 0 when the lab is up: its Ceph answers and its libvirtd answers.
set -euo pipefail
# shellcheck source=tests/lab/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
[[ -s $LAB/env ]] || exit 1
# shellcheck source=/dev/null
source "$LAB/env"
timeout 10 virsh -q -c "$VOLFERRY_LAB_URI" version >/dev/null &&
  timeout 10 ceph -c "$VOLFERRY_LAB_CEPH_CONF" --connect-timeout 5 health >/dev/null
