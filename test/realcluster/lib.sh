# shellcheck shell=bash
# Sourced by the launchers beside it; sets no state outside $dir and $cache.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
prog=${0##*/}
cache=${REALCLUSTER_CACHE:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/realcluster}

die() {
  printf '%s: %s\n' "$prog" "$*" >&2
  exit 1
}

# missing ends like die, with 3: what must be installed first isn't there.
missing() {
  printf '%s: %s\n' "$prog" "$*" >&2
  exit 3
}

need() { # COMMAND WHY
  command -v "$1" >/dev/null 2>&1 || missing "$1 not found: $2"
}

# want_java sets $java to a Java 17 or newer.
want_java() {
  java=${JAVA_HOME:+$JAVA_HOME/bin/}java
  need "$java" "install a JDK or JRE 17 or newer, or set JAVA_HOME"
  local v
  v=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
  [[ -n $v && $v -ge 17 ]] || missing "$java is version ${v:-unknown}, 17 or newer is needed"
}

# want_jars NAME sets $jars to a folder that holds everything pom-NAME.xml
# names. Maven runs once for each version of that file.
want_jars() {
  local pom=$here/pom-$1.xml sum log
  sum=$(sha256sum <"$pom")
  jars=$cache/$1-${sum:0:12}
  [[ -e $jars/.complete ]] && return
  need mvn "it is needed once, to resolve the jars of $1"
  mkdir -p "$cache"
  exec 9>"$cache/.lock"
  flock 9
  if [[ ! -e $jars/.complete ]]; then
    log=$cache/$1-resolve.log
    rm -rf "$jars" "$jars.tmp"
    mkdir -p "$jars.tmp"
    cp "$pom" "$jars.tmp/pom.xml"
    mvn -q -B -f "$jars.tmp/pom.xml" dependency:copy-dependencies \
      -DincludeScope=runtime -DoutputDirectory="$jars.tmp" >"$log" 2>&1 9>&- ||
      { tail -n 30 "$log" >&2; die "Maven could not resolve pom-$1.xml (full log: $log)"; }
    touch "$jars.tmp/.complete"
    mv "$jars.tmp" "$jars"
  fi
  exec 9>&-
}

# free_ports COUNT prints that many distinct ports with no listener, below
# the range from which the kernel picks ports of outgoing connections.
free_ports() {
  local -A used=()
  local f addr port n=0
  for f in /proc/net/tcp /proc/net/tcp6; do
    [[ -r $f ]] || continue
    while read -r _ addr _; do
      [[ $addr == *:* ]] && used[$((16#${addr##*:}))]=1
    done <"$f"
  done
  while ((n < $1)); do
    port=$((10240 + (RANDOM * 32768 + RANDOM) % 22000))
    [[ -n ${used[$port]:-} ]] && continue
    used[$port]=1
    port_open "$port" && continue
    printf '%s\n' "$port"
    n=$((n + 1))
  done
}

# A node is one process: $dir/NODE/{pid,log}. Its command line carries
# -Drealcluster=$dir/NODE, so that a recycled pid is never signalled.
pid_of() { # NODE: its pid, or nothing when it doesn't run
  local pid arg
  { read -r pid <"$dir/$1/pid"; } 2>/dev/null || return 0
  while IFS= read -r -d '' arg; do
    if [[ $arg == "-Drealcluster=$dir/$1" ]]; then
      printf '%s\n' "$pid"
      return 0
    fi
  done 2>/dev/null <"/proc/$pid/cmdline" || true
}

# close_fds drops what a daemon must not inherit: a caller's lock or pipe
# would stay held for as long as it runs. Use in a subshell only.
close_fds() {
  local fd
  for fd in "/proc/$BASHPID/fd/"*; do
    fd=${fd##*/}
    ((fd < 3)) || eval "exec $fd>&-"
  done
}

launch() { # NODE JAVA-ARGS...
  local node=$1
  shift
  mkdir -p "$dir/$node"
  : >>"$dir/$node/log"
  (
    cd "$dir/$node" || exit
    close_fds
    exec setsid "$java" -Drealcluster="$dir/$node" "$@" </dev/null >>log 2>&1
  ) &
  printf '%s\n' "$!" >"$dir/$node/pid"
  # Until it is exec'd, on a busy machine a while, pid_of does not know it.
  until [[ -n $(pid_of "$node") ]] || ! kill -0 "$!" 2>/dev/null; do sleep 0.02; done
  disown
}

port_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

now_ms() {
  local t=${EPOCHREALTIME/[^0-9]/}
  printf '%s\n' "$((t / 1000))"
}

fail_with_log() { # NODE MESSAGE
  printf '%s\n' "--- last lines of $dir/$1/log" >&2
  tail -n 30 "$dir/$1/log" >&2 || true
  die "$2"
}

# await SECONDS NODE WHAT COMMAND... runs COMMAND until it succeeds; fails
# with NODE's log when NODE ends before or the time is over.
await() {
  local deadline=$(($(now_ms) + $1 * 1000)) node=$2 what=$3
  shift 3
  until "$@"; do
    [[ -n $(pid_of "$node") ]] || fail_with_log "$node" "$node ended before it was $what"
    (($(now_ms) < deadline)) || fail_with_log "$node" "$node was not $what in time"
    sleep 0.25
  done
}

stop_nodes() { # SECONDS NODE...: SIGTERM to all, SIGKILL to those left
  local grace=$1 node pid end left
  shift
  for node in "$@"; do
    pid=$(pid_of "$node")
    [[ -z $pid ]] || kill -TERM "$pid" 2>/dev/null || true
  done
  end=$(($(now_ms) + grace * 1000))
  while :; do
    left=0
    for node in "$@"; do
      [[ -z $(pid_of "$node") ]] || left=1
    done
    ((left)) || break
    if (($(now_ms) >= end)); then
      for node in "$@"; do kill_node "$node"; done
      break
    fi
    sleep 0.1
  done
  for node in "$@"; do rm -f "$dir/$node/pid"; done
}

kill_node() { # NODE: SIGKILL, and wait until it is gone
  local pid
  pid=$(pid_of "$1")
  [[ -n $pid ]] || return 0
  kill -KILL "$pid" 2>/dev/null || true
  while [[ -n $(pid_of "$1") ]]; do sleep 0.02; done
}

signal_node() { # NODE SIGNAL
  local pid
  pid=$(pid_of "$1")
  [[ -n $pid ]] || die "$1 of $dir does not run"
  kill "-$2" "$pid"
}

# watch_owner PID stops the cluster in $dir soon after process PID has ended.
watch_owner() {
  kill -0 "$1" 2>/dev/null || die "--owner: no process $1"
  (
    close_fds
    # shellcheck disable=SC2016
    exec setsid bash -c 'while kill -0 "$1" 2>/dev/null && [[ -e $3/env ]]; do sleep 1; done
      exec bash "$2" stop --now --dir "$3"' realcluster-owner "$1" "$here/$prog" "$dir" \
      </dev/null >/dev/null 2>&1
  ) &
  disown
}

# use_dir makes $dir absolute; must_exist checks that a cluster is in it.
use_dir() { # DEFAULT
  dir=${dir:-${TMPDIR:-/tmp}/realcluster-$1}
  [[ $dir == /* ]] || dir=$PWD/$dir
}

must_exist() {
  [[ -e $dir/cluster ]] || die "no cluster in $dir (use the --dir that start was given)"
}

# write_env moves what it reads to $dir/env at once.
write_env() {
  cat >"$dir/env.new"
  mv "$dir/env.new" "$dir/env"
}

wipe_dir() {
  [[ -e $dir/cluster ]] || die "$dir was not made by $prog: not removed"
  rm -rf "$dir"
}
