# shellcheck shell=bash
# File pools of the laboratory and the files that describe the lab to tests: volferry.toml and env.
# To be sourced after env.sh, ceph.sh and libvirtd.sh.

POOLS_DIR=$LAB/pools
SMALL_IMAGE=$LAB/small.img

pools_shared_mount() { [[ $(findmnt -rno PROPAGATION -M "$POOLS_DIR" 2>/dev/null) == *shared* ]]; }

# The pools' folder becomes a shared mount of its own, so that what is mounted below it later shows
# in the daemons' mount namespaces too, even where the root mount is private (containers).
pools_share() {
  pools_shared_mount && return 0
  mountpoint -q "$POOLS_DIR" || mount --bind "$POOLS_DIR" "$POOLS_DIR" ||
    lab_die "cannot mount here: the lab needs mounts (CAP_SYS_ADMIN)"
  mount --make-shared "$POOLS_DIR"
}

# A small file system, for a pool that really gets full. Without loop devices there is none.
pools_mount_small() {
  mountpoint -q "$POOLS_DIR/small" && return 0
  local mib=${VOLFERRY_LAB_SMALL_MIB:-200}
  if [[ ! -s $SMALL_IMAGE ]]; then
    truncate -s "${mib}M" "$SMALL_IMAGE"
    mke2fs -q -t ext4 -m 0 -O '^has_journal' "$SMALL_IMAGE"
  fi
  if ! mount -o loop "$SMALL_IMAGE" "$POOLS_DIR/small" 2>"$LAB/small.err"; then
    lab_say "WARNING: no loop mount ($(head -n 1 "$LAB/small.err")): pool 'small' is missing, tests that need it are skipped"
    return 1
  fi
}

pools_direct_io() { dd if=/dev/zero of="$POOLS_DIR/local/.direct" bs=4096 count=1 oflag=direct status=none 2>/dev/null; }

LAB_HAS_SMALL=no
LAB_HAS_DIRECT=no
lab_pools_up() {
  mkdir -p "$POOLS_DIR"
  pools_share
  mkdir -p "$POOLS_DIR"/{nfs,smp,local,small}
  if pools_mount_small; then LAB_HAS_SMALL=yes; fi
  if pools_direct_io; then
    LAB_HAS_DIRECT=yes
  else
    lab_say "WARNING: no O_DIRECT on $POOLS_DIR: guests use cache=writeback instead of none"
  fi
  rm -f "$POOLS_DIR/local/.direct"
}

lab_pools_down() {
  if mountpoint -q "$POOLS_DIR/small"; then umount "$POOLS_DIR/small"; fi
  if mountpoint -q "$POOLS_DIR"; then umount "$POOLS_DIR"; fi
}

toml_rbd_pool() {
  local name=$1 pool=$2 v2 v1
  read -r v2 v1 <"$CEPH_DIR/ports"
  cat <<TOML

[[pool]]
name = "$name"
type = "rbd"
monitors = ["127.0.0.1"]
port = $v1
pool = "$pool"
user = "volferry"
secret_uuid = "$LAB_SECRET_UUID"
key_file = "$CEPH_KEY_FILE"
TOML
}

toml_file_pool() {
  local name=$1 kind=$2
  printf '\n[[pool]]\nname = "%s"\ntype = "%s"\npath = "%s/%s"\n' "$name" "$kind" "$POOLS_DIR" "$name"
  if [[ $kind == local ]]; then printf 'host = "lab"\n'; fi
}

lab_write_toml() {
  {
    printf '# The pools of the laboratory, written by lab-up.\nhost_name = "lab"\n'
    toml_rbd_pool ceph-a vf-a
    toml_rbd_pool ceph-b vf-b
    toml_file_pool nfs nfs
    toml_file_pool smp shared-mount-point
    toml_file_pool local local
    if [[ $LAB_HAS_SMALL == yes ]]; then toml_file_pool small local; fi
  } >"$LAB/volferry.toml.new"
  mv "$LAB/volferry.toml.new" "$LAB/volferry.toml"
}

# KEY=value, no quoting needed: the lab's path has no characters that would need it.
lab_write_env() {
  local v2 v1
  read -r v2 v1 <"$CEPH_DIR/ports"
  cat >"$LAB/env.new" <<ENV
VOLFERRY_LAB_DIR=$LAB
VOLFERRY_LAB_SCRIPTS=$LAB_SCRIPTS
VOLFERRY_LAB_URI=$(lab_libvirtd_uri main)
VOLFERRY_LAB_LIBVIRT_MODE=$(<"$(libvirtd_dir main)/mode")
VOLFERRY_LAB_CONFIG=$LAB/volferry.toml
VOLFERRY_LAB_CEPH_CONF=$CEPH_CONF_FILE
VOLFERRY_LAB_MON_HOST=127.0.0.1
VOLFERRY_LAB_MON_PORT=$v1
VOLFERRY_LAB_MON_PORT_V2=$v2
VOLFERRY_LAB_RBD_USER=volferry
VOLFERRY_LAB_RBD_POOL_A=vf-a
VOLFERRY_LAB_RBD_POOL_B=vf-b
VOLFERRY_LAB_KEY_FILE=$CEPH_KEY_FILE
VOLFERRY_LAB_SECRET_UUID=$LAB_SECRET_UUID
VOLFERRY_LAB_POOL_NFS=$POOLS_DIR/nfs
VOLFERRY_LAB_POOL_SMP=$POOLS_DIR/smp
VOLFERRY_LAB_POOL_LOCAL=$POOLS_DIR/local
VOLFERRY_LAB_POOL_SMALL=$([[ $LAB_HAS_SMALL == yes ]] && printf '%s/small' "$POOLS_DIR")
VOLFERRY_LAB_LOOP=$LAB_HAS_SMALL
VOLFERRY_LAB_DIRECT_IO=$LAB_HAS_DIRECT
VOLFERRY_LAB_KERNEL=$LAB/cache/kernel/vmlinuz
ENV
  mv "$LAB/env.new" "$LAB/env"
}
