#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The systemd units: systemd reads them without a complaint, the programs that they name exist and take the
# options that they pass, and what is exposed stays below a limit (systemd-analyze security, 0 good, 10 bad).
set -euo pipefail
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

fail() {
    echo "test_units: $*" >&2
    exit 1
}

command -v systemd-analyze >/dev/null || {
    echo 'SKIP: no systemd-analyze here, the units were not checked'
    exit 77
}

# The programs of the build stand where the units say, in a root of their own.
make_install() {
    env -u MAKEFLAGS -u MAKELEVEL make -s prefix=/usr sysconfdir=/etc systemdsystemunitdir=/usr/lib/systemd/system \
        DESTDIR="$stage" "$@" >/dev/null
}
rm -f deploy/systemd/*.service
make_install install-systemdsystemunitDATA install-sbinPROGRAMS install-binPROGRAMS install-deploy
rm -f deploy/systemd/*.service # this prefix was the test's

units=$stage/usr/lib/systemd/system
for unit in "$units"/*; do
    while IFS= read -r line; do
        read -r program arguments <<<"${line#ExecStart=}"
        [ -x "$stage$program" ] || fail "${unit##*/} starts $program, which is not installed"
        for argument in $arguments; do
            grep -q -- "${argument%%=*}" <("$stage$program" --help) ||
                fail "${unit##*/}: $program has no option ${argument%%=*}"
        done
    done < <(grep '^ExecStart=' "$unit" || true)
done

# Only our own lines count: a machine's other units are not under test.
for name in kvasird.service kvasir-gateway.service kvasir-worker@.service kvasir.target; do
    sed "s|=/usr/|=$stage/usr/|" "$units/$name" >"$stage/$name"
done
complaints=$(systemd-analyze verify --man=no --recursive-errors=no "$stage/kvasird.service" "$stage/kvasir-gateway.service" \
    "$stage/kvasir-worker@0.service" "$stage/kvasir.target" 2>&1 | grep -i kvasir || true)
[ -z "$complaints" ] || fail "systemd-analyze verify: $complaints"

# Who is enabled as docs/operations.md says starts with the machine.
systemctl --root="$stage" enable kvasird kvasir-worker@0 kvasir-gateway 2>/dev/null
for name in kvasird kvasir-worker@0 kvasir-gateway; do
    for target in multi-user kvasir; do
        [ -L "$stage/etc/systemd/system/$target.target.wants/$name.service" ] || fail "$target.target does not start $name"
    done
done

# A crash in a loop is tried again for ever, wrong options are not.
for unit in "$units"/*.service; do
    grep -qx 'StartLimitIntervalSec=0' "$unit" || fail "${unit##*/}: systemd gives up after five crashes"
    grep -qx 'RestartPreventExitStatus=2' "$unit" || fail "${unit##*/}: started again and again with wrong options"
done

exposure() { # UNIT LIMIT (tenths)
    systemd-analyze security --offline=true --no-pager --threshold="$2" "$stage/$1" >"$stage/exposure" 2>&1 ||
        fail "$1 is exposed more than $2: $(tail -n 1 "$stage/exposure")"
    tail -n 1 "$stage/exposure"
}
exposure kvasird.service 20
exposure kvasir-gateway.service 20
exposure kvasir-worker@.service 20

# The sample configuration is what the program prints, and the program takes it.
for program in kvasird kvasir-gateway kvasir-worker; do
    config=$stage/etc/kvasir/$program.conf
    "./$program" --print-config | cmp - "$config" || fail "$config is not what $program prints"
    "./$program" --config="$config" --help >/dev/null || fail "$program refuses $config"
done

# An operator's file survives another installation.
echo '# mine' >"$stage/etc/kvasir/kvasird.conf"
make_install install-deploy
grep -q '^# mine$' "$stage/etc/kvasir/kvasird.conf" || fail 'a changed configuration was overwritten'
