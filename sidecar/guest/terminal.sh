#!/opt/holdfast/busybox sh
# telnetd runs this in the pty of one terminal. The sidecar has written terminals/TERMINAL/launch, which sets the
# arguments, exports the environment and sets hf_cwd, hf_columns and hf_rows. Without arguments the image's shell runs.
hf_bb=${HOLDFAST_BUSYBOX:-/opt/holdfast/busybox}
hf_dir=${HOLDFAST_RUN:-/run/holdfast}/terminals/$HOLDFAST_TERMINAL
hf_cwd=/ hf_columns=80 hf_rows=24
. "${0%/*}/find-program.sh"
. "$hf_dir/launch"
"$hf_bb" stty iutf8 columns "$hf_columns" rows "$hf_rows"
hf_tty=$("$hf_bb" tty)
echo "${hf_tty#/dev/pts/}" >"$hf_dir/pts"
# Start marker: what telnetd prints before it is not output of the terminal.
printf '\036'

# Writes the exit code, waits until the sidecar has read all output, and ends telnetd: other processes may still hold
# the pty.
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

# ^C and similar keys are for the program. Caught, not ignored, so that the program starts with the default.
trap : INT QUIT TSTP
cd "$hf_cwd" || hf_fail 126 "$hf_cwd: cannot be entered"
unset OLDPWD
# Most terminals show 24-bit colour. The caller can set COLORTERM empty if theirs does not.
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
