#!/usr/bin/env bash
# The root filesystem of an agent image: a small Debian 12 with Node and the packages of a list.
# Usage: build.sh OUT.tar NODE_BINARY NPM_TARBALL PACKAGES   (Debian or Ubuntu with mmdebstrap)
set -euo pipefail
out=$(realpath "$1") node=$(realpath "$2") npm=$(realpath "$3") list=$(realpath "$4")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Files for /usr/local, prepared outside so that one hook can copy them in.
mkdir -p "$work/local/bin" "$work/local/lib/node_modules/npm"
cp "$node" "$work/local/bin/node"
tar -xzf "$npm" -C "$work/local/lib/node_modules/npm" --strip-components=1 --no-same-owner
chmod 755 "$work/local/bin/node" "$work"/local/lib/node_modules/npm/bin/*.js
ln -s ../lib/node_modules/npm/bin/npm-cli.js "$work/local/bin/npm"
ln -s ../lib/node_modules/npm/bin/npx-cli.js "$work/local/bin/npx"
tar -cf "$work/local.tar" --owner=0 --group=0 --numeric-owner -C "$work/local" .

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
options=()
[ -f "$keyring" ] && options+=("--keyring=$keyring")
packages=$(grep -v '^#' "$list" | paste -sd,)
# Lets `pip install` work unchanged: it installs to the user site if the system's is read-only.
cat >"$work/pip.conf" <<'END'
[global]
break-system-packages = true
disable-pip-version-check = true
root-user-action = ignore
END
# Chromium, if somebody adds it: Holdfast has to read the name that a TLS connection is for.
echo '{ "EncryptedClientHelloEnabled": false }' >"$work/chromium.json"
mmdebstrap --quiet --variant=minbase --include="$packages" "${options[@]}" \
  --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
  --dpkgopt='force-unsafe-io' \
  --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
  --customize-hook='groupadd -R "$1" -g 1000 agent' \
  --customize-hook='useradd -R "$1" -u 1000 -g 1000 -m -s /bin/bash agent' \
  --customize-hook='mkdir -p "$1/workspace" "$1/agent" && chown 1000:1000 "$1/workspace"' \
  --customize-hook="tar -xf '$work/local.tar' -C \"\$1/usr/local\"" \
  --customize-hook="install -m 644 '$work/pip.conf' \"\$1/etc/pip.conf\"" \
  --customize-hook="install -D -m 644 '$work/chromium.json' \"\$1/etc/chromium/policies/managed/holdfast.json\"" \
  --customize-hook='rm -rf "$1"/etc/apt/sources.list.d/0000* "$1"/etc/apt/apt.conf.d/99mmdebstrap "$1"/var/log/*' \
  --customize-hook=': >"$1/etc/hostname"; : >"$1/etc/resolv.conf"' \
  --customize-hook='echo "deb http://deb.debian.org/debian bookworm main" >"$1/etc/apt/sources.list"' \
  bookworm "$out"
