#!/usr/bin/env bash
# Converts a volume of the laboratory to a raw file, for the verifier.
#   to-raw.sh VOLUME FORMAT OUT    VOLUME is a file or rbd:POOL/IMAGE[@SNAP]; FORMAT raw or qcow2
set -euo pipefail
# shellcheck source=tests/lab/env.sh
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
# shellcheck source=tests/lab/ceph.sh
source "$LAB_SCRIPTS/ceph.sh"

[[ $# == 3 ]] || lab_die "usage: to-raw.sh VOLUME FORMAT OUT"
volume=$1
if [[ $volume == rbd:* ]]; then volume=$volume:id=volferry:conf=$CEPH_CONF_FILE; fi
# No -U: a volume that somebody still writes to must not be judged.
qemu-img convert -f "$2" -O raw "$volume" "$3"
