#!/opt/holdfast/busybox sh
# Main process of the agent container. Reads requests from the FIFO `requests`, one per line, and starts, kills and
# reports the session's processes. It needs only our static busybox, because the image may have no shell and no tools.
#
#   start TURN               runs turns/TURN (see turn.sh) in a session of its own, writes its exit code
#   worker start ID TURN     the same for a warm worker that starts with TURN; unanswered turns get an exit code
#   kill TURN GRACE_MS       TERM to the turn's processes, KILL after the grace, also for those that left its group
#   worker stop              ends the warm worker
#   check TURN               writes an exit code for a turn whose keeper (the shell that waits for it) was killed
#   execkill EXEC SIGNAL     signals the processes that carry HOLDFAST_EXEC=EXEC
#   terminal open TERMINAL   runs terminals/TERMINAL (see terminal.sh) in a pty of its own, writes its exit code
#   terminal close TERMINAL  sends HUP to its processes, and KILL to those that remain
#   size TERMINAL COLS ROWS  sets the size of its pty
#   process start PROCESS    runs processes/PROCESS (see keep-process.sh), writes its exit code
#   process kill PROCESS GRACE_MS  as for a turn
#   sweep NONCE              kills everything but open terminals and execs, and writes `NONCE COUNT` to the file swept:
#                            how many processes are left
#
# A line may come twice: a turn is claimed by creating `started`, and a second claim does nothing.
# Names start with hf_, because assigning to a name that the image exports would change the environment of every turn.
hf_bb=${HOLDFAST_BUSYBOX:-/opt/holdfast/busybox}
hf_run=${HOLDFAST_RUN:-/run/holdfast}
hf_here=${0%/*}
hf_session=${HOLDFAST_SESSION:-none}
# Identifies this runner: process ids in files of an earlier container must never be used in this one.
read -r HOLDFAST_RUNNER </proc/sys/kernel/random/uuid
export HOLDFAST_RUNNER
hf_worker_keeper= hf_worker=
# Terminals that were opened: PID:START of their keepers.
hf_terminals=
# In a container our parent is its init, and every process is the agent's or ours.
hf_is_contained=
[ "$PPID" != 1 ] || [ "$hf_run" != /run/holdfast ] || hf_is_contained=1
. "$hf_here/publish.sh"

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

# Prints the ids of processes that have NAME=VALUE in their environment, one per line.
hf_pids_with() { # NAME=VALUE
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

# Creates `started`; fails if it exists. With noclobber the redirection is O_EXCL. A link that the agent put in the place
# of the directory is not followed.
hf_claim() { # DIRECTORY
  [ ! -L "$1" ] && (
    set -C
    : >"$1/started"
  ) 2>/dev/null
}

# Whether the sidecar can read how this turn ended, even if the agent put something else there.
hf_has_ended() { # DIRECTORY
  if hf_is_file "$1/result"; then return; fi
  hf_is_file "$1/exit" || return
  read -r -t 1 hf_code hf_rest <>"$1/exit"
  [ "$hf_code" = - ] || hf_is_number "$hf_code"
}

hf_is_file() { # FILE
  [ -f "$1" ] && [ ! -L "$1" ] && [ -r "$1" ] && [ -s "$1" ]
}

# Sets hf_memory and hf_processes: how often the kernel has killed a process of this container because memory ran out,
# and refused to start one because of the limit. Reads either version of cgroups. Both are 0 if neither can be read.
hf_read_counts() {
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

# Sets hf_met to the limits that were reached since the counts were MEMORY and PROCESSES, each after a space. Full
# directories count only after a failure.
hf_check_limits() { # CODE MEMORY PROCESSES
  hf_met=
  hf_read_counts
  if hf_is_number "$2" && [ "$hf_memory" -gt "$2" ]; then hf_met=' memory'; fi
  # The checks of directories start processes.
  if hf_is_number "$3" && [ "$hf_processes" -gt "$3" ]; then hf_met="$hf_met processes" && return; fi
  [ "$1" != 0 ] || return 0
  ! hf_is_full "${HOLDFAST_WORKSPACE:-/workspace}" || hf_met="$hf_met workspace"
  ! hf_is_full "${HOLDFAST_TMP:-/tmp}" || hf_met="$hf_met tmp"
  # Usually on the disk of /workspace, which is then named already.
  case $hf_met in
    *workspace*) ;;
    *) [ -z "$HOME" ] || ! hf_is_full "$HOME" || hf_met="$hf_met home" ;;
  esac
}

hf_is_full() { # FOLDER
  [ "$("$hf_bb" stat -f -c %a "$1" 2>/dev/null)" = 0 ]
}

# Runs a claimed turn and writes its exit code.
hf_run_turn() { # TURN
  # Caught, not ignored: when the container stops, the keeper lives long enough to write the exit code.
  trap : TERM INT HUP
  hf_read_counts
  set -- "$1" "$hf_memory" "$hf_processes"
  HOLDFAST_TURN=$1 "$hf_bb" setsid "$hf_bb" sh "$hf_here/turn.sh" "$hf_bb" "$hf_run/turns/$1"
  set -- "$?" "$@"
  hf_check_limits "$1" "$3" "$4"
  hf_publish "$hf_run/turns/$2/exit" "$1$hf_met"
}

hf_run_worker() { # ID TURN
  trap : TERM INT HUP
  hf_read_counts
  HOLDFAST_WORKER=$1 HOLDFAST_FIRST_TURN=$2 "$hf_bb" setsid "$hf_bb" sh "$hf_here/turn.sh" "$hf_bb" "$hf_run/turns/$2" \
    "$hf_memory $hf_processes"
  hf_finish_worker "$1" $? "$2"
}

# Kills the processes of a worker that has ended, and writes exit codes for its unanswered turns.
hf_finish_worker() { # ID CODE TURN
  hf_signal KILL $(hf_pids_with "HOLDFAST_WORKER=$1")
  for hf_dir in "$hf_run/turns/$3" "$hf_run"/turns/turn-*; do
    [ -d "$hf_dir" ] && ! hf_has_ended "$hf_dir" || continue
    hf_read_group "$hf_dir"
    [ "$hf_of" = "$1" ] || [ "$hf_dir" = "$hf_run/turns/$3" ] || continue
    hf_check_limits "$2" $hf_counts
    hf_publish "$hf_dir/exit" "$2$hf_met"
  done
}

# Reads a turn's pid file, if a process of this runner wrote it: sets hf_group, hf_of (the worker), and hf_counts (the
# limits' counts at the start of the turn).
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

hf_of_turn() { # TURN|PROCESS → process ids
  case $1 in
    proc-*) hf_pids_with "HOLDFAST_PROCESS=$1" ;;
    *) hf_pids_with "HOLDFAST_TURN=$1" ;;
  esac
  [ -z "$hf_of" ] || hf_pids_with "HOLDFAST_WORKER=$hf_of"
}

hf_kill_turn() { # TURN|PROCESS GRACE_MS DIRECTORY
  hf_left=$2
  hf_dir=$3
  # It may be claimed but not running yet, and its pid file is about to appear.
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
  # Processes that fork faster than they are killed are stopped first. A few rounds reach all of them.
  hf_tries=0
  while hf_pids=$(hf_of_turn "$1") && [ -n "$hf_pids" ] && [ $hf_tries -lt 20 ]; do
    hf_signal STOP $hf_pids
    hf_signal KILL $hf_pids
    hf_tries=$((hf_tries + 1))
  done
}

# Not with `&`: a shell starts background processes with SIGINT ignored. Its keeper's id and start are noted here, where
# the agent cannot change them: the sweep leaves the keeper and what it started.
hf_open_terminal() { # TERMINAL
  hf_pid=$("$hf_bb" start-stop-daemon -S -b -q -p "$hf_run/terminals/$1/exit" -x "$hf_bb" -- \
    sh "$hf_here/keep-terminal.sh" "$hf_bb" "$hf_run" "$1" 9>&1)
  hf_is_number "$hf_pid" && hf_read_start "$hf_pid" && hf_terminals="$hf_terminals $hf_pid:$hf_start"
}

# Sets hf_start to the time at which a process started. Only the last `)` is the kernel's own, and the name before it may
# have newlines.
hf_read_start() { # PID
  hf_start= hf_text=
  while read -r hf_word || [ -n "$hf_word" ]; do
    hf_text="$hf_text $hf_word"
  done 2>/dev/null <"/proc/$1/stat" || return
  set -- ${hf_text##*) }
  hf_start=${20}
}

# Sets hf_parent and hf_state of a process. The kernel escapes newlines in the name, which the agent chooses.
hf_read_parent() { # PID
  hf_parent= hf_state=
  while read -r hf_word hf_rest; do
    case $hf_word in
      State:) hf_state=${hf_rest%% *} ;;
      PPid:)
        hf_parent=$hf_rest
        return
        ;;
    esac
  done 2>/dev/null <"/proc/$1/status"
  return 1
}

# Whether a process belongs to us, to an open terminal or to an exec. Only what the kernel says counts: anybody can have
# any name and environment. An exec's first process has no parent in this container.
hf_is_kept() { # PID
  hf_at=$1 hf_hops=0
  while [ $hf_hops -lt 1000 ]; do
    [ "$hf_at" != 1 ] && [ "$hf_at" != $$ ] || break
    case " $hf_keepers " in
      *" $hf_at "*) return ;;
    esac
    hf_read_parent "$hf_at" || break
    [ "$hf_parent" != 0 ] || return 0
    hf_at=$hf_parent
    hf_hops=$((hf_hops + 1))
  done
  # Our own shells, but not the programs that they wait for.
  [ $hf_hops = 0 ] || { [ $hf_hops = 1 ] && [ "$hf_at" = $$ ]; }
}

# Sets hf_keepers to the keepers of terminals that still run.
hf_find_keepers() {
  hf_keepers=
  for hf_one in $hf_terminals; do
    hf_read_start "${hf_one%%:*}" && [ "$hf_start" = "${hf_one#*:}" ] && hf_keepers="$hf_keepers ${hf_one%%:*}"
  done
}

# Sets hf_last to the id that the kernel gave last in this container.
hf_read_last() {
  read -r hf_word hf_word hf_word hf_word hf_last </proc/loadavg
}

# Sets hf_strays to the processes that must go, hf_kept to the others (DEPTH:PID), and hf_halted to those of the others
# that are stopped. Sets hf_is_quiet if no process began meanwhile: then nothing is missing. So it starts none itself. A
# runner outside a container looks at its own processes only.
hf_find_strays() {
  hf_strays= hf_kept= hf_halted= hf_is_quiet=
  hf_read_last
  hf_since=$hf_last
  hf_find_keepers
  if [ -n "$hf_is_contained" ]; then
    set -- /proc/[0-9]*
  else
    set -- $(hf_pids_with "HOLDFAST_SESSION=$hf_session")
  fi
  for hf_pid; do
    hf_pid=${hf_pid#/proc/}
    [ "$hf_pid" != 1 ] && [ "$hf_pid" != $$ ] && hf_read_parent "$hf_pid" || continue
    hf_was=$hf_state
    case $hf_was in
      Z | X) continue ;;
    esac
    if hf_is_kept "$hf_pid"; then
      hf_kept="$hf_kept $hf_hops:$hf_pid"
      [ "$hf_was" != T ] || hf_halted="$hf_halted $hf_pid"
    else
      hf_strays="$hf_strays $hf_pid"
    fi
  done
  hf_read_last
  [ "$hf_last" != "$hf_since" ] || hf_is_quiet=1
}

# Whether the kernel tells that a process has begun: some sandboxes have a /proc of their own.
hf_sees_forks() {
  hf_read_last
  hf_since=$hf_last
  ( : )
  hf_read_last
  [ -n "$hf_since" ] && [ "$hf_last" != "$hf_since" ]
}

# Kills everything but open terminals and execs. Without these, one signal reaches every process at once. A list of
# processes is no proof that there are no others, unless no process began while it was made: one that forks all the time
# is in no list. Where that cannot be had, everything is stopped at once: what stays may notice that.
hf_sweep() { # NONCE
  hf_tries=0 hf_is_sure= hf_sees=
  [ -z "$hf_is_contained" ] || ! hf_sees_forks || hf_sees=1
  while [ $hf_tries -lt 20 ]; do
    hf_find_strays
    [ -z "$hf_sees" ] || [ -z "$hf_kept" ] || [ -z "$hf_is_quiet" ] || hf_is_sure=1
    [ -n "$hf_strays" ] || [ -z "$hf_is_sure" ] || break
    hf_is_sure=
    if [ -z "$hf_is_contained" ]; then
      hf_signal KILL $hf_strays
      hf_is_sure=1
    elif [ -z "$hf_kept" ]; then
      kill -KILL -1
      hf_is_sure=1
    elif [ -n "$hf_sees" ] && { [ $hf_tries -lt 2 ] || { [ -z "$hf_strays" ] && [ $hf_tries -lt 8 ]; }; }; then
      # Nothing is left, but something forked meanwhile, perhaps a terminal's shell. To look again disturbs nobody.
      hf_signal KILL $hf_strays
    else
      hf_sweep_frozen
      hf_is_sure=1
    fi
    hf_tries=$((hf_tries + 1))
    "$hf_bb" usleep 2000
  done
  set -- "$1" $hf_strays
  hf_write "$hf_run/swept" "$1 $(($# - 1))"
}

# Stops everything at once, so that nothing forks any more. What stays goes on, children first: a shell must not take
# its job for one that somebody stopped.
hf_sweep_frozen() {
  kill -STOP -1
  hf_before=$hf_halted
  hf_find_strays
  hf_signal KILL $hf_strays
  hf_depth=30
  while [ $hf_depth -ge 0 ]; do
    for hf_one in $hf_kept; do
      case " $hf_before " in
        *" ${hf_one#*:} "*) continue ;;
      esac
      hf_hops=${hf_one%%:*}
      [ "$hf_hops" -le 30 ] || hf_hops=30
      [ "$hf_hops" != $hf_depth ] || hf_signal CONT "${hf_one#*:}"
    done
    hf_depth=$((hf_depth - 1))
  done
}

hf_start_process() { # PROCESS
  "$hf_bb" start-stop-daemon -S -b -q -p "$hf_run/processes/$1/exit" -x "$hf_bb" -- \
    sh "$hf_here/keep-process.sh" "$hf_bb" "$hf_run" "$1"
}

# Its processes lose their pty when telnetd ends.
hf_close_terminal() { # TERMINAL
  hf_signal HUP $(hf_pids_with "HOLDFAST_TERMINAL=$1")
  hf_tries=0
  while [ $hf_tries -lt 10 ] && [ -n "$(hf_pids_with "HOLDFAST_TERMINAL=$1")" ]; do
    "$hf_bb" usleep 50000
    hf_tries=$((hf_tries + 1))
  done
  hf_tries=0
  while hf_pids=$(hf_pids_with "HOLDFAST_TERMINAL=$1") && [ -n "$hf_pids" ] && [ $hf_tries -lt 20 ]; do
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
    # It may have finished since the check above.
    ! hf_has_ended "$hf_run/turns/$1" || return 0
    hf_signal KILL $(hf_pids_with "HOLDFAST_TURN=$1")
    # The keeper was killed, and only it knew the exit code.
    hf_publish "$hf_run/turns/$1/exit" - &
    eval "hf_keeper_${1#turn-}=$!"
  elif [ -n "$hf_worker_keeper" ] && ! kill -0 "$hf_worker_keeper" 2>/dev/null; then
    hf_finish_worker "$hf_worker" - "$1" &
    hf_worker_keeper=$!
  fi
}

hf_shut_down() {
  trap '' TERM INT HUP
  # Gives processes time to shut down. The rest dies with the container.
  hf_signal TERM $(hf_pids_with "HOLDFAST_SESSION=$hf_session")
  hf_tries=0
  while [ $hf_tries -lt 12 ]; do
    hf_pids=
    for hf_pid in $(hf_pids_with "HOLDFAST_SESSION=$hf_session"); do
      [ "$hf_pid" -gt 1 ] && [ "$hf_pid" != $$ ] && kill -0 "$hf_pid" 2>/dev/null && hf_pids=$hf_pid
    done
    [ -n "$hf_pids" ] || break
    "$hf_bb" usleep 40000
    hf_tries=$((hf_tries + 1))
  done
  exit 143
}

# The reader creates the FIFO, so a writer that finds none knows that nobody reads.
hf_open() {
  until [ -p "$hf_run/requests" ] && [ ! -L "$hf_run/requests" ]; do
    "$hf_bb" rm -rf "$hf_run/requests"
    "$hf_bb" mkfifo -m 600 "$hf_run/requests" || "$hf_bb" usleep 20000
  done
  # Opened for reading and writing, so that input does not end when a writer closes it.
  exec 3<>"$hf_run/requests"
  # Notifies watchers of the directory that the runner reads requests now.
  "$hf_bb" touch "$hf_run/requests"
}

hf_handle() { # LINE'S WORDS
  case $1 in
    start)
      hf_is_id "$2" turn- || return
      hf_claim "$hf_run/turns/$2" || return
      hf_run_turn "$2" &
      eval "hf_keeper_${2#turn-}=$!"
      ;;
    check)
      hf_is_id "$2" turn- && hf_check "$2"
      ;;
    kill)
      hf_is_id "$2" turn- && hf_is_number "$3" || return
      # Requests are handled in order, so what is unclaimed now will never run.
      if hf_claim "$hf_run/turns/$2"; then hf_publish "$hf_run/turns/$2/exit" 143 & else hf_kill_turn "$2" "$3" "$hf_run/turns/$2" & fi
      ;;
    worker)
      case $2 in
        start)
          hf_is_id "$3" w- && hf_is_id "$4" turn- || return
          # Claims the turn before stopping the old worker. If that worker has claimed it, it keeps running.
          hf_claim "$hf_run/turns/$4" || return
          hf_stop_worker
          [ -p "$hf_run/worker/requests" ] || {
            "$hf_bb" rm -rf "$hf_run/worker/requests"
            "$hf_bb" mkfifo -m 600 "$hf_run/worker/requests"
          }
          hf_run_worker "$3" "$4" &
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
          # Requests are handled in order, so what is unclaimed now will never run.
          if hf_claim "$hf_run/terminals/$3"; then hf_publish "$hf_run/terminals/$3/exit" 129; else hf_close_terminal "$3" & fi
          ;;
      esac
      ;;
    process)
      hf_is_id "$3" proc- || return
      hf_dir=$hf_run/processes/$3
      case $2 in
        start)
          hf_claim "$hf_dir" || return
          hf_start_process "$3"
          ;;
        kill)
          hf_is_number "$4" || return
          # Requests are handled in order, so what is unclaimed now will never run.
          if hf_claim "$hf_dir"; then hf_publish "$hf_dir/exit" 143 & else hf_kill_turn "$3" "$4" "$hf_dir" & fi
          ;;
      esac
      ;;
    sweep)
      case $2 in
        '' | *[!a-z0-9]*) return ;;
      esac
      hf_sweep "$2"
      ;;
    size)
      hf_is_id "$2" term- && hf_is_number "$3" && hf_is_number "$4" && hf_size_terminal "$2" "$3" "$4"
      ;;
    execkill)
      hf_is_id "$2" exec- || return
      case $3 in
        HUP | INT | QUIT | KILL | TERM | USR1 | USR2 | STOP | CONT) hf_signal "$3" $(hf_pids_with "HOLDFAST_EXEC=$2") ;;
      esac
      ;;
  esac
}

# The shell exits when it cannot start a process. The exit code tells the supervisor the reason: see `reconcile.ts`.
hf_end() { # CODE
  set -- "$1" "$hf_all_processes"
  hf_read_counts
  if [ "$1" != 143 ] && [ "$hf_processes" -gt "$2" ]; then exit 96; fi
  exit "$1"
}

hf_open
trap hf_shut_down TERM INT HUP
hf_read_counts
hf_all_processes=$hf_processes
trap 'hf_end $?' EXIT
# A `read` that times out drops what it has read. A line is written atomically, so only the wait for its first byte may
# be short. Otherwise a line that arrives at the end of the timeout would lose its beginning on a busy machine.
hf_read() {
  hf_first= hf_verb= hf_a= hf_b= hf_c= hf_rest=
  read -t 2 -r -n 1 hf_first <&3 || return
  [ -z "$hf_first" ] || read -t 30 -r hf_verb hf_a hf_b hf_c hf_rest <&3 || return
  hf_verb=$hf_first$hf_verb
}

# A child that exits interrupts `read`, and `jobs` reaps it.
trap : CHLD
while :; do
  if hf_read; then
    hf_handle "$hf_verb" "$hf_a" "$hf_b" "$hf_c" 3<&- </dev/null 2>/dev/null
  elif [ ! "$hf_run/requests" -ef /proc/self/fd/3 ]; then
    # The agent replaced the FIFO. Open the one where the next request will arrive.
    hf_open
  fi
  jobs >/dev/null
done
