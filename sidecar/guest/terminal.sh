#!/opt/holdfast/busybox sh
# What telnetd runs in the pty of one terminal. terminals/TERMINAL/launch, written by the sidecar, sets the arguments, exports the
# environment and says in hf_cwd, hf_columns and hf_rows what else is wanted. Without arguments it is the image's shell.
hf_bb=${HOLDFAST_BUSYBOX:-/opt/holdfast/busybox}
hf_dir=${HOLDFAST_RUN:-/run/holdfast}/terminals/$HOLDFAST_TERMINAL
hf_cwd=/ hf_columns=80 hf_rows=24
. "${0%/*}/find-program.sh"
. "$hf_dir/launch"
"$hf_bb" stty iutf8 columns "$hf_columns" rows "$hf_rows"
hf_tty=$("$hf_bb" tty)
echo "${hf_tty#/dev/pts/}" >"$hf_dir/pts"
# Here the terminal's output begins: what telnetd says before is of no use to anybody.
printf '\036'

# Writes the exit code, waits until the sidecar has all output, and ends telnetd: others may still hold the pty.
hf_leave() { # CODE
  echo "$1" >"$hf_dir/code.tmp" && "$hf_bb" mv -fT "$hf_dir/code.tmp" "$hf_dir/code"
  [ ! -p "$hf_dir/done" ] || read -r hf_line <>"$hf_dir/done"
  kill "$PPID"
  exit "$1"
}

hf_fail() { # CODE WHY
  echo "holdfast: $2"
  hf_leave "$1"
}

# ^C and the like are for the program; caught, not ignored, so that it begins with the default.
trap : INT QUIT TSTP
cd "$hf_cwd" || hf_fail 126 "$hf_cwd: cannot be entered"
unset OLDPWD
# Terminals of today show 24 bits of colour; whoever opens this one may say that theirs does not.
export COLORTERM="${COLORTERM-truecolor}"
[ -n "$COLORTERM" ] || unset COLORTERM
if [ $# -eq 0 ]; then
  for hf_found in /bin/bash /usr/bin/bash /bin/sh /usr/bin/sh; do
    [ ! -x "$hf_found" ] || break
  done
  if [ -x "$hf_found" ]; then set -- "$hf_found"; else set -- "$hf_bb" sh; fi
  export SHELL="$1"
fi
hf_name=$1
hf_find "$1"
if [ -z "$hf_found" ] || { [ ! -e "$hf_found" ] && [ ! -L "$hf_found" ]; }; then
  hf_fail 127 "$hf_name: not found"
fi
[ ! -d "$hf_found" ] || hf_fail 126 "$hf_name: is a directory"
[ -x "$hf_found" ] || hf_fail 126 "$hf_name: not executable"
shift
"$hf_found" "$@"
hf_leave $?
