#!/usr/bin/env bash
# Brings the laboratory up: packages, one-node Ceph, a private libvirtd, file pools; writes
# $VOLFERRY_LAB_DIR/env and volferry.toml. When it is up already, verifies that and changes nothing;
# after a crash it starts or rebuilds what is missing.
#   LIBVIRT_MODE=root|qemu|qemu-static   how the daemon "main" runs its guests (default root)
set -euo pipefail
# shellcheck source=tests/lab/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=tests/lab/ceph.sh
source "$LAB_SCRIPTS/ceph.sh"
# shellcheck source=tests/lab/libvirtd.sh
source "$LAB_SCRIPTS/libvirtd.sh"
# shellcheck source=tests/lab/pools.sh
source "$LAB_SCRIPTS/pools.sh"

# The mode asked for; else the one of the daemon that runs; else root.
wanted_mode() {
  if [[ -n ${LIBVIRT_MODE:-} ]]; then
    printf '%s\n' "$LIBVIRT_MODE"
  elif lab_libvirtd_running main; then
    cat "$(libvirtd_dir main)/mode"
  else
    printf 'root\n'
  fi
}

main() {
  lab_need_root
  lab_check_dir
  local begun=$SECONDS mode
  lab_lock
  "$LAB_SCRIPTS/install.sh" 9>&-
  lab_check_dir
  lab_pools_up
  lab_ceph_up
  mode=$(wanted_mode)
  if lab_libvirtd_running main && [[ $(<"$(libvirtd_dir main)/mode") != "$mode" ]]; then
    lab_say "libvirtd: changing to mode $mode"
    lab_libvirtd_stop main
  fi
  lab_libvirtd_start main "$mode"
  lab_write_toml
  lab_write_env
  lab_say "up after $((SECONDS - begun)) s (libvirtd mode $mode); settings: $LAB/env"
}

main "$@"
