#!/usr/bin/env bash
# Shows that the laboratory itself is sound, without volferry: a guest writes to two qcow2 files, libvirt
# copies its data disk to RBD and its root disk as well, no acknowledged write is missing, the guest boots
# from the copies, and a damaged block does not go unnoticed.
#   LAB_LIBVIRTD=NAME:MODE smoke.sh   runs it on another daemon of the lab, e.g. dyn:qemu
set -euo pipefail
# shellcheck source=tests/lab/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=tests/lab/ceph.sh
source "$LAB_SCRIPTS/ceph.sh"
# shellcheck source=tests/lab/libvirtd.sh
source "$LAB_SCRIPTS/libvirtd.sh"

[[ -s $LAB/env ]] || lab_die "the lab is not up: run tests/lab/lab-up.sh"
# shellcheck source=/dev/null
source "$LAB/env"
NAME=smoke
DAEMON=${LAB_LIBVIRTD:-main:$VOLFERRY_LAB_LIBVIRT_MODE}
DAEMON_NAME=${DAEMON%%:*}
WORK=$LAB/guests/smoke-work

guest() { "$LAB/bin/lab-guest" "$@"; }
rbd_lab() { rbd -c "$VOLFERRY_LAB_CEPH_CONF" --id volferry "$@"; }

cleanup() {
  if [[ -s $LAB/guests/$NAME/record ]]; then guest undefine "$NAME" || true; fi
  rm -rf "$WORK"
  rm -f "$VOLFERRY_LAB_POOL_NFS"/smoke-{root,data}.qcow2
  local image
  for image in smoke-vda smoke-vdb; do
    if rbd_lab info "vf-a/$image" >/dev/null 2>&1; then rbd_lab rm --no-progress "vf-a/$image"; fi
  done
}

# copy_to_rbd DISK: the plain way an operator would do it.
copy_to_rbd() {
  local disk=$1
  cat >"$WORK/$disk.xml" <<XML
<disk type='network'>
  <driver name='qemu' type='raw'/>
  <source protocol='rbd' name='vf-a/smoke-$disk'>
    <host name='$VOLFERRY_LAB_MON_HOST' port='$VOLFERRY_LAB_MON_PORT'/>
    <auth username='$VOLFERRY_LAB_RBD_USER'><secret type='ceph' uuid='$VOLFERRY_LAB_SECRET_UUID'/></auth>
  </source>
</disk>
XML
  lab_virsh "$DAEMON_NAME" blockcopy "$NAME" "$disk" --xml "$WORK/$disk.xml" --transient-job --wait --pivot >/dev/null
  lab_say "smoke: $disk moved to RBD"
}

# Overwrites one written sector of the data disk and expects the verifier to say so.
expect_damage_found() {
  local at report
  "$LAB_SCRIPTS/to-raw.sh" rbd:vf-a/smoke-vdb raw "$WORK/vdb.raw"
  at=$(grep -obUa -m 1 VFbk "$WORK/vdb.raw" | head -n 1 | cut -d: -f1 || true)
  [[ -n $at ]] || lab_die "smoke: found no written block to damage"
  qemu-io -f raw -c "write -P 0xde $at 512" "rbd:vf-a/smoke-vdb:id=volferry:conf=$VOLFERRY_LAB_CEPH_CONF" >/dev/null
  if report=$(guest verify "$NAME"); then lab_die "smoke: the verifier did not see a damaged block"; fi
  grep -q 'missing 1, unexpected 0' <<<"$report" || lab_die "smoke: wrong verdict on one damaged block: $report"
  lab_say "smoke: a damaged block is found: $(tail -n 1 <<<"$report" | sed 's/^ *//')"
}

main() {
  local begun=$SECONDS
  "$LAB_SCRIPTS/guest.sh"
  export LAB_LIBVIRTD=$DAEMON
  # A run that was cut short may have left its guest.
  cleanup
  trap cleanup EXIT
  mkdir -p "$WORK"
  guest create "$NAME" "$VOLFERRY_LAB_POOL_NFS/smoke-root.qcow2" "$VOLFERRY_LAB_POOL_NFS/smoke-data.qcow2"
  guest start "$NAME" 1001
  guest wait "$NAME" 200 >/dev/null
  copy_to_rbd vdb
  copy_to_rbd vda
  guest wait "$NAME" 200 >/dev/null
  lab_say "smoke: $(guest acks "$NAME")"
  guest destroy "$NAME"
  rm -f "$VOLFERRY_LAB_POOL_NFS"/smoke-{root,data}.qcow2
  guest verify "$NAME" || lab_die "smoke: the copies are not what the guest was promised"
  guest boot-check "$NAME" 1002
  guest destroy "$NAME"
  guest verify "$NAME" >/dev/null || lab_die "smoke: a boot that only reads changed something"
  expect_damage_found
  lab_say "smoke: passed in $((SECONDS - begun)) s"
}

main "$@"
