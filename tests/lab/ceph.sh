# shellcheck shell=bash
# One-node Ceph of the laboratory: mon, mgr and OSD on loopback, pools vf-a and vf-b, user
# client.volferry. To be sourced after env.sh.

CEPH_DIR=$LAB/ceph
CEPH_CONF_FILE=$CEPH_DIR/ceph.conf
CEPH_POOLS=(vf-a vf-b)
CEPH_KEY_FILE=$CEPH_DIR/volferry.key

ceph_cmd() { ceph --connect-timeout 20 -c "$CEPH_CONF_FILE" "$@" 9>&-; }

# The same for commands that chat on standard error: heard only when they fail.
ceph_quiet() {
  local said
  said=$(ceph_cmd "$@" 2>&1) || lab_die "ceph $*: $said"
}

# The kind asked for; else the one that exists; else memstore.
ceph_objectstore() {
  if [[ -n ${VOLFERRY_LAB_OBJECTSTORE:-} ]]; then
    printf '%s\n' "$VOLFERRY_LAB_OBJECTSTORE"
  elif [[ -s $CEPH_DIR/objectstore ]]; then
    cat "$CEPH_DIR/objectstore"
  else
    printf 'memstore\n'
  fi
}

# Two free neighbouring ports below the ephemeral range, not the ones other clusters usually have.
ceph_pick_ports() {
  local base try busy
  busy=$(awk 'FNR > 1 { split($2, a, ":"); print a[2] }' /proc/net/tcp /proc/net/tcp6 2>/dev/null || true)
  for ((try = 0; try < 200; try++)); do
    base=$((20000 + 2 * (RANDOM % 5000)))
    if ! grep -qiE "^($(printf '%04X|%04X' "$base" $((base + 1))))$" <<<"$busy"; then
      printf '%s %s\n' "$base" $((base + 1))
      return 0
    fi
  done
  lab_die "found no two free ports for the Ceph monitor"
}

ceph_write_conf() {
  local fsid=$1 v2=$2 v1=$3
  cat >"$CEPH_CONF_FILE" <<CONF
[global]
fsid = $fsid
mon_host = [v2:127.0.0.1:$v2,v1:127.0.0.1:$v1]
mon_initial_members = lab
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_ipv6 = false
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
auth_allow_insecure_global_id_reclaim = false
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
paxos_propose_interval = 0.1
paxos_min_wait = 0.01
mon_data_avail_warn = 1
mon_data_avail_crit = 0
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 8
osd_pool_default_pgp_num = 8
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
osd_crush_update_on_start = true
rbd_default_features = 61
run_dir = $CEPH_DIR/run
pid_file = $CEPH_DIR/run/\$name.pid
admin_socket = $CEPH_DIR/run/\$cluster-\$name.\$pid.asok
log_file = $CEPH_DIR/log/\$name.log
log_to_stderr = false
mon_cluster_log_file = $CEPH_DIR/log/cluster.log
crash_dir = $CEPH_DIR/crash
[client]
log_file =
admin_socket =
pid_file =
[client.admin]
keyring = $CEPH_DIR/keyring
[client.volferry]
keyring = $CEPH_DIR/volferry.keyring
[mon]
mon_data = $CEPH_DIR/mon
[mgr]
mgr_data = $CEPH_DIR/mgr
keyring = $CEPH_DIR/mgr/keyring
mgr_initial_modules =
mgr_stats_period = 1
[osd]
osd_data = $CEPH_DIR/osd
keyring = $CEPH_DIR/osd/keyring
osd_journal_size = 100
osd_objectstore = $(<"$CEPH_DIR/objectstore")
osd_memory_target = 939524096
memstore_device_bytes = 8589934592
bluestore_block_size = 34359738368
bluestore_block_create = true
osd_max_object_name_len = 256
osd_max_object_namespace_len = 64
CONF
}

keytool() { ceph-authtool "$@" >/dev/null; }

ceph_make_keys() {
  keytool --create-keyring "$CEPH_DIR/mon.keyring" --gen-key -n mon. --cap mon 'allow *'
  keytool --create-keyring "$CEPH_DIR/keyring" --gen-key -n client.admin \
    --cap mon 'allow *' --cap osd 'allow *' --cap mds 'allow *' --cap mgr 'allow *'
  keytool --create-keyring "$CEPH_DIR/volferry.keyring" --gen-key -n client.volferry \
    --cap mon 'profile rbd' \
    --cap osd "$(printf 'profile rbd pool=%s, ' "${CEPH_POOLS[@]}" | sed 's/, $//')" \
    --cap mgr "$(printf 'profile rbd pool=%s, ' "${CEPH_POOLS[@]}" | sed 's/, $//')"
  mkdir -p "$CEPH_DIR/mgr" "$CEPH_DIR/osd"
  keytool --create-keyring "$CEPH_DIR/mgr/keyring" --gen-key -n mgr.lab \
    --cap mon 'allow profile mgr' --cap osd 'allow *' --cap mds 'allow *'
  keytool --create-keyring "$CEPH_DIR/osd/keyring" --gen-key -n osd.0 \
    --cap mon 'allow profile osd' --cap mgr 'allow profile osd' --cap osd 'allow *'
  local ring
  for ring in keyring volferry.keyring mgr/keyring osd/keyring; do
    keytool "$CEPH_DIR/mon.keyring" --import-keyring "$CEPH_DIR/$ring"
  done
  ceph-authtool -p -n client.volferry "$CEPH_DIR/volferry.keyring" >"$CEPH_KEY_FILE"
  chmod 600 "$CEPH_KEY_FILE" "$CEPH_DIR"/*.keyring "$CEPH_DIR/keyring"
}

ceph_start_daemon() {
  local kind=$1 id=$2
  lab_pid "$CEPH_DIR/run/$kind.$id.pid" "ceph-$kind" "$CEPH_CONF_FILE" >/dev/null && return 0
  lab_spawn "ceph-$kind" -i "$id" -c "$CEPH_CONF_FILE" >"$CEPH_DIR/log/start-$kind.log" 2>&1 ||
    lab_die "ceph-$kind did not start: $(tail -n 3 "$CEPH_DIR/log/start-$kind.log")"
}

ceph_osd_is_up() { ceph_cmd osd stat 2>/dev/null | grep -q ' 1 up'; }
ceph_pgs_clean() {
  ceph_cmd pg stat 2>/dev/null | grep -Eq '^[1-9][0-9]* pgs: [0-9]+ active\+clean;'
}

# Builds the cluster from nothing.
ceph_create() {
  local store
  store=$(ceph_objectstore)
  [[ $store == memstore || $store == bluestore ]] || lab_die "VOLFERRY_LAB_OBJECTSTORE: memstore or bluestore, not '$store'"
  rm -rf "$CEPH_DIR"
  mkdir -p "$CEPH_DIR"/{run,log,crash,mon,mgr,osd}
  chmod 700 "$CEPH_DIR/mon" "$CEPH_DIR/mgr" "$CEPH_DIR/osd"
  local fsid osd_uuid v2 v1
  fsid=$(</proc/sys/kernel/random/uuid)
  osd_uuid=$(</proc/sys/kernel/random/uuid)
  read -r v2 v1 < <(ceph_pick_ports)
  printf '%s %s\n' "$v2" "$v1" >"$CEPH_DIR/ports"
  printf '%s\n' "$store" >"$CEPH_DIR/objectstore"
  ceph_write_conf "$fsid" "$v2" "$v1"
  ceph_make_keys
  monmaptool --create --clobber --fsid "$fsid" --addv lab "[v2:127.0.0.1:$v2,v1:127.0.0.1:$v1]" \
    "$CEPH_DIR/monmap" >/dev/null
  ceph-mon -c "$CEPH_CONF_FILE" --mkfs -i lab --monmap "$CEPH_DIR/monmap" --keyring "$CEPH_DIR/mon.keyring" 9>&-
  ceph_start_daemon mon lab
  ceph_start_daemon mgr lab
  # The OSD's own uuid must be the one the monitor knows, or its boot is ignored without a word.
  local id
  id=$(ceph_cmd osd new "$osd_uuid")
  [[ $id == 0 ]] || lab_die "the first OSD got number $id instead of 0"
  ceph-osd -c "$CEPH_CONF_FILE" -i 0 --mkfs --osd-uuid "$osd_uuid" >"$CEPH_DIR/log/mkfs-osd.log" 2>&1 9>&- ||
    lab_die "ceph-osd --mkfs failed: $(tail -n 3 "$CEPH_DIR/log/mkfs-osd.log")"
  ceph_start_daemon osd 0
  lab_wait 60 "the OSD to be up" ceph_osd_is_up
  local pool
  for pool in "${CEPH_POOLS[@]}"; do
    ceph_quiet osd pool create "$pool" 8 8 replicated
    rbd -c "$CEPH_CONF_FILE" pool init "$pool" 9>&-
  done
  ceph_quiet config set mgr mgr/devicehealth/enable_monitoring false --force
  lab_wait 60 "the placement groups to be clean" ceph_pgs_clean
  ceph_ballast
  touch "$CEPH_DIR/created"
}

# A memstore counts what it holds and loses a little of it with every removal. Below nothing it counts as full for ever,
# and every write of every guest hangs: something heavier than all that is lost lies in the pool for good.
ceph_ballast() {
  [[ $(<"$CEPH_DIR/objectstore") == memstore ]] || return 0
  local number
  truncate -s 32M "$CEPH_DIR/ballast"
  for number in 1 2 3 4 5 6 7 8; do
    rados -c "$CEPH_CONF_FILE" -p "${CEPH_POOLS[0]}" put "lab-ballast-$number" "$CEPH_DIR/ballast" 9>&-
  done
  rm -f "$CEPH_DIR/ballast"
}

ceph_all_alive() {
  lab_pid "$CEPH_DIR/run/mon.lab.pid" ceph-mon "$CEPH_CONF_FILE" >/dev/null &&
    lab_pid "$CEPH_DIR/run/mgr.lab.pid" ceph-mgr "$CEPH_CONF_FILE" >/dev/null &&
    lab_pid "$CEPH_DIR/run/osd.0.pid" ceph-osd "$CEPH_CONF_FILE" >/dev/null
}

# lab_ceph_up: running and healthy afterwards. A memstore whose OSD died has lost its data: it is
# made anew. Bluestore is started again.
lab_ceph_up() {
  if [[ -e $CEPH_DIR/created && $(<"$CEPH_DIR/objectstore") == "$(ceph_objectstore)" ]]; then
    if ceph_all_alive && ceph_pgs_clean; then return 0; fi
    if [[ $(ceph_objectstore) == bluestore ]] || lab_pid "$CEPH_DIR/run/osd.0.pid" ceph-osd "$CEPH_CONF_FILE" >/dev/null; then
      lab_say "Ceph: starting what is missing"
      ceph_start_daemon mon lab
      ceph_start_daemon mgr lab
      ceph_start_daemon osd 0
      if (lab_wait 60 "Ceph to be healthy again" ceph_pgs_clean); then return 0; fi
    fi
  fi
  lab_say "Ceph: making a new cluster ($(ceph_objectstore))"
  lab_ceph_down
  ceph_create
}

lab_ceph_down() {
  lab_stop "$CEPH_DIR/run/osd.0.pid" ceph-osd "$CEPH_CONF_FILE"
  lab_stop "$CEPH_DIR/run/mgr.lab.pid" ceph-mgr "$CEPH_CONF_FILE"
  lab_stop "$CEPH_DIR/run/mon.lab.pid" ceph-mon "$CEPH_CONF_FILE"
}

# For tests of a hanging pool. After a stop the placement groups can stay laggy for very long:
# the OSD is declared down and comes back by itself.
lab_osd_freeze() { kill -STOP "$(lab_pid "$CEPH_DIR/run/osd.0.pid" ceph-osd "$CEPH_CONF_FILE")"; }
lab_osd_thaw() {
  kill -CONT "$(lab_pid "$CEPH_DIR/run/osd.0.pid" ceph-osd "$CEPH_CONF_FILE")"
  ceph_quiet osd down 0
  lab_wait 60 "the placement groups to be clean" ceph_pgs_clean
}
