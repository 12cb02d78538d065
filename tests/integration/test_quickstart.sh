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
grep -qE '^cold +[0-9]+ ms +0 +[1-9][0-9]+$' "$scratch/out" || fail "the cold question built nothing"
grep -qE '^hot +[0-9]+ ms +[1-9][0-9]+ +0$' "$scratch/out" || fail "the second question reused nothing"
grep -q 'builds_sealed' "$scratch/out" || fail "shows no statistics"
[ -z "$(find "$scratch" -mindepth 1 -not -name out)" ] || fail "left behind: $(find "$scratch")"
