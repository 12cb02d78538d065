#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# README's first screen works: quickstart on the generated model, in this build, without a terminal.
set -euo pipefail

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
    cat "$scratch/out"
    echo "FAIL: $*"
    exit 1
}

TMPDIR=$scratch "$KVASIR_SRCDIR/deploy/quickstart" --skip-packages --model tiny --build . \
    </dev/null >"$scratch/out" 2>&1 || fail "exit status $?"
grep -q 'its answers are meaningless' "$scratch/out" || fail "does not call the answers meaningless"
# Cold: nothing reused.  In another order: everything.
read -r cold hot <<<"$(sed -n 's/.*document tokens \([0-9]*\) reused.*/\1/p' "$scratch/out" | xargs)"
[ "${cold:-x}" = 0 ] || fail "the cold question reused ${cold:-?} tokens"
[ "${hot:-0}" -gt 100 ] || fail "the second question reused ${hot:-?} tokens"
grep -q 'builds_sealed' "$scratch/out" || fail "shows no statistics"
[ -z "$(find "$scratch" -mindepth 1 -not -name out)" ] || fail "left behind: $(find "$scratch")"
