#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The manuals of the client programs are well-formed and name every option and command of --help.
set -euo pipefail
source=${KVASIR_SRCDIR:-.}
status=0

complain() {
    echo "test_manuals: $*" >&2
    status=1
}

for program in kvasir kvasirctl; do
    page=$source/client/$program.1
    help=$(./$program --help)
    options=$(sed -n 's/^  \(-.,\|   \) --\([a-z-]*\).*/\2/p' <<<"$help")
    [ "$(wc -w <<<"$options")" -ge 10 ] || complain "$program --help shows hardly any option"
    for option in $options; do
        grep -qE -- "Fl (. , )?-$option( |\$)" "$page" || complain "$page: no --$option"
    done
    commands=$(sed -n '/^Commands:/,/^$/s/^  \([a-z]*\( [a-z][a-z]*\)*\).*/\1/p' <<<"$help")
    while read -r command; do
        grep -qE "^\\.It .*Cm $command( |\$)" "$page" || complain "$page: no command $command"
    done <<<"$commands"
    ./$program completion | bash -n || complain "$program completion is no bash script"
done
if command -v mandoc >/dev/null; then
    for page in "$source"/client/*.[13]; do
        mandoc -Tlint -W warning "$page" >&2 || complain "$page: see mandoc above"
    done
fi
exit $status
