#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tidy.sh [FOLDER]: the rules of style that a machine can hold, as a test of the whole tree.
#
# Prints "file:line: rule" for every violation.  Before it judges the tree it proves on a planted tree that
# each rule can fail.  In a release tarball, without git, it looks at every file of the tree.
set -euo pipefail

lines_max=700
columns_max=100
function_lines_max=70

# folder -> folders it may include (its own is always allowed); tests and bench may include all.
includes='
common:
proto: common
model: common
kernels: common
kvpool: common
daemon: common proto model kvpool
worker: common proto model kvpool kernels
gateway: common proto model client
client: common proto
'
# What kernels/ops.h includes is an operation, but for the headers that only describe data.
kernel_data='attn_desc kv_layout'

files() { # PATTERN...: the tracked files, or all but what is built (distcheck: _build) where there is no git
    if [ -e .git ]; then
        git ls-files -- "$@"
    else
        local pattern expr=()
        for pattern in "$@"; do
            expr+=(-o -path "./$pattern" -o -path "./*/$pattern")
        done
        find . -type f \( "${expr[@]:1}" \) -not -path './build*' -not -path './_build/*' -not -name '*.pb-c.*' \
            -not -name aclocal.m4 | sed 's|^\./||'
    fi | sort
}

c_lines() { # one pass over all C: lines, functions, calls, includes, guards
    # shellcheck disable=SC2016  # awk's fields, not the shell's
    files '*.c' '*.h' '*.cu' '*.cuh' | xargs -r awk -v includes="$includes" -v lines_max=$lines_max \
        -v columns_max=$columns_max -v function_lines_max=$function_lines_max '
        function say(rule) { print FILENAME ":" FNR ": " rule }
        function guard(path) {
            path = toupper(path)
            gsub(/[^A-Z0-9]/, "_", path)
            return path
        }
        BEGIN {
            count = split(includes, rows, "\n")
            for (i = 1; i <= count; i++) {
                if (split(rows[i], row, ":") == 2) {
                    allowed[row[1]] = " " row[1] " " row[2] " "
                }
            }
            banned = "(strcpy|strcat|stpcpy|sprintf|vsprintf|gets|strtok|atoi|atol|atof|system|popen|" \
                "tmpnam|tempnam|mktemp|sleep|usleep|nanosleep|rand|srand|alloca|setjmp|longjmp)"
        }
        FNR == 1 {
            folder = FILENAME
            sub(/\/.*/, "", folder)
            own = FILENAME
            sub(/\.c$/, ".h", own)
            has_own = own != FILENAME && (getline line < own) > 0
            if (has_own) {
                close(own)
            }
            first_include = 1
            if ($0 !~ /SPDX-License-Identifier: Apache-2\.0/) {
                say("the first line is no SPDX line")
            }
        }
        FNR == lines_max + 1 { say("file of more than " lines_max " lines") }
        /\t/ { say("tab") }
        /[ \t]$/ { say("trailing space") }
        length($0) > columns_max { say("line of more than " columns_max " columns") }
        /TODO|FIXME/ { say("unfinished work in a comment: file an issue") }
        /^{/ { opened = FNR }
        /^}/ {
            if (opened && FNR - opened - 1 > function_lines_max) {
                say("function of " FNR - opened - 1 " lines, more than " function_lines_max)
            }
            opened = 0
        }
        $0 ~ "(^|[^A-Za-z0-9_])" banned "[ ]*\\(" && $0 !~ /^ ?\*|\/\*/ { say("banned call: " $0) }
        FILENAME ~ /\.h$/ && /^#ifndef/ && !guarded[FILENAME]++ && $2 != guard(FILENAME) {
            say("header guard is not " guard(FILENAME))
        }
        /^#include "/ {
            target = $2
            gsub(/"/, "", target)
            if (first_include && has_own && target != own) {
                say("the first include is not its own header")
            }
            if (target !~ /\//) {
                say("include without its folder: " target)
            } else if (folder in allowed) {
                sub(/^kvasir\/v1\//, "proto/", target)
                sub(/\/.*/, "", target)
                if (index(allowed[folder], " " target " ") == 0) {
                    say(folder " may not include " target)
                }
            }
            if ($2 ~ /main\.c"$/) {
                say("nobody includes a main.c")
            }
        }
        /^#include/ { first_include = 0 }
    '
}

guards_exist() {
    files '*.h' | xargs -r grep -L '^#ifndef' | sed 's/$/:1: no header guard/'
}

scripts_have_spdx() {
    local file
    files '*.sh' '*.am' '*.ac' '*.m4' '*.py' '*.proto' '*.service' 'deploy/*' '.ci/*' 'bench/run_*' | sort -u |
        while read -r file; do
            # deploy/debian/copyright speaks for its folder, whose formats have no comments.
            case $file in *.md | *.json | deploy/quickstart.d/* | deploy/debian/*) continue ;; esac
            head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || echo "$file:1: no SPDX line"
        done
}

no_paths_of_a_machine() {
    local found
    found=$(files '*' | xargs -r grep -nIE '(^|[^A-Za-z0-9_.$}/])/(home|root|[w]ork)/[a-z]' || true)
    [ -z "$found" ] || sed -E 's/^([^:]*:[0-9]*):.*/\1: path of one machine/' <<<"$found"
}

operations_have_twin_and_test() {
    local stem
    [ -f kernels/ops.h ] || return 0
    sed -n 's|^#include "kernels/\(.*\)\.h".*|\1|p' kernels/ops.h | while read -r stem; do
        case " $kernel_data " in *" $stem "*) continue ;; esac
        [ -f "kernels/${stem}_ref.c" ] || echo "kernels/$stem.h:1: no twin kernels/${stem}_ref.c"
        [ -f "tests/kernels/test_$stem.c" ] || echo "kernels/$stem.h:1: no test tests/kernels/test_$stem.c"
    done
}

sources_are_listed() { # what no local.am names is in no build and no tarball
    local listed
    listed=$(files '*.am' | while read -r am; do
        sed "s|%D%|$(dirname "$am")|g" "$am" | tr -s ' \t\\=' '\n'
    done | sort -u)
    files '*.c' '*.h' '*.cu' '*.cuh' '*.proto' '*.sh' | sort -u | comm -23 - <(echo "$listed") |
        sed 's/$/:1: listed in no local.am/'
}

judge() { # FOLDER: all violations of the tree
    (
        cd "$1"
        c_lines
        guards_exist
        scripts_have_spdx
        no_paths_of_a_machine
        operations_have_twin_and_test
        sources_are_listed
    )
}

plant() { # RULE FILE: plants stdin as FILE in a clean tree; the rule must be all that is reported
    local tree out
    tree=$(mktemp -d)
    mkdir -p "$tree/common" "$tree/kernels" "$(dirname "$tree/$2")"
    printf '# SPDX-License-Identifier: Apache-2.0\nX = common/a.c common/a.h kernels/k.h %s\n' \
        "${3-$2}" >"$tree/Makefile.am"
    cat >"$tree/$2"
    out=$(judge "$tree")
    rm -rf "$tree"
    if [ "$(sed -E 's/^[^:]*:[0-9]*: //' <<<"$out")" != "$1" ]; then
        printf 'self-test: planted "%s" in %s, got "%s"\n' "$1" "$2" "$out" >&2
        return 1
    fi
}

repeat() { # COUNT LINE
    seq "$1" | sed "s/.*/$2/"
}

prove_that_every_rule_can_fail() {
    local c='/* SPDX-License-Identifier: Apache-2.0 */'
    plant '' common/a.c < <(printf '%s\n#include <stdio.h>\n' "$c")
    plant 'the first line is no SPDX line' common/a.c <<<'int a;'
    plant 'no SPDX line' tests/a.sh <<<'#!/bin/sh'
    plant 'tab' common/a.c < <(printf '%s\nint\ta;\n' "$c")
    plant 'trailing space' common/a.c < <(printf '%s\nint a; \n' "$c")
    plant "line of more than $columns_max columns" common/a.c < <(printf '%s\n/* %099d */\n' "$c" 0)
    plant "file of more than $lines_max lines" common/a.c < <(echo "$c" && repeat $lines_max 'int a;')
    plant "function of $((function_lines_max + 1)) lines, more than $function_lines_max" common/a.c \
        < <(printf '%s\nvoid\na(void)\n{\n' "$c" && repeat $((function_lines_max + 1)) '    a();' && echo '}')
    plant 'banned call:     usleep(1);' common/a.c < <(printf '%s\n    usleep(1);\n' "$c")
    plant 'banned call:     x = strcpy (a, b);' common/a.c < <(printf '%s\n    x = strcpy (a, b);\n' "$c")
    plant 'unfinished work in a comment: file an issue' common/a.c < <(printf '%s\n/* TOD''O: x */\n' "$c")
    plant 'common may not include daemon' common/a.c < <(printf '%s\n#include "daemon/x.h"\n' "$c")
    plant 'daemon may not include kernels' daemon/a.c < <(printf '%s\n#include "kernels/ops.h"\n' "$c")
    plant 'client may not include kvpool' client/a.c < <(printf '%s\n#include "kvpool/arena.h"\n' "$c")
    plant 'kernels may not include proto' kernels/a.c < <(printf '%s\n#include "kvasir/v1/rag.pb-c.h"\n' "$c")
    plant 'include without its folder: x.h' common/a.c < <(printf '%s\n#include "x.h"\n' "$c")
    plant 'nobody includes a main.c' tests/a.c < <(printf '%s\n#include "daemon/main.c"\n' "$c")
    plant 'header guard is not COMMON_A_H' common/a.h < <(printf '%s\n#ifndef A_H\n' "$c")
    plant 'no header guard' common/a.h <<<"$c"
    plant 'path of one machine' README.md <<<'see /ho''me/someone/kvasir'
    plant 'listed in no local.am' common/b.c '' <<<"$c"
    plant $'no twin kernels/k_ref.c\nno test tests/kernels/test_k.c' kernels/ops.h \
        < <(printf '%s\n#ifndef KERNELS_OPS_H\n#include "kernels/k.h"\n' "$c")
}

prove_that_every_rule_can_fail
violations=$(judge "${1:-${KVASIR_SRCDIR:-$(dirname "$0")/..}}")
[ -z "$violations" ] && exit 0
echo "$violations"
echo "tidy: $(wc -l <<<"$violations") violations" >&2
exit 1
