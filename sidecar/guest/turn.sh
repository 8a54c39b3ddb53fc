#!/opt/holdfast/busybox sh
# Execs the program of one turn or a warm worker: `turn.sh BUSYBOX DIRECTORY [COUNTS]`. The sidecar has written
# DIRECTORY/launch, which sets the arguments, exports the environment and sets hf_fresh_tmp.
hf_bb=$1
hf_dir=$2
hf_fresh_tmp= hf_entry=
. "${0%/*}/find-program.sh"

exec >>"$hf_dir/stdout" 2>>"$hf_dir/stderr"
if [ -n "$HOLDFAST_WORKER" ]; then
  exec </dev/null
else
  exec <"$hf_dir/input"
fi
echo "$$ $HOLDFAST_RUNNER $HOLDFAST_WORKER $3" >"$hf_dir/pid"

hf_fail() { # CODE WHY NEXT
  echo "holdfast: $2" >&2
  if [ -n "$HOLDFAST_WORKER" ]; then
    # Both texts are our own and need no JSON escaping.
    echo "{\"ok\":false,\"error\":{\"type\":\"MissingProgram\",\"message\":\"$2\",\"next\":\"$3\"}}" >"$hf_dir/result.tmp"
    "$hf_bb" mv -fT "$hf_dir/result.tmp" "$hf_dir/result"
  fi
  exit "$1"
}

cd "${HOLDFAST_WORKSPACE:-/workspace}" || hf_fail 126 'the workspace cannot be entered' 'check the modes of /workspace'
unset OLDPWD
. "$hf_dir/launch"

if [ -n "$hf_fresh_tmp" ]; then
  hf_tmp=${HOLDFAST_TMP:-/tmp}
  # rm -f continues after errors, but cannot enter directories without u+rwx.
  "$hf_bb" find "$hf_tmp" -mindepth 1 -maxdepth 1 -exec "$hf_bb" rm -rf {} + 2>/dev/null ||
    { "$hf_bb" chmod -R u+rwx "$hf_tmp"/* "$hf_tmp"/.[!.]* && "$hf_bb" find "$hf_tmp" -mindepth 1 -delete; } 2>/dev/null
fi

hf_name=$1
hf_find "$1"
[ -n "$HOLDFAST_WORKER" ] && [ ! -e "$hf_found" ] &&
  hf_fail 127 "$hf_name is not in this image" "use an image with $hf_name"
if [ -z "$hf_name" ] || [ -z "$hf_found" ] || { [ ! -e "$hf_found" ] && [ ! -L "$hf_found" ]; }; then
  hf_fail 127 "$hf_name: not found"
fi
[ ! -d "$hf_found" ] || hf_fail 126 "$hf_name: is a directory"
[ -x "$hf_found" ] || hf_fail 126 "$hf_name: not executable"
shift
exec "$hf_found" "$@"
