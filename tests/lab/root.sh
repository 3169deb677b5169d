# shellcheck shell=bash
# Roots of newer Debian releases for the laboratory: a release's libvirt, QEMU and Ceph libraries in a folder, made
# with debootstrap once and kept. A daemon in it is one of libvirtd.sh's, named after its release. To be sourced after
# env.sh.
#
#   VOLFERRY_LAB_ROOT   the folder of the root (default: root-RELEASE in the lab's folder). One that is named here is
#                       shared by whatever labs name it, and stays when a lab is purged.
#
# What is under test runs in there too (ctl.sh libvirtd-inside): the agent, built on Debian 12, finds the release's libvirt,
# librbd, librados and qemu-img by the names they have on both, as on a host of that release. Only virsh, rbd and the
# verifier stay outside, and talk to the daemon over its socket and to Ceph.
#
# Whatever is mounted for the making lives in a mount namespace of its own and ends with it.

# What the recipe makes; a root of another recipe is made anew. Without virtlogd and networks, as in the main lab.
ROOT_PACKAGES=(
  libvirt-daemon-system libvirt-clients libvirt-daemon-driver-qemu libvirt-daemon-driver-storage-rbd
  qemu-system-x86 qemu-block-extra qemu-utils ceph-common librbd1 librados2
)
ROOT_RELEASES=(trixie)
ROOT_MARK=.volferry-lab-root

# Has a daemon of this name a root of its own?
root_is_release() { [[ " ${ROOT_RELEASES[*]} " == *" $1 "* ]]; }

lab_root_dir() { printf '%s\n' "${VOLFERRY_LAB_ROOT:-$LAB/root-$1}"; }

root_recipe() { printf '%s %s\n' "$1" "${ROOT_PACKAGES[*]}"; }

lab_root_ready() {
  local mark
  mark=$(lab_root_dir "$1")/$ROOT_MARK
  [[ -s $mark && $(<"$mark") == "$(root_recipe "$1")" ]]
}

# root_mirror LABEL: where the host's own apt has packages of that label from, the first of several.
root_mirror() {
  local found
  found=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' "Label: $1" 'Component: main') || return 0
  head -n 1 <<<"$found"
}

root_sources() {
  local release=$1 mirror=$2 security=$3
  printf 'deb %s %s main\ndeb %s %s-updates main\n' "$mirror" "$release" "$mirror" "$release"
  if [[ -n $security ]]; then printf 'deb %s %s-security main\n' "$security" "$release"; fi
}

# Runs in a mount namespace of its own: debootstrap, then the packages. Nothing of the installed services starts.
root_install() {
  cat <<'INNER'
set -euo pipefail
root=$1 release=$2 mirror=$3 sources=$4
shift 4
include=
if [[ $mirror == https:* ]]; then include=--include=ca-certificates; fi
debootstrap --variant=minbase $include "$release" "$root" "$mirror"
printf '%s\n' "$sources" >"$root/etc/apt/sources.list"
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"
# A root that is lost to a power cut is made again.
printf 'force-unsafe-io\n' >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io"
printf 'path-exclude=/usr/share/doc/*\npath-exclude=/usr/share/man/*\npath-exclude=/usr/share/locale/*\n' \
  >"$root/etc/dpkg/dpkg.cfg.d/small"
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
for folder in proc sys dev; do mount --rbind "/$folder" "$root/$folder"; done
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
chroot "$root" apt-get update -q
chroot "$root" apt-get install -y -q --no-install-recommends "$@"
chroot "$root" apt-get clean
INNER
}

# lab_root_make RELEASE: the finished root, made if there is none. It gets its name when it is finished, so that one
# half made is never taken for it; what an earlier try left is removed.
lab_root_make() {
  local release=$1 root mirror sources begun=$SECONDS proxy=
  root=$(lab_root_dir "$release")
  [[ $root =~ ^/[A-Za-z0-9/._-]+$ ]] || lab_die "VOLFERRY_LAB_ROOT must be an absolute path without odd characters: $root"
  mkdir -p "$(dirname "$root")"
  # Of several labs that name it one makes it and the others wait.
  exec 7>"$root.lock"
  flock -w 900 7 || lab_die "another lab has been making $root for 900 s"
  if lab_root_ready "$release"; then
    exec 7>&-
    return 0
  fi
  mirror=$(root_mirror Debian)
  [[ -n $mirror ]] || lab_die "apt has no Debian mirror to make $release from"
  sources=$(root_sources "$release" "$mirror" "$(root_mirror Debian-Security)")
  eval "$(apt-config shell proxy Acquire::http::Proxy)"
  if [[ -n $proxy ]]; then export http_proxy=${http_proxy:-$proxy}; fi
  lab_say "making a root of $release in $root from $mirror (takes a minute or two)"
  if [[ -e $root && ! -e $root/$ROOT_MARK ]]; then lab_die "$root is there and is no root the lab made; not touching it"; fi
  rm -rf --one-file-system "${root:?}.part" "$root"
  unshare -m bash -c "$(root_install)" root-install "$root.part" "$release" "$mirror" "$sources" \
    "${ROOT_PACKAGES[@]}" >"$root.log" 2>&1 7>&- 9>&- ||
    lab_die "making the root of $release failed, see $root.log: $(tail -n 3 "$root.log")"
  root_recipe "$release" >"$root.part/$ROOT_MARK"
  mv "$root.part" "$root"
  exec 7>&-
  lab_say "the root of $release took $((SECONDS - begun)) s"
}
