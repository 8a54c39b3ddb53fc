#!/usr/bin/env bash
# The root filesystem of the sidecar: only Node, busybox, ripgrep and their libraries, to keep the attack surface small.
# Usage: build.sh OUT.tar NODE_BINARY   (Debian or Ubuntu; needs no root)
set -euo pipefail
out=$(realpath "$1") node=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir -p root/{bin,dev,etc,proc,sys,tmp,run,root,usr/local/bin,workspace,agent,store} debs lists/partial cache/archives/partial

# Uses temporary package lists, so that the machine's own apt state does not change.
apt=(-o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work/cache" -o Debug::NoLocking=1 -o APT::Sandbox::User= -o Acquire::Languages=none -qq)
apt-get "${apt[@]}" update
(cd debs && apt-get "${apt[@]}" download libc6 libgcc-s1 libstdc++6 libpcre2-8-0 busybox-static ripgrep)
for deb in debs/*.deb; do dpkg-deb -x "$deb" unpacked; done

# Debian 12 still ships some files under /lib, later ones under /usr/lib: merge them.
mkdir -p root/usr/lib root/usr/bin
for top in lib lib64; do
  [ -d "unpacked/$top" ] && [ ! -L "unpacked/$top" ] && mkdir -p "root/usr/$top" && cp -a "unpacked/$top/." "root/usr/$top/"
done
for top in lib lib64; do
  [ -d "unpacked/usr/$top" ] && mkdir -p "root/usr/$top" && cp -a "unpacked/usr/$top/." "root/usr/$top/"
  [ -d "root/usr/$top" ] && ln -s "usr/$top" "root/$top"
done
rm -rf root/usr/lib/*/gconv root/usr/lib/*/audit
for busybox in unpacked/bin/busybox unpacked/usr/bin/busybox; do
  [ -f "$busybox" ] && cp "$busybox" root/bin/busybox && break
done
for applet in $(root/bin/busybox --list); do
  [ "$applet" = busybox ] || ln -s busybox "root/bin/$applet"
done
ln -s ../../bin/env root/usr/bin/env
cp unpacked/usr/bin/rg root/usr/bin/rg
cp "$node" root/usr/local/bin/node
chmod 755 root/usr/local/bin/node

printf 'root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/tmp:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n' >root/etc/passwd
printf 'root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n' >root/etc/group
printf 'passwd: files\ngroup: files\nhosts: files dns\n' >root/etc/nsswitch.conf
chmod 1777 root/tmp
# Root owns every file, and all have the same time, so equal packages give equal bytes. A new named volume gets the owner of
# /workspace.
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --exclude=./workspace -cf "$out" -C root .
tar --mtime=@0 --owner=1000 --group=1000 --numeric-owner -rf "$out" -C root ./workspace
