#!/opt/holdfast/busybox sh
# Runs one terminal: `keep-terminal.sh BUSYBOX RUN TERMINAL`. telnetd is busybox's only program that creates a pty. It
# holds both ends of its FIFOs open, so input never ends, and output without a reader waits.
# Prints its process id to descriptor 9, once.
echo $$ >&9
exec 9>&-
hf_bb=$1
hf_dir=$2/terminals/$3
hf_code=

hf_publish() { # CODE
  echo "$1" >"$hf_dir/exit.tmp" && "$hf_bb" mv -fT "$hf_dir/exit.tmp" "$hf_dir/exit"
  exit
}

# Caught, not ignored: when the container stops, this lives long enough to write the exit code.
trap : TERM INT HUP
"$hf_bb" mkfifo -m 600 "$hf_dir/input" "$hf_dir/output" "$hf_dir/done" || hf_publish 126
(
  exec <>"$hf_dir/input" 1<>"$hf_dir/output" || exit
  echo "$HOLDFAST_RUNNER" >"$hf_dir/running"
  HOLDFAST_TERMINAL=$3 exec "$hf_bb" setsid "$hf_bb" telnetd -i -f /dev/null -l "${0%/*}/terminal.sh"
)
[ ! -f "$hf_dir/code" ] || read -r hf_code <"$hf_dir/code"
case $hf_code in
  [0-9] | [0-9][0-9] | [12][0-9][0-9]) hf_publish "$hf_code" ;;
  *) hf_publish 129 ;;
esac
