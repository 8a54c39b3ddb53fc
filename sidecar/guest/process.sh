#!/opt/holdfast/busybox sh
# Execs the program of one durable process: `process.sh BUSYBOX DIRECTORY`. The sidecar has written DIRECTORY/launch,
# which sets the arguments, exports the environment and sets hf_cwd.
hf_bb=$1
hf_dir=$2
hf_cwd=/
. "${0%/*}/find-program.sh"
echo "$$ $HOLDFAST_RUNNER" >"$hf_dir/pid"
. "$hf_dir/launch"

hf_fail() { # CODE WHY
  echo "holdfast: $2" >&2
  exit "$1"
}

cd "$hf_cwd" || hf_fail 126 "$hf_cwd: cannot be entered"
unset OLDPWD
hf_name=$1
hf_find "$1"
if [ -z "$hf_name" ] || [ -z "$hf_found" ] || { [ ! -e "$hf_found" ] && [ ! -L "$hf_found" ]; }; then
  hf_fail 127 "$hf_name: not found"
fi
[ ! -d "$hf_found" ] || hf_fail 126 "$hf_name: is a directory"
[ -x "$hf_found" ] || hf_fail 126 "$hf_name: not executable"
shift
exec "$hf_found" "$@"
