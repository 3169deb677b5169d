# shellcheck shell=bash
# Private libvirt daemons of the laboratory, several side by side, each in a mount namespace of its
# own: the host's libvirt is never touched. To be sourced after env.sh, ceph.sh and root.sh.
#
# Modes: root        QEMU runs as root
#        qemu        QEMU runs as libvirt-qemu, libvirt changes the owner of what it opens
#        qemu-static QEMU runs as libvirt-qemu, ownership is left as it is
#
# A daemon named after a release of root.sh (trixie) runs in that root, with its libvirt and its QEMU, on the same Ceph
# and the same pools: the lab's folder is there under the same path, and so is its socket. What is mounted for it is in
# its mount namespace and ends with it; the root itself is read-only in there, so that it can be kept and shared.
#
# There is no virtlogd: QEMU writes its log and the serial files itself (stdio_handler = "file").
# virtlogd would rotate a serial file at 2 MiB, and acknowledgements of the guest with it.

libvirtd_dir() { printf '%s/libvirt/%s\n' "$LAB" "$1"; }
libvirtd_pidfile() { printf '%s/libvirtd.pid\n' "$(libvirtd_dir "$1")"; }
lab_libvirtd_uri() { printf 'qemu+unix:///system?socket=%s/sock/libvirt-sock\n' "$(libvirtd_dir "$1")"; }
lab_libvirtd_running() { lab_pid "$(libvirtd_pidfile "$1")" libvirtd "$(libvirtd_dir "$1")/" >/dev/null; }
lab_virsh() { local name=$1; shift; virsh -q -c "$(lab_libvirtd_uri "$name")" "$@" 9>&-; }

libvirtd_write_conf() {
  local dir=$1 mode=$2 user group owner
  case $mode in
    root) user=root group=root owner=0 ;;
    qemu) user=libvirt-qemu group=libvirt-qemu owner=1 ;;
    qemu-static) user=libvirt-qemu group=libvirt-qemu owner=0 ;;
    *) lab_die "unknown libvirtd mode '$mode' (root, qemu or qemu-static)" ;;
  esac
  cat >"$dir/etc/qemu.conf" <<CONF
security_driver = "none"
user = "$user"
group = "$group"
dynamic_ownership = $owner
remember_owner = 0
cgroup_controllers = [ ]
namespaces = [ ]
stdio_handler = "file"
CONF
  cat >"$dir/etc/libvirtd.conf" <<CONF
unix_sock_dir = "$dir/sock"
unix_sock_ro_perms = "0700"
unix_sock_rw_perms = "0700"
auth_unix_ro = "none"
auth_unix_rw = "none"
host_uuid = "$(<"$dir/host-uuid")"
log_level = 3
log_outputs = "3:file:$dir/log/libvirtd.log"
CONF
}

# Runs inside the new mount namespace: the daemon's folders over the system's, then the daemon.
# "slave": mounts made outside later appear inside, ours never leave.
libvirtd_enter() {
  cat <<'INNER'
set -euo pipefail
dir=$1 root=$2 lab=$3
if [[ -n $root ]]; then
  # Where to mount is made before the root is closed; what is kept in it is the same for every lab.
  for folder in /run/libvirt /var/lib/libvirt /etc/libvirt /var/cache/libvirt /var/log/libvirt "$lab"; do
    mkdir -p "$root$folder"
  done
  mount --bind "$root" "$root"
  mount -o remount,bind,ro "$root"
  for folder in proc sys dev; do mount --rbind "/$folder" "$root/$folder"; done
  for folder in /run /tmp /var/tmp; do mount -t tmpfs -o mode=1777 tmpfs "$root$folder"; done
  mkdir -p "$root$lab" "$root/run/lock"
  mount --bind "$lab" "$root$lab"
  # With the small pool, and with what is mounted there later.
  mount --rbind "$lab/pools" "$root$lab/pools"
fi
bind() { mkdir -p "$root$2"; mount --bind "$dir/$1" "$root$2"; }
bind run /run/libvirt
bind lib /var/lib/libvirt
bind etc /etc/libvirt
bind cache /var/cache/libvirt
bind log /var/log/libvirt
# Guests are emulated (a KVM that answers may still never run a kernel). Without KVM and the 32-bit
# emulator in sight libvirt finds out what QEMU can do in a few seconds instead of 12, and keeps it.
# An empty read-only file: not executable, and not writable even for root.
hide() {
  [[ -e $1 ]] || return 0
  mount --bind "$dir/nothing" "$1"
  mount -o remount,bind,ro "$1"
}
: >"$dir/nothing"
hide "$root/dev/kvm"
hide "$(readlink -f "$root/usr/bin/qemu-system-i386")"
exec ${root:+chroot "$root"} libvirtd -d -f /etc/libvirt/libvirtd.conf -p "$dir/libvirtd.pid"
INNER
}

# Live QEMUs of a daemon: "pid name" a line, from libvirt's own pid files.
libvirtd_qemus() {
  local dir file name pid
  dir=$(libvirtd_dir "$1")
  for file in "$dir"/run/qemu/*.pid; do
    [[ -e $file ]] || continue
    name=$(basename "$file" .pid)
    if pid=$(lab_pid "$file" qemu-system "guest=$name"); then printf '%s %s\n' "$pid" "$name"; fi
  done
}

libvirtd_define_secret() {
  local name=$1 dir
  dir=$(libvirtd_dir "$name")
  cat >"$dir/secret.xml" <<XML
<secret ephemeral='no' private='no'>
  <uuid>$LAB_SECRET_UUID</uuid>
  <usage type='ceph'><name>client.volferry secret</name></usage>
</secret>
XML
  lab_virsh "$name" secret-define "$dir/secret.xml" >/dev/null
  lab_virsh "$name" secret-set-value "$LAB_SECRET_UUID" --file "$CEPH_KEY_FILE" >/dev/null
}

# lab_libvirtd_start NAME MODE: start it, or verify the one that runs. Guests that outlived a killed
# daemon are taken over by the new one.
lab_libvirtd_start() {
  local name=$1 mode=$2 dir root
  [[ $name =~ ^[a-z0-9-]{1,12}$ ]] || lab_die "libvirtd name '$name': 1 to 12 of a-z, 0-9, -"
  dir=$(libvirtd_dir "$name")
  if lab_libvirtd_running "$name"; then
    [[ $(<"$dir/mode") == "$mode" ]] || lab_die "libvirtd '$name' already runs in mode $(<"$dir/mode"), not $mode"
  else
    mkdir -p "$dir"/{run,lib,etc,cache,log,sock}
    root=
    if root_is_release "$name"; then
      root=$(lab_root_dir "$name")
      lab_root_ready "$name" || lab_die "there is no root for libvirtd '$name': lab-up.sh $name makes it"
    fi
    [[ -s $dir/host-uuid ]] || cat /proc/sys/kernel/random/uuid >"$dir/host-uuid"
    printf '%s\n' "$mode" >"$dir/mode"
    libvirtd_write_conf "$dir" "$mode"
    rm -f "$dir/libvirtd.pid" "$dir/sock/libvirt-sock"
    lab_spawn unshare -m --propagation slave bash -c "$(libvirtd_enter)" libvirtd-enter "$dir" "$root" "$LAB" \
      >"$dir/log/start.log" 2>&1 ||
      lab_die "libvirtd '$name' did not start: $(tail -n 3 "$dir/log/start.log")"
  fi
  lab_wait 30 "libvirtd '$name' to answer" lab_virsh "$name" version
  libvirtd_define_secret "$name"
}

# lab_libvirtd_inside NAME CMD...: becomes CMD where the daemon is: in its root, with its libraries and programs.
lab_libvirtd_inside() {
  local name=$1 pid
  shift
  pid=$(lab_pid "$(libvirtd_pidfile "$name")" libvirtd "$(libvirtd_dir "$name")/") || lab_die "libvirtd '$name' does not run"
  exec nsenter --target "$pid" --mount --root --wd -- "$@"
}

# lab_libvirtd_stop NAME: its guests first (killed: their disks are the lab's), then the daemon.
lab_libvirtd_stop() {
  local name=$1 pid guest dir
  dir=$(libvirtd_dir "$name")
  lab_stop "$dir/libvirtd.pid" libvirtd "$dir/"
  while read -r pid guest; do
    kill -KILL "$pid" 2>/dev/null || true
    lab_wait 30 "guest $guest to end" lab_gone "$dir/run/qemu/$guest.pid" qemu-system "guest=$guest"
  done < <(libvirtd_qemus "$name")
  rm -rf "${dir:?}/run" "${dir:?}/lib" "${dir:?}/sock" "${dir:?}/etc"
}

# lab_libvirtd_kill9 NAME: a crash; its guests go on. lab_libvirtd_start brings it back.
lab_libvirtd_kill9() { lab_kill9 "$(libvirtd_pidfile "$1")" libvirtd "$(libvirtd_dir "$1")/"; }

# lab_libvirtd_lost NAME: what a power cut leaves: no daemon, no guest, nothing in /run. lab_libvirtd_start is the
# host's next boot.
lab_libvirtd_lost() {
  local name=$1 pid guest dir
  dir=$(libvirtd_dir "$name")
  lab_libvirtd_kill9 "$name"
  while read -r pid guest; do
    kill -KILL "$pid" 2>/dev/null || true
    lab_wait 30 "guest $guest to end" lab_gone "$dir/run/qemu/$guest.pid" qemu-system "guest=$guest"
  done < <(libvirtd_qemus "$name")
  rm -rf "${dir:?}/run"
}

lab_libvirtd_names() {
  local dir
  for dir in "$LAB"/libvirt/*/; do
    if [[ -d $dir ]]; then basename "$dir"; fi
  done
}
