#!/usr/bin/env bash
# Takes the laboratory down: guests, libvirtds, Ceph, mounts; only processes of its own pid files.
#   --purge   removes the lab's folder too, the guest kernel, built images and roots included (one that
#             VOLFERRY_LAB_ROOT names elsewhere is shared, and stays)
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

main() {
  local purge=no name
  case ${1:-} in
    --purge) purge=yes ;;
    '') ;;
    *) lab_die "usage: lab-down.sh [--purge]" ;;
  esac
  lab_need_root
  if [[ ! -d $LAB ]]; then
    lab_say "nothing to take down"
    return 0
  fi
  lab_lock
  for name in $(lab_libvirtd_names); do lab_libvirtd_stop "$name"; done
  lab_ceph_down
  # A memstore's content ended with its process; the next lab-up makes a new cluster.
  if [[ -e $CEPH_DIR/objectstore && $(<"$CEPH_DIR/objectstore") == memstore ]]; then rm -f "$CEPH_DIR/created"; fi
  lab_pools_down
  rm -f "$LAB/env"
  if [[ $purge == yes ]]; then
    ! findmnt -rn -o TARGET | grep -q "^$LAB/" || lab_die "something is still mounted below $LAB; not removing it"
    rm -rf --one-file-system "${LAB:?}"
  fi
  lab_say "down"
}

main "$@"
