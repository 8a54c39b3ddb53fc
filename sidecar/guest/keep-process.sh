#!/opt/holdfast/busybox sh
# Keeps one durable process: `keep-process.sh BUSYBOX RUN PROCESS`. Holds its FIFOs open, so that nothing it printed is
# lost and it never sees the end of a pipe while no sidecar runs. Publishes its exit code, and stays until the sidecar
# has read the rest.
hf_bb=$1
hf_dir=$2/processes/$3
hf_here=${0%/*}
hf_feeder= hf_ending=
. "$hf_here/publish.sh"

hf_end() { # CODE
  hf_publish "$hf_dir/exit" "$1"
  exit
}

# Caught, not ignored: when the container stops, this lives long enough to write the exit code.
trap hf_ending=1 TERM INT HUP
for hf_name in wake 'done' stdin stdout stderr; do
  "$hf_bb" mkfifo -m 600 "$hf_dir/$hf_name" || hf_end 126
done
# Opened for reading and writing, a FIFO neither waits nor ends. The program's input has one reader and one writer of
# ours: it ends when the feeder closes it, and writing to it fails when the program has ended.
exec 3<>"$hf_dir/done" 4<>"$hf_dir/stdin" 7<>"$hf_dir/stdout" 8<>"$hf_dir/stderr" 9<>"$hf_dir/wake" || hf_end 126
exec 5>"$hf_dir/stdin" 6<"$hf_dir/stdin" 4<&- || hf_end 126
"$hf_bb" setsid "$hf_bb" sh "$hf_here/feed-process.sh" "$hf_bb" "$hf_dir" <&9 >&5 2>/dev/null \
  3<&- 5>&- 6<&- 7<&- 8<&- 9<&- &
hf_feeder=$!
echo "$HOLDFAST_RUNNER" >"$hf_dir/running"
# From here on only the feeder reads `wake`, so the sidecar can see whether it lives.
exec 5>&- 9<&-
HOLDFAST_PROCESS=$3 "$hf_bb" setsid "$hf_bb" sh "$hf_here/process.sh" "$hf_bb" "$hf_dir" \
  <&6 >&7 2>&8 3<&- 6<&- 7<&- 8<&-
set -- "$?"
exec 6<&-
kill -KILL "$hf_feeder" "-$hf_feeder" 2>/dev/null
hf_publish "$hf_dir/exit" "$1"
while [ -z "$hf_ending" ] && [ -d "$hf_dir" ]; do
  read -r -t 60 hf_line <&3 && exit
done
