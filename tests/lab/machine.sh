# shellcheck shell=bash
# A KVM host of Debian 12 that systemd runs, in a container of the laboratory: where a package is installed as on a host.
# It has a libvirtd and QEMUs of its own, because an agent has to see the processes of the guests it serves. To be
# sourced after env.sh, ceph.sh and root.sh.
#
# It has the host's network, and so the lab's Ceph, and under their own paths the lab's pools and what guests boot from;
# whatever is mounted below the pools later on appears in it too. Nothing else of the host is in it.

MACHINE=$LAB/machine
MACHINE_BASE=$LAB/machine-base
MACHINE_CACHE=$LAB/cache/apt
MACHINE_SOCK=$LAB/machine-sock
MACHINE_URI="qemu+unix:///system?socket=$MACHINE_SOCK/libvirt-sock"
# What a host has without the agent; man, because systemd-analyze asks for pages.
MACHINE_PACKAGES=(libvirt-daemon-system libvirt-daemon-driver-qemu qemu-system-x86 qemu-block-extra qemu-utils man-db procps)
MACHINE_PID=
MACHINE_INIT=

# In a mount namespace of its own: what is mounted for the making ends with it.
machine_install() {
  cat <<'INNER'
set -euo pipefail
root=$1 mirror=$2 sources=$3 cache=$4
shift 4
debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,ca-certificates bookworm "$root" "$mirror"
printf '%s\n' "$sources" >"$root/etc/apt/sources.list"
printf 'force-unsafe-io\n' >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
printf 'APT::Keep-Downloaded-Packages "true";\n' >"$root/etc/apt/apt.conf.d/keep"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
mount -t proc proc "$root/proc"
mount --bind "$cache" "$root/var/cache/apt/archives"
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
chroot "$root" apt-get update -q
chroot "$root" apt-get install -y -q --no-install-recommends "$@"
rm "$root/usr/sbin/policy-rc.d"
# A boot empties /tmp, and the lab may be below it.
ln -s /dev/null "$root/etc/tmpfiles.d/tmp.conf"
INNER
}

machine_configure() {
  cat >"$MACHINE_BASE/etc/libvirt/qemu.conf" <<'CONF'
security_driver = "none"
user = "root"
group = "root"
cgroup_controllers = [ ]
namespaces = [ ]
remember_owner = 0
stdio_handler = "file"
CONF
  printf 'auth_unix_ro = "none"\nauth_unix_rw = "none"\n' >"$MACHINE_BASE/etc/libvirt/libvirtd.conf"
}

machine_make_base() {
  local mirror sources proxy='' recipe
  recipe="1 ${MACHINE_PACKAGES[*]}"
  [[ -e $MACHINE_BASE/.made && $(<"$MACHINE_BASE/.made") == "$recipe" ]] && return 0
  mirror=$(root_mirror Debian)
  [[ -n $mirror ]] || lab_die "apt has no Debian mirror to make a machine from"
  sources=$(root_sources bookworm "$mirror" "$(root_mirror Debian-Security)")
  lab_say "making a machine of Debian 12 from $mirror (takes minutes)"
  rm -rf --one-file-system "$MACHINE_BASE"
  eval "$(apt-config shell proxy Acquire::http::Proxy)"
  if [[ -n $proxy ]]; then export http_proxy=${http_proxy:-$proxy}; fi
  unshare -m bash -c "$(machine_install)" machine-install "$MACHINE_BASE" "$mirror" "$sources" "$MACHINE_CACHE" \
    "${MACHINE_PACKAGES[@]}" >"$LAB/machine-base.log" 2>&1 9>&- ||
    lab_die "making the machine failed, see $LAB/machine-base.log: $(tail -n 3 "$LAB/machine-base.log")"
  machine_configure
  printf '%s\n' "$recipe" >"$MACHINE_BASE/.made"
}

# machine_boot DEBS: a new machine, with the folder DEBS as /debs.
machine_boot() {
  mkdir -p "$MACHINE_CACHE/partial" "$MACHINE_SOCK" "$LAB/guests"
  machine_make_base
  rm -rf --one-file-system "$MACHINE"
  cp -a --reflink=auto "$MACHINE_BASE" "$MACHINE"
  systemd-nspawn -q -D "$MACHINE" -b --register=no --keep-unit --console=pipe --resolv-conf=copy-host \
    --bind="$LAB/pools" --bind="$LAB/guests" --bind-ro="$LAB/guest" --bind-ro="$LAB/cache/kernel" \
    --bind-ro="$CEPH_KEY_FILE" --bind="$MACHINE_SOCK:/run/libvirt" \
    --bind="$MACHINE_CACHE:/var/cache/apt/archives" --bind-ro="$1:/debs" \
    >"$LAB/machine.log" 2>&1 9>&- </dev/null &
  MACHINE_PID=$!
  lab_wait 20 "the machine's init" machine_find_init
  lab_wait 60 "the machine to boot" machine_is_up
  lab_wait 60 "the machine's libvirtd" machine_virsh version
  machine_define_secret
}

machine_virsh() { virsh -q -c "$MACHINE_URI" "$@" 9>&-; }

machine_define_secret() {
  cat >"$LAB/machine-secret.xml" <<XML
<secret ephemeral='no' private='no'>
  <uuid>$LAB_SECRET_UUID</uuid>
  <usage type='ceph'><name>client.volferry secret</name></usage>
</secret>
XML
  machine_virsh secret-define "$LAB/machine-secret.xml" >/dev/null
  machine_virsh secret-set-value "$LAB_SECRET_UUID" --file "$CEPH_KEY_FILE" >/dev/null
}

machine_find_init() {
  kill -0 "$MACHINE_PID" || lab_die "the machine ended: $(tail -n 3 "$LAB/machine.log")"
  read -r MACHINE_INIT < <(pgrep -P "$MACHINE_PID") && [[ $(<"/proc/$MACHINE_INIT/comm") == systemd ]]
}

machine_is_up() {
  local state
  state=$(inside systemctl is-system-running || true)
  [[ $state == running || $state == degraded ]]
}

# inside CMD..: runs it in the machine.
inside() {
  nsenter --target "$MACHINE_INIT" --mount --uts --ipc --pid --cgroup --root --wd -- \
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 TERM=dumb \
    DEBIAN_FRONTEND=noninteractive ${http_proxy:+http_proxy="$http_proxy"} "$@" </dev/null
}

# Its guests are not waited for: with its init everything in it ends.
machine_off() {
  [[ -n $MACHINE_PID ]] || return 0
  if [[ -n $MACHINE_INIT && $(<"/proc/$MACHINE_INIT/comm") == systemd ]] 2>/dev/null; then
    kill -KILL "$MACHINE_INIT" || true
  else
    kill -TERM "$MACHINE_PID" 2>/dev/null || true
  fi
  wait "$MACHINE_PID" 2>/dev/null || true
  MACHINE_PID='' MACHINE_INIT=''
}
