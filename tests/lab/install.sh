#!/usr/bin/env bash
# Installs what the laboratory and the build need on Debian 12, and fetches a guest kernel into the
# lab's cache (unpacked, not installed). Does nothing, quickly, when everything is there.
set -euo pipefail
# shellcheck source=tests/lab/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

PACKAGES=(
  libvirt-daemon-system libvirt-clients libvirt-daemon-driver-qemu libvirt-daemon-driver-storage-rbd
  qemu-system-x86 qemu-block-extra qemu-utils
  ceph-mon ceph-osd ceph-mgr ceph-common
  libvirt-dev librados-dev librbd-dev pkg-config gcc libc6-dev
  man-db systemd
  busybox-static cpio e2fsprogs util-linux mount ca-certificates debootstrap bindfs
  python3-grpcio protobuf-compiler protobuf-compiler-grpc libprotobuf-dev
)

missing_packages() {
  local have
  have=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${PACKAGES[@]}" 2>/dev/null || true)
  local name
  for name in "${PACKAGES[@]}"; do
    grep -qx "$name installed" <<<"$have" || printf '%s\n' "$name"
  done
  # Wherever it comes from: it runs the cases.
  command -v python3 >/dev/null || printf 'python3\n'
}

qemu_version() { "$1" --version | sed -n '1s/.*version \([0-9.]*\).*/\1/p'; }

qemu_versions_agree() {
  command -v qemu-img >/dev/null && command -v qemu-system-x86_64 >/dev/null &&
    [[ $(qemu_version qemu-img) == "$(qemu_version qemu-system-x86_64)" ]]
}

UPDATED=
apt_update_once() {
  [[ -z $UPDATED ]] || return 0
  lab_need_root
  apt-get update -q >&2 || lab_die "apt-get update failed"
  UPDATED=yes
}

# The version of PACKAGE the release itself offers, without backports and without what is installed.
release_version() {
  local codename
  codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
  apt-cache madison "$1" | awk -F'|' -v rel="$codename" '
    { gsub(/ /, "", $2) }
    $3 ~ " " rel "(-security|-updates)?/" { print $2; exit }'
}

# The four QEMU packages must be of one version. A machine may come with qemu-utils from backports,
# and apt would then remove it without a word: all are named with the release's version.
install_packages() {
  local wanted=() name version
  apt_update_once
  for name in "$@"; do
    version=
    case $name in qemu-*) version=$(release_version "$name") ;; esac
    wanted+=("$name${version:+=$version}")
  done
  lab_say "installing: ${wanted[*]}"
  # Nothing of the installed services may start by itself: the lab runs its own.
  local policy=/usr/sbin/policy-rc.d made=
  if [[ ! -e $policy ]]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    made=yes
  fi
  local rc=0
  DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends --allow-downgrades \
    "${wanted[@]}" >&2 || rc=$?
  [[ -z $made ]] || rm -f "$policy"
  (( rc == 0 )) || lab_die "apt-get install failed ($rc)"
}

ensure_packages() {
  local missing
  mapfile -t missing < <(missing_packages)
  if (( ${#missing[@]} > 0 )) || ! qemu_versions_agree; then
    install_packages "${missing[@]}" qemu-system-x86 qemu-system-common qemu-system-data qemu-block-extra qemu-utils
    qemu_versions_agree ||
      lab_die "qemu-img $(qemu_version qemu-img) and qemu-system $(qemu_version qemu-system-x86_64) differ in version"
  fi
}

# Debian's cloud kernel: small, with virtio as modules. Its metapackage names the newest one.
ensure_kernel() {
  local cache=$LAB/cache/kernel name work
  [[ -s $cache/vmlinuz && -d $cache/modules ]] && return 0
  kernel_package() { apt-cache depends linux-image-cloud-amd64 2>/dev/null | awk '/Depends: linux-image-[0-9]/ { print $2; exit }'; }
  name=$(kernel_package)
  if [[ -z $name ]]; then
    apt_update_once
    name=$(kernel_package)
  fi
  [[ -n $name ]] || lab_die "apt knows no linux-image-cloud-amd64"
  mkdir -p "$LAB/cache"
  work=$(mktemp -d "$LAB/cache/fetch.XXXXXX")
  fetch() { (cd "$work" && apt-get download -q -o APT::Sandbox::User=root "$name" >&2); }
  if ! fetch; then
    apt_update_once
    name=$(kernel_package)
    fetch || lab_die "cannot download the guest kernel $name"
  fi
  dpkg-deb -x "$work"/linux-image-*.deb "$work/x"
  rm -rf "$cache"
  mkdir -p "$cache"
  cp "$work"/x/boot/vmlinuz-* "$cache/vmlinuz"
  mv "$work"/x/lib/modules/*/kernel "$cache/modules"
  rm -rf "$work"
  lab_say "guest kernel: $name"
}

# Prometheus's checker of rules and metrics, without the server and its service.
ensure_promtool() {
  local tool=$LAB/cache/promtool work
  [[ -x $tool ]] && return 0
  mkdir -p "$LAB/cache"
  work=$(mktemp -d "$LAB/cache/fetch.XXXXXX")
  fetch_prometheus() { (cd "$work" && apt-get download -q -o APT::Sandbox::User=root prometheus >&2); }
  if ! fetch_prometheus; then
    apt_update_once
    fetch_prometheus || lab_die "cannot download the package prometheus, which has promtool"
  fi
  dpkg-deb --fsys-tarfile "$work"/prometheus_*.deb | tar -x -C "$work" ./usr/bin/promtool
  mv "$work/usr/bin/promtool" "$tool"
  rm -rf "$work"
}

lab_check_dir
ensure_packages
ensure_kernel
ensure_promtool
