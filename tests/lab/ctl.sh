#!/usr/bin/env bash
# One laboratory action from outside a shell, for tests written in Rust:
#   ctl.sh libvirtd-start NAME MODE | libvirtd-stop NAME | libvirtd-kill9 NAME | libvirtd-uri NAME
#   ctl.sh libvirtd-lost NAME             a host that lost its power: the daemon and its QEMUs killed, /run emptied
#   ctl.sh libvirtd-qemus NAME            live QEMUs of a daemon, "pid guest" a line
#   ctl.sh libvirtd-inside NAME CMD ..    becomes CMD in the root the daemon runs in
#   ctl.sh osd-freeze | osd-thaw          a pool that hangs, and its end
set -euo pipefail
# shellcheck source=tests/lab/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=tests/lab/ceph.sh
source "$LAB_SCRIPTS/ceph.sh"
# shellcheck source=tests/lab/root.sh
source "$LAB_SCRIPTS/root.sh"
# shellcheck source=tests/lab/libvirtd.sh
source "$LAB_SCRIPTS/libvirtd.sh"

action=${1:-}
shift || true
case $action in
  libvirtd-start) lab_libvirtd_start "${1:?NAME}" "${2:?MODE}" ;;
  libvirtd-stop) lab_libvirtd_stop "${1:?NAME}" ;;
  libvirtd-kill9) lab_libvirtd_kill9 "${1:?NAME}" ;;
  libvirtd-lost) lab_libvirtd_lost "${1:?NAME}" ;;
  libvirtd-uri) lab_libvirtd_uri "${1:?NAME}" ;;
  libvirtd-qemus) libvirtd_qemus "${1:?NAME}" ;;
  libvirtd-inside) lab_libvirtd_inside "$@" ;;
  osd-freeze) lab_osd_freeze ;;
  osd-thaw) lab_osd_thaw ;;
  *) lab_die "unknown action '$action'; see the head of ctl.sh" ;;
esac
