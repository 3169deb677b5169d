# shellcheck shell=bash
# Shared ground of the laboratory's scripts: folders, messages, bounded waiting, and processes
# known by pid files. To be sourced; the caller has set -euo pipefail.
#
# Settings taken from the environment (all optional):
#   VOLFERRY_LAB_DIR       where the lab lives (default <repo>/.lab, see lab_default_dir)
#   VOLFERRY_LAB_OBJECTSTORE  memstore (default, quick) or bluestore (survives a killed OSD)
#   VOLFERRY_LAB_SMALL_MIB    size of the small file system "small" (default 200)

LAB_SCRIPTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
LAB_REPO=$(cd "$LAB_SCRIPTS/../.." && pwd -P)

lab_say() { printf 'lab: %s\n' "$*" >&2; }
lab_die() { printf 'lab: error: %s\n' "$*" >&2; exit 1; }

# lab_traversable DIR: may any user walk through every existing folder on the way to DIR?
lab_traversable() {
  local at=$1 mode
  while :; do
    if [[ -e $at ]]; then
      mode=$(stat -Lc %a "$at")
      (( (8#$mode & 1) == 1 )) || return 1
    fi
    [[ $at == / ]] && return 0
    at=$(dirname "$at")
  done
}

# The lab's folder: inside the repository, unless QEMU's own user could not reach it there or the
# path is too long for a unix socket (108 bytes, the longest of ours takes 45).
lab_default_dir() {
  local inside=$LAB_REPO/.lab
  if lab_traversable "$inside" && (( ${#inside} <= 60 )); then
    printf '%s\n' "$inside"
  else
    printf '/var/tmp/volferry-lab-%s\n' "$(printf '%s' "$LAB_REPO" | sha256sum | cut -c1-8)"
  fi
}

VOLFERRY_LAB_DIR=${VOLFERRY_LAB_DIR:-$(lab_default_dir)}
export VOLFERRY_LAB_DIR
LAB=$VOLFERRY_LAB_DIR
# One fixed uuid for the Ceph user's libvirt secret, the same in every daemon of the lab.
LAB_SECRET_UUID=5e0f1d8a-2b3c-4d5e-8f60-716273747576
export LAB_SECRET_UUID

lab_check_dir() {
  [[ $LAB == /* ]] || lab_die "VOLFERRY_LAB_DIR must be an absolute path: $LAB"
  [[ $LAB =~ ^[A-Za-z0-9/._-]+$ ]] || lab_die "VOLFERRY_LAB_DIR has characters the lab cannot quote everywhere: $LAB"
  (( ${#LAB} <= 60 )) || lab_die "VOLFERRY_LAB_DIR is too long for unix sockets below it (60 at most): $LAB"
  lab_traversable "$LAB" || lab_die "user libvirt-qemu cannot walk to $LAB: set VOLFERRY_LAB_DIR to a folder every user can reach"
}

lab_need_root() { [[ $EUID == 0 ]] || lab_die "the lab needs root (mounts, libvirtd, QEMU as another user)"; }

# Only one lab-up or lab-down at a time. Daemons must not inherit the lock: see lab_spawn.
lab_lock() {
  mkdir -p "$LAB"
  exec 9>"$LAB/.lock"
  flock -w 300 9 || lab_die "another lab script has held $LAB/.lock for 300 s"
}

# lab_spawn CMD...: run a command that leaves a daemon behind, without our lock and terminal.
lab_spawn() { "$@" 9>&- </dev/null; }

# lab_wait SECONDS WHAT CMD...: poll CMD until it succeeds, or die saying what was waited for.
lab_wait() {
  local seconds=$1 what=$2 end
  shift 2
  end=$((SECONDS + seconds))
  until "$@" >/dev/null 2>&1; do
    (( SECONDS < end )) || lab_die "waited ${seconds} s in vain for $what"
    sleep 0.1
  done
}

# lab_pid PIDFILE EXE [WORD]: print the pid if that process lives, runs EXE (a prefix of the program's
# file name) and carries WORD on its command line. A stale or reused pid is no match.
lab_pid() {
  local file=$1 want=$2 word=${3:-} pid exe
  [[ -s $file ]] || return 1
  read -r pid <"$file" || true
  [[ $pid =~ ^[0-9]+$ && -d /proc/$pid ]] || return 1
  exe=$(readlink "/proc/$pid/exe" 2>/dev/null) || return 1
  exe=${exe##*/}
  [[ $exe == "$want"* ]] || return 1
  if [[ -n $word ]]; then
    tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$word" || return 1
  fi
  printf '%s\n' "$pid"
}

lab_gone() { ! lab_pid "$@" >/dev/null; }

# lab_stop PIDFILE EXE [WORD]: end that process: asked first, killed after 10 s. Nothing to end is fine.
lab_stop() {
  local pid end
  if pid=$(lab_pid "$@"); then
    kill -CONT "$pid" 2>/dev/null || true
    kill -TERM "$pid" 2>/dev/null || true
    end=$((SECONDS + 10))
    until lab_gone "$@"; do
      if (( SECONDS >= end )); then kill -KILL "$pid" 2>/dev/null || true; break; fi
      sleep 0.1
    done
    lab_wait 10 "process $pid ($2) to end" lab_gone "$@"
  fi
  rm -f "$1"
}

# lab_kill9 PIDFILE EXE [WORD]: the same without asking; for tests of crashes.
lab_kill9() {
  local pid
  if pid=$(lab_pid "$@"); then
    kill -KILL "$pid" 2>/dev/null || true
    lab_wait 10 "process $pid ($2) to end" lab_gone "$@"
  fi
}
