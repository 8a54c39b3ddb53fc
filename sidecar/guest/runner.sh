#!/opt/holdfast/busybox sh
# Main process of the agent container. Reads one request a line from the FIFO `requests` and starts, kills and reports
# what runs for the session. Everything it needs is our static busybox: the image may have no shell and no tools.
#
#   start TURN               runs turns/TURN (see turn.sh) in a session of its own, writes its exit code
#   worker start ID TURN     the same for a warm worker that begins with TURN; a turn that it does not answer gets an exit code
#   kill TURN GRACE_MS       TERM to the turn's processes, KILL after the grace, also to those that left its group
#   worker stop              ends the warm worker
#   check TURN               a turn whose keeper was killed gets its exit code all the same
#   execkill EXEC SIGNAL     signals the processes that carry HOLDFAST_EXEC=EXEC
#   terminal open TERMINAL   runs terminals/TERMINAL (see terminal.sh) in a pty of its own, writes its exit code
#   terminal close TERMINAL  HUP to its processes, KILL to those that stay
#   size TERMINAL COLS ROWS  gives its pty this size
#
# A line may come twice: a turn is claimed by creating `started`, and whoever is second does nothing.
# Names begin with hf_ because an assignment to a name that the image exports would reach every turn.
hf_bb=${HOLDFAST_BUSYBOX:-/opt/holdfast/busybox}
hf_run=${HOLDFAST_RUN:-/run/holdfast}
hf_here=${0%/*}
hf_session=${HOLDFAST_SESSION:-none}
# Process numbers in files that an earlier container left must never be used in this one.
read -r HOLDFAST_RUNNER </proc/sys/kernel/random/uuid
export HOLDFAST_RUNNER
hf_worker_keeper= hf_worker=

hf_is_id() { # ID PREFIX
  case ${1#"$2"} in
    "$1" | '' | *[!a-z0-9]*) return 1 ;;
  esac
  [ ${#1} -le 40 ]
}

hf_is_number() {
  case $1 in
    '' | *[!0-9]*) return 1 ;;
  esac
  [ ${#1} -le 9 ]
}

# Prints the ids of processes whose environment carries NAME=VALUE, one a line.
hf_marked() { # NAME=VALUE
  "$hf_bb" strings -f /proc/[0-9]*/environ 2>/dev/null |
    "$hf_bb" sed -n "s|^/proc/\([0-9]*\)/environ: *$1\$|\1|p"
}

hf_signal() { # SIGNAL PID…
  hf_name=$1
  shift
  for hf_pid; do
    [ "$hf_pid" -gt 1 ] && [ "$hf_pid" != $$ ] && kill "-$hf_name" "$hf_pid" 2>/dev/null
  done
}

# Creates `started` if nobody did; the redirection is O_EXCL.
hf_claim() { # DIRECTORY
  (
    set -C
    : >"$1/started"
  ) 2>/dev/null
}

# Renames a line into place, whatever the agent put there before. The sidecar has made FILE.tmp with room for the line: writing over
# that needs none on a full disk. Where it does, this waits: what is told is not known to anybody else.
hf_tell() { # FILE TEXT
  until hf_put "$1" "$2" || [ ! -d "${1%/*}" ]; do
    "$hf_bb" usleep 200000
  done
}

hf_put() { # FILE TEXT
  [ -f "$1.tmp" ] && [ ! -L "$1.tmp" ] && [ -w "$1.tmp" ] || "$hf_bb" rm -rf "$1.tmp"
  echo "$2" 1<>"$1.tmp" || return
  "$hf_bb" mv -fT "$1.tmp" "$1" && return
  "$hf_bb" rm -rf "$1" && "$hf_bb" mv -fT "$1.tmp" "$1"
}

# Whether the sidecar knows how this turn ended, whatever the agent put in that place.
hf_has_ended() { # DIRECTORY
  if hf_is_file "$1/result"; then return; fi
  hf_is_file "$1/exit" || return
  read -r -t 1 hf_code hf_rest <>"$1/exit"
  [ "$hf_code" = - ] || hf_is_number "$hf_code"
}

hf_is_file() { # FILE
  [ -f "$1" ] && [ ! -L "$1" ] && [ -r "$1" ] && [ -s "$1" ]
}

# Sets hf_memory and hf_processes: how often the kernel has killed a process here because memory ran out, and refused to start one
# because of the limit. Both versions of cgroups tell; where neither can be read both stay 0.
hf_count_limits() {
  hf_counter oom_kill /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control
  hf_memory=$hf_value
  hf_counter max /sys/fs/cgroup/pids.events /sys/fs/cgroup/pids/pids.events
  hf_processes=$hf_value
}

hf_counter() { # NAME FILE…
  hf_value=0 hf_name=$1
  shift
  for hf_file; do
    [ -r "$hf_file" ] || continue
    while read -r hf_word hf_rest; do
      [ "$hf_word" = "$hf_name" ] && hf_is_number "$hf_rest" && hf_value=$hf_rest
    done <"$hf_file"
  done
}

# Sets hf_met to the limits that were met since the counts were MEMORY and PROCESSES, each with a blank before it. Folders that are full
# count where it ended badly.
hf_meet_limits() { # CODE MEMORY PROCESSES
  hf_met=
  hf_count_limits
  if hf_is_number "$2" && [ "$hf_memory" -gt "$2" ]; then hf_met=' memory'; fi
  # Looking at the folders needs processes.
  if hf_is_number "$3" && [ "$hf_processes" -gt "$3" ]; then hf_met="$hf_met processes" && return; fi
  [ "$1" != 0 ] || return 0
  ! hf_is_full "${HOLDFAST_WORKSPACE:-/workspace}" || hf_met="$hf_met workspace"
  ! hf_is_full "${HOLDFAST_TMP:-/tmp}" || hf_met="$hf_met tmp"
  [ -z "$HOME" ] || ! hf_is_full "$HOME" || hf_met="$hf_met home"
}

hf_is_full() { # FOLDER
  [ "$("$hf_bb" stat -f -c %a "$1" 2>/dev/null)" = 0 ]
}

# The turn is claimed already, here and below.
hf_keep_turn() { # TURN
  # Caught, not ignored: the keeper outlives the end of the container long enough to write the exit code.
  trap : TERM INT HUP
  hf_count_limits
  set -- "$1" "$hf_memory" "$hf_processes"
  HOLDFAST_TURN=$1 "$hf_bb" setsid "$hf_bb" sh "$hf_here/turn.sh" "$hf_bb" "$hf_run/turns/$1"
  set -- "$?" "$@"
  hf_meet_limits "$1" "$3" "$4"
  hf_tell "$hf_run/turns/$2/exit" "$1$hf_met"
}

hf_keep_worker() { # ID TURN
  trap : TERM INT HUP
  hf_count_limits
  HOLDFAST_WORKER=$1 HOLDFAST_FIRST_TURN=$2 "$hf_bb" setsid "$hf_bb" sh "$hf_here/turn.sh" "$hf_bb" "$hf_run/turns/$2" \
    "$hf_memory $hf_processes"
  hf_worker_over "$1" $? "$2"
}

# What a worker started belonged to the turn or to its memory: neither is there any more.
hf_worker_over() { # ID CODE TURN
  hf_signal KILL $(hf_marked "HOLDFAST_WORKER=$1")
  for hf_dir in "$hf_run/turns/$3" "$hf_run"/turns/turn-*; do
    [ -d "$hf_dir" ] && ! hf_has_ended "$hf_dir" || continue
    hf_read_group "$hf_dir"
    [ "$hf_of" = "$1" ] || [ "$hf_dir" = "$hf_run/turns/$3" ] || continue
    hf_meet_limits "$2" $hf_counts
    hf_tell "$hf_dir/exit" "$2$hf_met"
  done
}

# Sets hf_group and hf_of, and what a worker counted at the turn's beginning, from a turn's pid file when this runner's turn wrote it.
hf_read_group() { # DIRECTORY
  hf_group= hf_of= hf_counts='- -'
  [ -f "$1/pid" ] || return
  read -r hf_group hf_by hf_of hf_rest <"$1/pid"
  case $hf_rest in
    [0-9]*' '[0-9]*) hf_counts=$hf_rest ;;
  esac
  hf_is_number "$hf_group" && [ "$hf_group" -gt 1 ] && [ "$hf_by" = "$HOLDFAST_RUNNER" ] || hf_group= hf_of=
  hf_is_id "$hf_of" w- || hf_of=
}

hf_of_turn() { # TURN → process ids
  hf_marked "HOLDFAST_TURN=$1"
  [ -z "$hf_of" ] || hf_marked "HOLDFAST_WORKER=$hf_of"
}

hf_kill_turn() { # TURN GRACE_MS
  hf_dir=$hf_run/turns/$1
  hf_left=$2
  # Claimed a moment ago and not yet running: its pid file is about to come.
  hf_tries=0
  until hf_read_group "$hf_dir"; [ -n "$hf_group" ] || hf_has_ended "$hf_dir" || [ ! -d "$hf_dir" ] || [ $hf_tries -ge 40 ]; do
    "$hf_bb" usleep 25000
    hf_tries=$((hf_tries + 1))
  done
  if [ "$hf_left" -gt 0 ]; then
    [ -z "$hf_group" ] || kill -TERM -- "-$hf_group" 2>/dev/null
    hf_signal TERM $(hf_of_turn "$1")
  fi
  while [ "$hf_left" -gt 0 ]; do
    if [ -z "$hf_group" ] || ! kill -0 -- "-$hf_group" 2>/dev/null; then
      [ -n "$(hf_of_turn "$1")" ] || return 0
    fi
    "$hf_bb" usleep 30000
    hf_left=$((hf_left - 30))
  done
  [ -z "$hf_group" ] || kill -KILL -- "-$hf_group" 2>/dev/null
  # What forks faster than it is killed is stopped first; a few rounds reach all of it.
  hf_tries=0
  while hf_pids=$(hf_of_turn "$1") && [ -n "$hf_pids" ] && [ $hf_tries -lt 20 ]; do
    hf_signal STOP $hf_pids
    hf_signal KILL $hf_pids
    hf_tries=$((hf_tries + 1))
  done
}

# Not with `&`: what a shell starts so never hears of ^C.
hf_open_terminal() { # TERMINAL
  "$hf_bb" start-stop-daemon -S -b -q -p "$hf_run/terminals/$1/exit" -x "$hf_bb" -- \
    sh "$hf_here/keep-terminal.sh" "$hf_bb" "$hf_run" "$1"
}

# Its processes find their pty gone when telnetd ends.
hf_close_terminal() { # TERMINAL
  hf_signal HUP $(hf_marked "HOLDFAST_TERMINAL=$1")
  hf_tries=0
  while [ $hf_tries -lt 10 ] && [ -n "$(hf_marked "HOLDFAST_TERMINAL=$1")" ]; do
    "$hf_bb" usleep 50000
    hf_tries=$((hf_tries + 1))
  done
  hf_tries=0
  while hf_pids=$(hf_marked "HOLDFAST_TERMINAL=$1") && [ -n "$hf_pids" ] && [ $hf_tries -lt 20 ]; do
    hf_signal STOP $hf_pids
    hf_signal KILL $hf_pids
    hf_tries=$((hf_tries + 1))
  done
}

hf_size_terminal() { # TERMINAL COLUMNS ROWS
  hf_pts=
  [ ! -f "$hf_run/terminals/$1/pts" ] || read -r hf_pts <"$hf_run/terminals/$1/pts"
  hf_is_number "$hf_pts" && "$hf_bb" stty -F "/dev/pts/$hf_pts" columns "$2" rows "$3"
}

hf_stop_worker() {
  [ -n "$hf_worker_keeper" ] && kill -0 "$hf_worker_keeper" 2>/dev/null || return 0
  hf_signal KILL $("$hf_bb" strings -f /proc/[0-9]*/environ 2>/dev/null |
    "$hf_bb" sed -n "s|^/proc/\([0-9]*\)/environ: *HOLDFAST_WORKER=w-[a-z0-9]*\$|\1|p")
  wait "$hf_worker_keeper" 2>/dev/null
}

hf_check() { # TURN
  [ -e "$hf_run/turns/$1/started" ] && ! hf_has_ended "$hf_run/turns/$1" || return 0
  eval "hf_pid=\$hf_keeper_${1#turn-}"
  if [ -n "$hf_pid" ]; then
    kill -0 "$hf_pid" 2>/dev/null && return
    # It may have done its work since we looked.
    ! hf_has_ended "$hf_run/turns/$1" || return 0
    hf_signal KILL $(hf_marked "HOLDFAST_TURN=$1")
    # Something killed the keeper: only it knew the exit code.
    hf_tell "$hf_run/turns/$1/exit" - &
    eval "hf_keeper_${1#turn-}=$!"
  elif [ -n "$hf_worker_keeper" ] && ! kill -0 "$hf_worker_keeper" 2>/dev/null; then
    hf_worker_over "$hf_worker" - "$1" &
    hf_worker_keeper=$!
  fi
}

hf_leave() {
  trap '' TERM INT HUP
  # A moment to shut down in order; whatever is left dies with the container.
  hf_signal TERM $(hf_marked "HOLDFAST_SESSION=$hf_session")
  hf_tries=0
  while [ $hf_tries -lt 12 ]; do
    hf_pids=
    for hf_pid in $(hf_marked "HOLDFAST_SESSION=$hf_session"); do
      [ "$hf_pid" -gt 1 ] && [ "$hf_pid" != $$ ] && kill -0 "$hf_pid" 2>/dev/null && hf_pids=$hf_pid
    done
    [ -n "$hf_pids" ] || break
    "$hf_bb" usleep 40000
    hf_tries=$((hf_tries + 1))
  done
  exit 143
}

# The reader makes the FIFO: a writer that finds none knows that nobody reads.
hf_open() {
  until [ -p "$hf_run/requests" ] && [ ! -L "$hf_run/requests" ]; do
    "$hf_bb" rm -rf "$hf_run/requests"
    "$hf_bb" mkfifo -m 600 "$hf_run/requests" || "$hf_bb" usleep 20000
  done
  # Read and write: a writer that goes away is no end of input.
  exec 3<>"$hf_run/requests"
  # Tells whoever watches the directory that somebody listens now.
  "$hf_bb" touch "$hf_run/requests"
}

hf_answer() { # LINE'S WORDS
  case $1 in
    start)
      hf_is_id "$2" turn- || return
      hf_claim "$hf_run/turns/$2" || return
      hf_keep_turn "$2" &
      eval "hf_keeper_${2#turn-}=$!"
      ;;
    check)
      hf_is_id "$2" turn- && hf_check "$2"
      ;;
    kill)
      hf_is_id "$2" turn- && hf_is_number "$3" || return
      # In the order of the lines: what nobody has taken yet is never going to run.
      if hf_claim "$hf_run/turns/$2"; then hf_tell "$hf_run/turns/$2/exit" 143 & else hf_kill_turn "$2" "$3" & fi
      ;;
    worker)
      case $2 in
        start)
          hf_is_id "$3" w- && hf_is_id "$4" turn- || return
          # Claimed before the old worker goes: when that one has taken the turn, nothing happens to it.
          hf_claim "$hf_run/turns/$4" || return
          hf_stop_worker
          [ -p "$hf_run/worker/requests" ] || {
            "$hf_bb" rm -rf "$hf_run/worker/requests"
            "$hf_bb" mkfifo -m 600 "$hf_run/worker/requests"
          }
          hf_keep_worker "$3" "$4" &
          hf_worker_keeper=$! hf_worker=$3
          ;;
        stop) hf_stop_worker ;;
      esac
      ;;
    terminal)
      hf_is_id "$3" term- || return
      case $2 in
        open)
          hf_claim "$hf_run/terminals/$3" || return
          hf_open_terminal "$3"
          ;;
        close)
          # In the order of the lines: what nobody has taken yet is never going to run.
          if hf_claim "$hf_run/terminals/$3"; then hf_tell "$hf_run/terminals/$3/exit" 129; else hf_close_terminal "$3" & fi
          ;;
      esac
      ;;
    size)
      hf_is_id "$2" term- && hf_is_number "$3" && hf_is_number "$4" && hf_size_terminal "$2" "$3" "$4"
      ;;
    execkill)
      hf_is_id "$2" exec- || return
      case $3 in
        HUP | INT | QUIT | KILL | TERM | USR1 | USR2 | STOP | CONT) hf_signal "$3" $(hf_marked "HOLDFAST_EXEC=$2") ;;
      esac
      ;;
  esac
}

# The shell ends itself when it cannot start a process. The code tells the supervisor why: see `reconcile.ts`.
hf_end() { # CODE
  set -- "$1" "$hf_all_processes"
  hf_count_limits
  if [ "$1" != 143 ] && [ "$hf_processes" -gt "$2" ]; then exit 96; fi
  exit "$1"
}

hf_open
trap hf_leave TERM INT HUP
hf_count_limits
hf_all_processes=$hf_processes
trap 'hf_end $?' EXIT
# A `read` that runs out of time drops what it has read. Whoever writes a line writes all of it at once, so only the wait for its
# first byte may be short: a line that came in the last moment of the two seconds would lose its beginning on a busy machine.
hf_read() {
  hf_first= hf_verb= hf_a= hf_b= hf_c= hf_rest=
  read -t 2 -r -n 1 hf_first <&3 || return
  [ -z "$hf_first" ] || read -t 30 -r hf_verb hf_a hf_b hf_c hf_rest <&3 || return
  hf_verb=$hf_first$hf_verb
}

# A child that ended interrupts `read`, and `jobs` reaps it.
trap : CHLD
while :; do
  if hf_read; then
    hf_answer "$hf_verb" "$hf_a" "$hf_b" "$hf_c" 3<&- </dev/null 2>/dev/null
  elif [ ! "$hf_run/requests" -ef /proc/self/fd/3 ]; then
    # The agent replaced the FIFO: go where the next request will come.
    hf_open
  fi
  jobs >/dev/null
done
