#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# docs/tutorial.md does what it says: its commands, in their order, on the CPU with a model of random weights.
set -euo pipefail
source=$(cd "${KVASIR_SRCDIR:-.}" && pwd)
man=/usr/share/man/man5

fail() {
    echo "--- the tutorial's output:" && cat "$dir/out"
    echo "FAIL: $*" >&2
    exit 1
}
for page in fstab resolv.conf; do
    if ! [ -f "$man/$page.5.gz" ]; then
        echo "SKIP: no manual page $page(5): install the Debian packages manpages and mount" >&2
        exit 77
    fi
done
if ! command -v man >/dev/null; then
    echo "SKIP: no man: install the Debian package man-db" >&2
    exit 77
fi

dir=$(mktemp -d /tmp/kvasir-tutorial-XXXXXX)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/pages" "$dir/run"
cp "$man/fstab.5.gz" "$man/resolv.conf.5.gz" "$dir/pages"
./kvasir-tiny-model --out "$dir/tiny.gguf" --context 16384 >/dev/null
port=$("$source/tests/support/free_port.py")

# The blocks marked sh, nothing else; in a folder of their own, from which docs/ can be seen.
ln -s "$source/docs" "$dir/docs"
# shellcheck disable=SC2016  # the dollars are for the commands
{
    echo 'set -e; trap "kill \$(jobs -p) 2>/dev/null || true; wait" EXIT' # also after a failure nothing stays
    sed -n '/^```sh$/,/^```$/{/^```/!p}' "$source/docs/tutorial.md"
} >"$dir/commands"
[ "$(grep -c . "$dir/commands")" -ge 15 ] || fail "hardly any command in docs/tutorial.md"
cd "$dir"
PATH=$OLDPWD:$PATH MODEL=$dir/tiny.gguf DEVICE=cpu KV='--kv-memory 64MiB' PAGES=$dir/pages PORT=$port \
    KVASIR_RUNTIME_DIR=$dir/run PYTHONDONTWRITEBYTECODE=1 timeout 900 bash commands >out 2>log </dev/null ||
    { cat log; fail "exit status $?"; }

grep -qE '^2 pages, [1-9][0-9]+ documents$' out || fail "no documents were made"
[ "$(grep -c '^read for it:$' out)" = 3 ] || fail "not three answers"
csplit -s -z -f ask- out '/^read for it:$/' '{*}'
grep -qE '^  cold +[0-9]+ tokens  fstab\(5\)#' ask-01 || fail "the first question read nothing of fstab(5)"
grep -q 'tokens of prompt, 0 of them had been read before' ask-01 || fail "the first question was not cold"
grep -qE '^  hit +[0-9]+ tokens  fstab\(5\)#' ask-02 || fail "the second question hit nothing"
grep -qE '^coverage 100\.0%' out || fail "the corpus is not resident"
grep -qE '^  hit +[0-9]+ tokens  resolv\.conf\(5\)#' ask-03 || fail "the third question found nothing of resolv.conf(5)"
grep -q '^  cold' ask-03 && fail "something was read again after all had been"
grep -q 'it was there whole' ask-03 || fail "explain says nothing"
[ -z "$(ls run)" ] || fail "left behind: $(ls run)"
