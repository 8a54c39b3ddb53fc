/**
 * The shell script that runs on the other machine before our program does. It is POSIX sh with the tools that busybox has
 * too. It comes on the standard input of `sh`, because the login shell there may be any program, and it never contains
 * anything but our own constants: paths of that machine stay in its own variables.
 *
 * Every line for us begins with a random word, so that what a login shell prints is recognized. A shell may read ahead:
 * we send nothing more until the script has asked for it.
 */
export interface FarScriptOptions {
  /** Begins each line for us: 32 hexadecimal digits. */
  readonly nonce: string;
  /** Names the program: 16 hexadecimal digits. */
  readonly build: string;
  /** The version of Node that we would bring. */
  readonly nodeVersion: string;
}

/** Where our shell starts, whatever the login shell is: sh, bash, zsh, fish and csh all know `exec`. */
export const FAR_COMMAND = 'exec sh';

/**
 * Examines the machine, one line per fact, and starts the program if it is there: then the last line is `go`. Otherwise the
 * last line is `end`, and `receive` can be called.
 */
export function farScript({ nonce, build, nodeVersion }: FarScriptOptions): string {
  return `hf_main() {
unset ENV BASH_ENV CDPATH
LC_ALL=C; export LC_ALL
umask 077
root=\${HOLDFAST_HOME:-\${HOME:-/nonexistent}/.holdfast}
bin="$root/bin"; program="$bin/${build}"; own="$bin/node-${nodeVersion}"
say system "$(uname -s)"
say arch "$(uname -m)"
say user "$(id -un 2>/dev/null) $(id -u)"
say root "$root"
libc=glibc; for f in /lib/ld-musl-*; do [ -e "$f" ] && libc=musl; done
say libc "$libc"
if mkdir -p "$bin" 2>/dev/null && [ -w "$bin" ]; then
  try="$bin/.try-${nonce}"; printf '#!/bin/sh\\nexit 0\\n' > "$try" 2>/dev/null
  if [ ! -s "$try" ]; then say writable full
  else chmod 700 "$try"; if "$try" 2>/dev/null; then say writable yes; else say writable noexec; fi; fi
  rm -f "$try"
else say writable no; fi
say free "$(df -Pk "$bin" 2>/dev/null | tail -n 1 | awk '{print $4}')"
socket=\${DOCKER_HOST:-}; [ -n "$socket" ] || { socket=unix:///var/run/docker.sock; [ -S "\${XDG_RUNTIME_DIR:-/nonexistent}/docker.sock" ] && socket="unix://$XDG_RUNTIME_DIR/docker.sock"; }
case $socket in
unix://*) s=\${socket#unix://}; if [ ! -S "$s" ]; then say docker absent; elif [ -w "$s" ]; then say docker yes; else say docker denied; fi;;
*) say docker elsewhere;; esac
node=
if [ -f "$own/complete" ]; then node="$own/package/bin/node"
else n=$(command -v node 2>/dev/null); v=
  [ -z "$n" ] || v=$("$n" -p process.versions.node 2>/dev/null </dev/null)
  case \${v%%.*} in 2[4-9]|[3-9][0-9]) node=$n;; esac
  say node "$v"
fi
if [ -f "$program/complete" ] && [ -n "$node" ]; then hf_go; fi
say missing "$([ -n "$node" ] || echo node) $([ -f "$program/complete" ] || echo program)"
say end 1
}
say() { printf '%s %s %s\\n' '${nonce}' "$1" "$(printf '%s' "$2" | tr '\\n\\r' '  ' | cut -c1-1000)"; }
hf_go() {
: > "$program/used"
say go 1
cd / && exec "$node" "$program/dist/holdfast.cjs" connect --streams --home "$root"
say failed "its program cannot be run"; exit 1
}
hf_sum() {
if command -v sha256sum >/dev/null 2>&1; then sha256sum; elif command -v shasum >/dev/null 2>&1; then shasum -a 256; else openssl dgst -sha256 -r; fi | cut -c1-64
}
hf_fail() { rm -rf "$in"; say failed "$1"; exit 1; }
hf_receive() {
case $1 in node) final=$own;; program) final=$program;; *) exit 1;; esac
in="$bin/.incoming-${nonce}-$1"; rm -rf "$in"; mkdir -p "$in/new" || hf_fail "$bin cannot be written to"
say send "$1"
head -c "$2" > "$in/archive" 2>"$in/error" || hf_fail "$(cat "$in/error")"
[ "$(hf_sum < "$in/archive")" = "$3" ] || hf_fail "what arrived of $1 is not what was sent"
(cd "$in/new" && tar xzf ../archive) 2>"$in/error" || hf_fail "$1 cannot be unpacked: $(cat "$in/error")"
[ "$1" = program ] || "$in/new/package/bin/node" -p 1 >/dev/null 2>"$in/error" </dev/null || hf_fail "the Node that was sent cannot run there, install Node 24 on it: $(head -n 1 "$in/error")"
: > "$in/new/complete"; : > "$in/new/used"
[ -e "$final" ] || mv "$in/new" "$final" 2>"$in/error"
rm -rf "$in"
[ -f "$final/complete" ] || { say failed "$final is not complete: remove it"; exit 1; }
[ "$1" = program ] || node="$own/package/bin/node"
say done "$1"
}
hf_collect() {
find "$bin" -maxdepth 1 -name '.incoming-*' -mtime +1 -exec rm -rf {} + 2>/dev/null
find "$bin" -maxdepth 2 -name used -mtime +60 2>/dev/null | while read -r f; do
d=\${f%/used}; [ "$d" = "$program" ] || [ "$d" = "$own" ] || [ ! -f "$d/complete" ] || rm -rf "$d"; done
}
hf_main
`;
}

/** Asks for an archive: its bytes follow after the line `send`, and the machine checks them. */
export function receiveCommand(what: 'node' | 'program', bytes: number, sha256: string): string {
  return `hf_receive ${what} ${bytes} ${sha256}\n`;
}

/** Removes programs that nobody used for two months, and starts the program. */
export const START_COMMAND = 'hf_collect\nhf_go\n';
