#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# README's "By hand" does what it says: its commands after the build, with a model of random weights and a free port.
set -euo pipefail
source=$(cd "${KVASIR_SRCDIR:-.}" && pwd)
if ! command -v curl >/dev/null; then
    echo "SKIP: no curl: install the Debian package curl" >&2
    exit 77
fi
dir=$(mktemp -d /tmp/kvasir-readme-XXXXXX)
trap 'rm -rf "$dir"' EXIT
fail() {
    echo "--- output:" && cat "$dir/out" "$dir/log"
    echo "FAIL: $*" >&2
    exit 1
}
./kvasir-tiny-model --out "$dir/tiny.gguf" >/dev/null
port=$("$source/tests/support/free_port.py")

# The indented lines up to the part on GPUs, after the build.
sed -n '/^## By hand$/,/^On a GPU/s/^    //p' "$source/README.md" | grep -vE '^(autoreconf|deploy/install-packages) ' |
    sed -e "s|~/.cache/kvasir/[^ ]*\.gguf|$dir/tiny.gguf|" -e "s/8000/$port/g" -e "s|\.\./deploy/|$source/deploy/|" \
        -e 's/^curl /curl --fail --silent /' >"$dir/lines"
[ "$(grep -c '^\./' "$dir/lines")" -ge 6 ] || fail "hardly any command in README.md"
{
    echo "set -e; trap 'kill \$(jobs -p) 2>/dev/null || true; wait' EXIT"
    cat "$dir/lines"
} >"$dir/commands"
TMPDIR=$dir timeout 900 bash "$dir/commands" >"$dir/out" 2>"$dir/log" </dev/null || fail "a command failed"
grep -q '^documents_registered' "$dir/out" || fail "shows no statistics"
tail -n 1 "$dir/out" | python3 -c 'import json, sys
answer = json.load(sys.stdin)
assert answer["choices"][0]["message"]["role"] == "assistant" and answer["usage"]["documents"], answer' ||
    fail "the gateway's answer is none"
