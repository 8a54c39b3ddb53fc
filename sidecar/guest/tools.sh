# The tools that Holdfast offers to agents: a server of the Model Context Protocol on standard input and output, for
# `session/new`. Run by our busybox, because the image may have nothing that connects to a port.
#
# Each message is a line, and goes to the supervisor on a connection of its own. So a tool outlives its supervisor: a
# message without an answer is sent again, and every tool may be called twice. The answer is `+` and a line, or `+` alone
# where there is nothing to say. Names start with hf_ for the same reason as in runner.sh.
hf_bb=${HOLDFAST_BUSYBOX:-/opt/holdfast/busybox}
hf_port=${HOLDFAST_TOOLS_PORT:-3129}
hf_locks=$("$hf_bb" mktemp -d) || exit 1
trap '"$hf_bb" rm -rf "$hf_locks"' EXIT

hf_ask() { # LINE
  hf_tries=0
  while [ $hf_tries -lt 600 ]; do
    hf_answer=$(printf '%s\n' "$1" | "$hf_bb" nc 127.0.0.1 "$hf_port" 2>/dev/null)
    case $hf_answer in
      +) return ;;
      +*)
        hf_say "${hf_answer#+}"
        return
        ;;
    esac
    hf_tries=$((hf_tries + 1))
    # Who asked may have gone.
    kill -0 $$ 2>/dev/null || return
    "$hf_bb" usleep 1000000
  done
}

# A long line is more than one write, and calls run at the same time.
hf_say() { # LINE
  until "$hf_bb" mkdir "$hf_locks/output" 2>/dev/null; do
    [ -d "$hf_locks" ] || return
    "$hf_bb" usleep 5000
  done
  printf '%s\n' "$1"
  "$hf_bb" rmdir "$hf_locks/output"
}

while IFS= read -r hf_line; do
  [ -z "$hf_line" ] || hf_ask "$hf_line" &
done
wait
