#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every test that docs/promises.md names is there, under that name.
set -euo pipefail
cd "${KVASIR_SRCDIR:-.}"
count=0
status=0
# shellcheck disable=SC2016  # backticks of Markdown, not of the shell
while read -r file name; do
    count=$((count + 1))
    if ! grep -q "START_TEST($name)" "$file"; then
        echo "promises: $file has no test $name" >&2
        status=1
    fi
done < <(sed -n 's/^|.*| `\(tests[^`]*\)` `\([a-z_]*\)` |$/\1 \2/p' docs/promises.md)
[ "$count" -ge 30 ] || { echo "promises: only $count promises are read" >&2; status=1; }
echo "promises: $count, each with its test"
exit $status
