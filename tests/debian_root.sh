# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# A fresh Debian 12 in a folder of its own, for scripts beside this one: they source it, then call make_root.
# The folder goes with the script; what debootstrap made is kept for the next run.
root=$(mktemp -d)
keep=${XDG_CACHE_HOME:-$HOME/.cache}/kvasir/debian-root.tar

fail() {
    echo "${0##*/}: $*" >&2
    exit 1
}
skip() {
    echo "SKIP: $*"
    exit 77
}
finish() {
    umount "$root/proc" 2>/dev/null || true
    rm -rf --one-file-system "$root"
}
trap finish EXIT
in_root() {
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 chroot "$root" "$@"
}

make_root() { # WHAT: what is not done where no root can be made, for the line that says so
    if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
        skip "no root or no debootstrap: $1"
    fi
    if [ -f "$keep" ]; then
        tar -C "$root" -xf "$keep"
    else
        debootstrap --variant=minbase bookworm "$root" >"$root.log" 2>&1 ||
            skip "debootstrap made no root: $(tail -n 1 "$root.log")"
        rm -f "$root.log"
        mkdir -p "${keep%/*}"
        tar -C "$root" -cf "$keep.part" . && mv "$keep.part" "$keep"
    fi
    chmod 755 "$root"
    in_root true || skip "chroot is refused here: $1"
    [ ! -f /etc/apt/apt.conf ] || cp /etc/apt/apt.conf "$root/etc/apt/"
    cp -L /etc/resolv.conf "$root/etc/" 2>/dev/null || true
    cp /etc/apt/sources.list "$root/etc/apt/" 2>/dev/null || true
    cp -r /etc/apt/sources.list.d /etc/apt/apt.conf.d "$root/etc/apt/"
    mount -t proc proc "$root/proc" || skip "mount is refused here: $1"
}
