#!/usr/bin/env bash
# Builds what the laboratory's guests boot from, once, into $VOLFERRY_LAB_DIR/guest:
#   initramfs.gz  busybox and the virtio modules; mounts the FIRST DISK's partition as root and goes there
#   root.raw      the root disk: partition 1 an ext4 with busybox and the writer, the rest for the writer
#   data.raw      the data disk, with some content of its own
# and the programs lab-guest and lab-verify into $VOLFERRY_LAB_DIR/bin. Rebuilds what is out of date.
set -euo pipefail
# shellcheck source=tests/lab/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"

GUEST=$LAB/guest
ROOT_MIB=96
DATA_MIB=192
# Partition 1 begins at 1 MiB and has 32: see ROOT_SECTORS in tests/src/guest.rs.
PART_SECTOR=2048
PART_MIB=32
# The order matters: each needs the ones before it.
MODULES=(virtio_ring virtio virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci virtio_blk)

build_programs() {
  local target=${CARGO_TARGET_DIR:-$LAB_REPO/target} triple=x86_64-unknown-linux-gnu
  mkdir -p "$LAB/bin"
  # The guest's program is static: there is no libc in the guest.
  (cd "$LAB_REPO" &&
    RUSTFLAGS='-C target-feature=+crt-static' cargo build -q --release -p volferry-tests --bin lab-writer --target "$triple" &&
    cargo build -q --release -p volferry-tests --bin lab-verify --bin lab-guest) || lab_die "cargo build failed"
  local writer=$target/$triple/release/lab-writer name
  # ldd fails for some static programs and says so for others; both are fine.
  ! ldd "$writer" 2>/dev/null | grep -q '=>' || lab_die "$writer is not static"
  install_if_new "$writer" "$GUEST/lab-writer"
  for name in lab-verify lab-guest; do install_if_new "$target/release/$name" "$LAB/bin/$name"; done
}

install_if_new() {
  cmp -s "$1" "$2" && return 0
  cp "$1" "$2.new"
  mv "$2.new" "$2"
}

# A tree with busybox under the names the scripts need.
busybox_tree() {
  local tree=$1 name
  shift
  mkdir -p "$tree"/{bin,sbin,dev,proc,sys,root,etc}
  cp /bin/busybox "$tree/bin/busybox"
  for name in "$@"; do ln -sf busybox "$tree/bin/$name"; done
}

build_initramfs() {
  local tree=$GUEST/work/initramfs module file
  busybox_tree "$tree" sh mount insmod switch_root sleep echo
  for module in "${MODULES[@]}"; do
    file=$(find "$LAB/cache/kernel/modules" -name "$module.ko*" | head -n 1)
    [[ -n $file ]] || lab_die "the guest kernel has no module $module"
    case $file in
      *.xz) xz -dc "$file" >"$tree/$module.ko" ;;
      *) cp "$file" "$tree/$module.ko" ;;
    esac
  done
  {
    printf '#!/bin/sh\nmount -t devtmpfs dev /dev\nmount -t proc proc /proc\nmount -t sysfs sys /sys\n'
    printf 'insmod /%s.ko\n' "${MODULES[@]}"
    cat <<'INIT'
# The disks are probed asynchronously: wait for the root partition, 30 s at most.
n=0
while [ ! -b /dev/vda1 ] || [ ! -b /dev/vdb ]; do
  n=$((n + 1))
  if [ $n -gt 300 ]; then echo "FATAL no root disk" >/dev/ttyS0; break; fi
  sleep 0.1
done
mount -t ext4 -o ro /dev/vda1 /root || echo "FATAL root disk does not mount" >/dev/ttyS0
mount --move /dev /root/dev
mount --move /proc /root/proc
mount --move /sys /root/sys
exec switch_root /root /sbin/init
INIT
  } >"$tree/init"
  chmod 755 "$tree/init"
  (cd "$tree" && find . | cpio -o -H newc --quiet | gzip -1) >"$GUEST/initramfs.gz.new"
  mv "$GUEST/initramfs.gz.new" "$GUEST/initramfs.gz"
}

# One primary partition for the root, one for the rest; 16 bytes each, no geometry.
write_partition_table() {
  le32() { printf '%b' "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24 & 255)))"; }
  local image=$1 total=$((ROOT_MIB * 2048)) first=$PART_SECTOR size=$((PART_MIB * 2048))
  {
    printf '\x00\xfe\xff\xff\x83\xfe\xff\xff'
    le32 "$first"
    le32 "$size"
    printf '\x00\xfe\xff\xff\x83\xfe\xff\xff'
    le32 $((first + size))
    le32 $((total - first - size))
  } | dd of="$image" bs=1 seek=446 conv=notrunc status=none
  printf '\x55\xaa' | dd of="$image" bs=1 seek=510 conv=notrunc status=none
}

build_root() {
  local tree=$GUEST/work/root part=$GUEST/work/root.ext4
  busybox_tree "$tree" sh
  cp "$GUEST/lab-writer" "$tree/sbin/lab-writer"
  printf '#!/bin/sh\nexec /sbin/lab-writer\n' >"$tree/sbin/init"
  chmod 755 "$tree/sbin/init" "$tree/sbin/lab-writer"
  # No journal: a read-only mount then writes nothing at all.
  rm -f "$part"
  mke2fs -q -t ext4 -O '^has_journal' -m 0 -d "$tree" "$part" "${PART_MIB}M" >/dev/null
  rm -f "$GUEST/root.raw.new"
  truncate -s "${ROOT_MIB}M" "$GUEST/root.raw.new"
  write_partition_table "$GUEST/root.raw.new"
  dd if="$part" of="$GUEST/root.raw.new" bs=1M seek=1 conv=notrunc,sparse status=none
  mv "$GUEST/root.raw.new" "$GUEST/root.raw"
}

# One MiB of content in every sixteen: something to keep, and holes to stay sparse.
build_data() {
  local at
  rm -f "$GUEST/data.raw.new"
  truncate -s "${DATA_MIB}M" "$GUEST/data.raw.new"
  for ((at = 0; at < DATA_MIB; at += 16)); do
    dd if=/dev/urandom of="$GUEST/data.raw.new" bs=1M count=1 seek="$at" conv=notrunc status=none
  done
  mv "$GUEST/data.raw.new" "$GUEST/data.raw"
}

# outdated RESULT SOURCE...: is RESULT missing or older than a source?
outdated() {
  local result=$1 source
  shift
  [[ -s $result ]] || return 0
  for source in "$@"; do
    if [[ $source -nt $result ]]; then return 0; fi
  done
  return 1
}

main() {
  lab_check_dir
  mkdir -p "$GUEST/work"
  exec 8>"$GUEST/.lock"
  flock -w 900 8 || lab_die "another build has held $GUEST/.lock for 900 s"
  build_programs 8>&-
  local self=${BASH_SOURCE[0]}
  if outdated "$GUEST/initramfs.gz" "$self" "$LAB/cache/kernel/vmlinuz"; then rm -rf "$GUEST/work/initramfs"; build_initramfs; fi
  if outdated "$GUEST/root.raw" "$self" "$GUEST/lab-writer"; then rm -rf "$GUEST/work/root"; build_root; fi
  if outdated "$GUEST/data.raw" "$self"; then build_data; fi
  rm -rf "$GUEST/work"
}

main "$@"
