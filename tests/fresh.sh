#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fresh.sh SOURCE: from nothing to the first answer by README alone.  A Debian 12 root that has nothing gets the
# source tree (what git knows of it), and in it the one command of README's first screen.  Takes minutes.
# Exit status 77 where no root can be made (no network, no right to chroot).
set -euo pipefail
source=$(cd "$1" && pwd)
# shellcheck source=tests/debian_root.sh
. "$source/tests/debian_root.sh"

git -C "$source" rev-parse >/dev/null 2>&1 || skip 'no git here that says what the source is'
make_root 'nothing was built'
mkdir "$root/kvasir"
git -C "$source" ls-files -z | tar -C "$source" --null -T - -c | tar -C "$root/kvasir" -x
# The machine's own way to PyPI, if it has one.
[ ! -f /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/pip.conf"
mkdir -p "$root/usr/local/share/ca-certificates"
cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/" 2>/dev/null || true
command=$(sed -n '/^## A first answer/,/^## /s/^    \(deploy\/quickstart\)$/\1/p' "$source/README.md" | head -n 1)
[ -n "$command" ] || fail 'README names no first command'

in_root apt-get -qq update >"$root/apt.log" 2>&1 || fail "apt-get update: $(tail -n 5 "$root/apt.log")"
start=$SECONDS
in_root sh -c "cd /kvasir && HOME=/root $command" </dev/null >"$root/out" 2>&1 ||
    fail "$command: $(tail -n 40 "$root/out")"
# Cold: nothing reused.  In another order: everything.
grep -qE '^cold +[0-9]+ ms +0 +[1-9][0-9]+$' "$root/out" || fail "the first question: $(tail -n 30 "$root/out")"
grep -qE '^hot +[0-9]+ ms +[1-9][0-9]+ +0$' "$root/out" || fail "the second question: $(tail -n 30 "$root/out")"
if grep -q 'its answers are meaningless' "$root/out"; then
    echo 'PyPI could not be reached: a generated model answered'
fi
sed -n '/^== what it took/,/^$/p' "$root/out"
echo "PASS: from nothing to two answers in $((SECONDS - start)) s"
