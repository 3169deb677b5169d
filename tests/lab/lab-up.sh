#!/usr/bin/env bash
# Brings the laboratory up: packages, one-node Ceph, a private libvirtd, file pools; writes
# $VOLFERRY_LAB_DIR/env and volferry.toml. When it is up already, verifies that and changes nothing;
# after a crash it starts or rebuilds what is missing.
#   lab-up.sh trixie   a libvirtd of Debian 13 in a root of its own beside it, on the same Ceph and pools: see root.sh
#   LIBVIRT_MODE=root|qemu|qemu-static   how the daemon "main" runs its guests (default root)
set -euo pipefail
# shellcheck source=tests/lab/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=tests/lab/ceph.sh
source "$LAB_SCRIPTS/ceph.sh"
# shellcheck source=tests/lab/root.sh
source "$LAB_SCRIPTS/root.sh"
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
  local begun=$SECONDS mode release
  for release in "$@"; do
    root_is_release "$release" || lab_die "usage: lab-up.sh [${ROOT_RELEASES[*]}]"
  done
  lab_need_root
  lab_check_dir
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
  for release in "$@"; do
    lab_root_make "$release"
    lab_libvirtd_start "$release" root
  done
  lab_say "up after $((SECONDS - begun)) s (libvirtd mode $mode); settings: $LAB/env"
}

main "$@"
