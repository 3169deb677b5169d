#!/usr/bin/env bash
# The Debian package as an operator gets to know it: installed, configured, used, hung, upgraded over a running copy,
# removed and purged, in a Debian 12 that systemd runs. The lab is up (tests/lab/with-lab.sh), and `make deb` has made
# the package.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tests/lab/env.sh
source tests/lab/env.sh
# shellcheck source=tests/lab/ceph.sh
source "$LAB_SCRIPTS/ceph.sh"
# shellcheck source=tests/lab/root.sh
source "$LAB_SCRIPTS/root.sh"
# shellcheck source=tests/lab/machine.sh
source "$LAB_SCRIPTS/machine.sh"

DEBS=$LAB/debs
CONF=/etc/volferry/volferry.toml
UNIT=/lib/systemd/system/volferryd.service
LATE=$LAB/pools/late
GUEST=package

say() { printf 'package: %s\n' "$*"; }
die() { printf 'package: FAILED: %s\n' "$*" >&2; exit 1; }
guest() { LAB_URI=$MACHINE_URI "$LAB/bin/lab-guest" "$@"; }
main_pid() { inside systemctl show -P MainPID volferryd; }
is_active() { [[ $(inside systemctl is-active volferryd || true) == "$1" ]]; }
expect() { # expect EXIT CMD..
  local want=$1 got=0
  shift
  "$@" >"$LAB/said" 2>&1 || got=$?
  (( got == want )) || die "exit $got, not $want: $*: $(<"$LAB/said")"
}
said() { grep -qF -- "$1" "$LAB/said" || die "'$1' was not said: $(<"$LAB/said")"; }

finish() {
  local status=$?
  trap - EXIT
  if (( status != 0 )) && [[ -n $MACHINE_INIT ]]; then
    inside journalctl -u volferryd --no-pager -n 40 >&2 || true
  fi
  machine_off
  if mountpoint -q "$LATE"; then umount "$LATE"; fi
  exit "$status"
}
trap finish EXIT

files() {
  inside find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /var/tmp -o -path /debs \
    -o -path /var/log -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/dpkg \
    -o -path /etc/libvirt -o -path /var/lib/libvirt \) -prune -o -print | LC_ALL=C sort
}

# What an earlier run left when it failed. An image its QEMU had open stays busy for half a minute.
clean_up() {
  local pool image
  if mountpoint -q "$LATE"; then umount "$LATE"; fi
  find "$LAB/pools" -xdev -name "$GUEST-*" -delete
  rm -rf "$LATE"
  for pool in vf-a vf-b; do
    for image in $(lab_rbd ls "$pool" | grep "^$GUEST-" || true); do
      lab_wait 60 "$pool/$image to be free" lab_rbd rm --no-progress "$pool/$image"
    done
  done
}

lab_rbd() { rbd -c "$VOLFERRY_LAB_CEPH_CONF" --id "$VOLFERRY_LAB_RBD_USER" "$@"; }

packages_to_test() {
  local deb version
  rm -rf "$DEBS"
  mkdir -p "$DEBS"
  deb=$(ls target/debian/*.deb)
  version=$(dpkg-deb -f "$deb" Version)
  cp "$deb" "$DEBS/volferry.deb"
  # The same content with a higher version.
  rm -rf "$LAB/repack"
  dpkg-deb -R "$deb" "$LAB/repack"
  sed -i "s/^Version: .*/Version: $version+1/" "$LAB/repack/DEBIAN/control"
  dpkg-deb --root-owner-group -b "$LAB/repack" "$DEBS/volferry-next.deb" >/dev/null
  rm -rf "$LAB/repack"
}

install_it() {
  say "apt installs it with what it depends on"
  local needed
  expect 0 inside apt-get update -q
  mapfile -t needed < <(inside apt-get install -s --no-install-recommends /debs/volferry.deb |
    awk '/^Inst/ && $2 != "volferry" { print $2 }')
  expect 0 inside apt-get install -y -q --no-install-recommends "${needed[@]}"
  files >"$LAB/files-before"
  inside cat /etc/group >"$LAB/group-before"
  expect 0 inside apt-get install -y -q --no-install-recommends /debs/volferry.deb
  [[ $(inside systemctl is-enabled volferryd) == enabled ]] || die "the unit is not enabled"
  is_active inactive || die "it was started before it was configured"
  inside getent group volferry >/dev/null || die "there is no group volferry"
  expect 0 inside volferryd --check-config
  said "valid, 0 pools"
}

check_unit_and_manual() {
  say "the unit and the manual pages are clean as installed"
  local page errors
  errors=$(inside systemd-analyze verify "$UNIT" 2>&1) || die "systemd-analyze verify: $errors"
  [[ -z $errors ]] || die "systemd-analyze verify: $errors"
  expect 0 inside systemd-analyze security --offline=true --threshold=30 "$UNIT"
  grep 'Overall exposure' "$LAB/said"
  local pages
  mapfile -t pages < <(inside dpkg -L volferry | grep '^/usr/share/man/.*\.gz$')
  (( ${#pages[@]} > 10 )) || die "only ${#pages[@]} manual pages"
  for page in "${pages[@]}"; do
    errors=$(inside man --warnings -E UTF-8 -l "$page" 2>&1 >/dev/null) || die "$page: $errors"
    [[ -z $errors ]] || die "$page: $errors"
  done
  say "${#pages[@]} manual pages"
}

start_it() {
  say "it is ready as installed, and while libvirt is away"
  machine_libvirtd stop
  expect 0 inside systemctl start volferryd
  is_active active || die "it is not active"
  [[ $(inside stat -c '%G %a' /run/volferry/volferry.sock) == "volferry 660" ]] ||
    die "the socket: $(inside stat -c '%G %a' /run/volferry/volferry.sock)"
  lab_wait 30 "its status" status_has "libvirt away"
  machine_libvirtd start
  lab_wait 60 "its status" status_has "libvirt up"

  say "it is ready with the lab's pools"
  { printf 'socket_group = "volferry"\n'; cat "$VOLFERRY_LAB_CONFIG"; } >"$MACHINE$CONF"
  expect 0 inside volferryd --check-config
  expect 0 inside systemctl restart volferryd
  lab_wait 30 "its status" status_has "0 operations; libvirt up"
}

machine_libvirtd() { expect 0 inside systemctl "$1" libvirtd.service libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket; }

status_has() { [[ $(inside systemctl show -P StatusText volferryd) == *"$1"* ]]; }

move_it() {
  say "the disk of a writing guest moves from a file to Ceph"
  guest create "$GUEST" "$LAB/pools/nfs/$GUEST-root.qcow2" "$LAB/pools/nfs/$GUEST-data.qcow2"
  guest start "$GUEST" 1
  guest wait "$GUEST" 100
  expect 0 inside volferry migrate "$GUEST" vdb --to ceph-a
  guest wait "$GUEST" 50
}

hang_it() {
  say "stopped by SIGSTOP, the watchdog has it started again"
  local pid begun=$SECONDS
  pid=$(main_pid)
  inside kill -STOP "$pid"
  started_anew() { [[ $(main_pid) != "$pid" && $(main_pid) != 0 ]] && is_active active; }
  lab_wait 90 "the watchdog" started_anew
  inside journalctl -u volferryd --no-pager -o cat >"$LAB/said"
  said 'Watchdog timeout'
  say "after $((SECONDS - begun)) s"
}

mount_late() {
  say "a pool comes with a reload, its mount later still, and both are there without a restart"
  local pid
  pid=$(main_pid)
  mkdir -p "$LATE"
  printf '\n[[pool]]\nname = "late"\ntype = "shared-mount-point"\npath = "%s"\n' "$LATE" >>"$MACHINE$CONF"
  expect 3 inside volferry plan "$GUEST" vdb --to late
  said pool-unknown
  expect 0 inside systemctl reload volferryd
  lab_wait 20 "the new pool" inside volferry plan "$GUEST" vdb --to late
  truncate -s 400M "$LAB/late.img"
  mke2fs -q -F -t ext4 -m 0 -O '^has_journal' "$LAB/late.img"
  mount -o loop "$LAB/late.img" "$LATE"
  expect 0 inside volferry migrate "$GUEST" vdb --to late
  # Seen through the mount: agent, libvirtd and QEMU all wrote to what came after their start.
  [[ -s $LATE/$GUEST-data.qcow2 ]] || die "nothing was written to what is mounted at $LATE"
  [[ $(main_pid) == "$pid" ]] || die "it was started anew meanwhile"
  guest wait "$GUEST" 50
}

upgrade_it() {
  say "an upgrade while a copy runs: it is taken up again and ends well"
  local pid conf
  pid=$(main_pid)
  conf=$(sha256sum <"$MACHINE$CONF")
  expect 0 inside volferry migrate "$GUEST" vdb --to ceph-b --bandwidth 2MiB/s --operation-id over-1 --detach
  copying() { [[ $(inside volferry ops show over-1 --output json) =~ \"state\":\ ?\"copying\" ]]; }
  lab_wait 30 "the copy" copying
  expect 0 inside dpkg -i /debs/volferry-next.deb
  [[ $(main_pid) != "$pid" ]] || die "the old daemon still runs"
  is_active active || die "it is not active"
  [[ $(sha256sum <"$MACHINE$CONF") == "$conf" ]] || die "the upgrade changed the configuration"
  copying || die "the copy is not what it was: $(inside volferry ops show over-1)"
  expect 0 inside volferry ops set-bandwidth over-1 500MiB/s
  expect 0 inside volferry ops watch over-1
  # By the new daemon, not by what it remembers.
  inside journalctl -u volferryd --no-pager -o cat "_PID=$(main_pid)" >"$LAB/said"
  grep -q 'settling an unfinished operation.*over-1' "$LAB/said" || die "it was not taken up: $(<"$LAB/said")"
  # What the journal knows by the operation's id.
  inside journalctl VOLFERRY_OPERATION=over-1 --no-pager -o cat >"$LAB/said"
  said 'settling an unfinished operation'
  guest wait "$GUEST" 50
}

work_offline() {
  say "nothing the guest was promised is lost; stopped disks move with qemu-img, owners and passphrases too"
  guest destroy "$GUEST"
  expect 0 guest verify "$GUEST"
  expect 0 inside volferry migrate "$GUEST" vdb --to nfs
  expect 0 guest verify "$GUEST"
  # Another owner's volume keeps its owner and mode.
  local own=$LAB/pools/nfs/$GUEST-own.qcow2
  qemu-img create -q -f qcow2 "$own" 8M
  chown 64055:106 "$own"
  chmod 640 "$own"
  # Seen although that process may do more than the agent.
  { inside sh -c "echo \$\$ >/run/holder; exec sleep 60 <'$own'" || true; } 2>/dev/null &
  lab_wait 10 "somebody to have it open" inside test -s /run/holder
  expect 3 inside volferry plan --volume "nfs/$GUEST-own.qcow2" --format qcow2 --to smp
  said volume-in-use
  # shellcheck disable=SC2016 # in the machine
  inside sh -c 'kill "$(cat /run/holder)"; rm /run/holder'
  expect 0 inside volferry migrate --volume "nfs/$GUEST-own.qcow2" --format qcow2 --to smp
  own=$LAB/pools/smp/$GUEST-own.qcow2
  [[ $(stat -c '%u %g %a' "$own") == "64055 106 640" ]] || die "$own: $(stat -c '%u %g %a' "$own")"
  printf 'sesame-open-4711' >"$MACHINE/root/passphrase"
  chmod 600 "$MACHINE/root/passphrase"
  expect 0 inside volferry migrate --volume "smp/$GUEST-own.qcow2" --format qcow2 --to ceph-a \
    --dest-passphrase-file /root/passphrase
  rm "$MACHINE/root/passphrase"
  lab_rbd info "vf-a/$GUEST-own" >/dev/null
  guest undefine "$GUEST"
}

remove_it() {
  say "removed, it leaves its configuration and its journal; purged, nothing"
  expect 0 inside apt-get remove -y -q volferry
  is_active inactive || die "it runs on: $(inside systemctl is-active volferryd)"
  inside test ! -e /run/volferry || die "its socket's folder stayed"
  files >"$LAB/files-removed"
  # Debian's helper for units remembers until the purge that it was enabled, and masks it.
  comm -13 "$LAB/files-before" "$LAB/files-removed" | grep -Ev '^/(etc/volferry|var/lib/volferry)(/|$)' |
    grep -Ev '^(/var/lib/systemd/deb-systemd-helper-.*|/etc/systemd/system/(.*/)?volferryd\.service$)' >"$LAB/said" && die "more stayed: $(<"$LAB/said")"
  inside test -s "$CONF" || die "the configuration is gone"
  inside test -s /var/lib/volferry/journal.sqlite || die "the journal is gone"
  expect 0 inside apt-get purge -y -q volferry
  files >"$LAB/files-after"
  # Empty folders of that helper are its own.
  comm -13 "$LAB/files-before" "$LAB/files-after" | grep -Ev '^/var/lib/systemd/deb-systemd-helper-[a-z]+(/multi-user.target.wants)?$' \
    >"$LAB/said" && die "stayed: $(<"$LAB/said")"
  inside cat /etc/group | diff "$LAB/group-before" - || die "groups differ"
}

lab_need_root
set -a
# shellcheck source=/dev/null
source "$LAB/env"
set +a
command -v systemd-nspawn >/dev/null || die "systemd-nspawn is missing: apt-get install systemd-container"
clean_up
packages_to_test
machine_boot "$DEBS"
say "the machine is $(inside systemctl is-system-running || true)"
install_it
check_unit_and_manual
start_it
move_it
mount_late
upgrade_it
hang_it
work_offline
remove_it
machine_off
clean_up
say "all of it holds, after $SECONDS s"
