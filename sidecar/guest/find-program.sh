# Sourced by turn.sh, process.sh and terminal.sh.

# Sets hf_found to the image's program of this name, searched as a shell does. Empty if there is none. `exec NAME` would
# run busybox's own applet instead.
hf_find() { # NAME
  case $1 in
    */*) hf_found=$1 ;;
    *)
      hf_found= hf_denied=
      hf_rest=$PATH:
      while [ -n "$hf_rest" ]; do
        hf_at=${hf_rest%%:*}
        hf_rest=${hf_rest#*:}
        hf_at=${hf_at:-.}/$1
        [ -f "$hf_at" ] || continue
        if [ -x "$hf_at" ]; then
          hf_found=$hf_at
          break
        fi
        hf_denied=${hf_denied:-$hf_at}
      done
      hf_found=${hf_found:-$hf_denied}
      ;;
  esac
}
