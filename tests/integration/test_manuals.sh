#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The manuals are well-formed and name every option, those of the clients every command, and the protocol's every
# method.
set -euo pipefail
source=${KVASIR_SRCDIR:-.}
status=0

complain() {
    echo "test_manuals: $*" >&2
    status=1
}

for program in kvasir kvasirctl; do
    page=client/$program.1
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
    if command -v zsh >/dev/null; then
        ./$program completion zsh | zsh -n || complain "$program completion zsh is no zsh script"
    fi
    # As bash would: the script is read, then called with the words of a line.
    words=$(PATH=.:$PATH bash -c "source <(./$program completion bash)
        COMP_WORDS=($program --json v) COMP_CWORD=2; _$program; echo \"\${COMPREPLY[*]}\"")
    [ "$words" = version ] || complain "$program: bash completes 'v' to '$words'"
done
for page in daemon/kvasird.8 daemon/kvasir-keeper.8 worker/kvasir-worker.8 gateway/kvasir-gateway.8 \
    bench/kvasir-bench.1; do
    program=$(basename "${page%.[18]}")
    options=$("./$program" --help | sed -n 's/^  --\([a-z-]*\).*/\1/p')
    least=8
    [ "$program" != kvasir-keeper ] || least=7 # all that it has
    [ "$(wc -w <<<"$options")" -ge "$least" ] || complain "$program --help shows hardly any option"
    for option in $options; do
        grep -qE -- "Fl (Fl |-)$option( |$)" "$source/$page" || complain "$page: no --$option"
    done
    for option in $(sed -nE 's/^\.It Fl (Fl |-)([a-z-]+).*/\2/p' "$source/$page"); do
        grep -qx -- "$option" <<<"$options" || complain "$page: $program has no --$option"
    done
    [ "$program" != kvasir-bench ] || continue # its defaults are in its help alone
    while read -r option default; do
        sed -nE "/^\.It Fl (Fl |-)$option( |\$)/,/^\.It Fl/p" "$source/$page" | grep -wF -- "$default" >/dev/null ||
            complain "$page: --$option is $default by default"
    done < <("./$program" --help | sed -nE 's/^  --([a-z-]+) .*\[(.+)\]$/\1 \2/p' | grep -v ' true$')
done
# The protocol's page: every method, every status that is sent.
page=$source/docs/man/kvasir-protocol.7
methods=$(sed -n 's|.*"/kvasir.v1.\([A-Za-z]*/[A-Za-z]*\)".*|\1|p' "$source/proto/methods.h")
[ "$(wc -w <<<"$methods")" -ge 25 ] || complain "proto/methods.h shows hardly any method"
for method in $methods; do
    grep -qE "^\.It Li .*$method( |$)" "$page" || complain "$page: no method $method"
done
for code in $(sed -n 's/^ *RPC_\([A-Z_]*\) = [0-9]*,/\1/p' "$source/proto/wire.h"); do
    case $code in
        UNKNOWN | ABORTED) continue ;; # nothing says these
    esac
    grep -q "^\.It $code$" "$page" || complain "$page: no status $code"
done
# The options' page: every option of each program, and an example that is one.
page=docs/man/kvasir.conf.5
for program in kvasird kvasir-worker kvasir-gateway; do
    for option in $("./$program" --help | sed -n 's/^  --\([a-z-]*\).*/\1/p'); do
        case $option in
            config | print-config | help | version) continue ;;
        esac
        grep -qE "^\.It Li $option( No = Ar .+)?$" "$page" || complain "$page: no $option"
    done
done
example=$(mktemp)
trap 'rm -f "$example"' EXIT
sed -n '/^\.Sh EXAMPLES/,/^\.Ed/{/^[a-z].* = /p}' "$page" >"$example"
[ "$(wc -l <"$example")" -ge 3 ] || complain "$page has no example"
./kvasird --config "$example" --print-config >/dev/null || complain "$page: its example is refused"
if command -v mandoc >/dev/null; then
    for page in client/*.1 "$source"/client/*.3 "$source"/daemon/*.8 "$source"/worker/*.8 "$source"/gateway/*.8 \
        "$source"/bench/*.1 docs/man/*.5 "$source"/docs/man/*.7; do
        mandoc -Tlint -W warning "$page" >&2 || complain "$page: see mandoc above"
    done
fi
exit $status
