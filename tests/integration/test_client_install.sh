#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a program outside this tree gets: the example of libkvasir.3 builds with the installed header,
# archive and pkg-config file alone, the archive shows no name but kvasir_*, and the header is C and C++.
set -euo pipefail
source=${KVASIR_SRCDIR:-.}
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

fail() {
    echo "test_client_install: $*" >&2
    exit 1
}

sanitize=()
[ -z "${KVASIR_SANITIZED:-}" ] || sanitize=('-fsanitize=address,undefined')
env -u MAKEFLAGS -u MAKELEVEL make -s DESTDIR="$stage" \
    install-libLIBRARIES install-kvasirincludeHEADERS install-pkgconfigDATA >/dev/null
pc=$(find "$stage" -name kvasir.pc)
export PKG_CONFIG_PATH=${pc%/*} PKG_CONFIG_SYSROOT_DIR=$stage

awk '/^\.Bd -literal/ { on = 1; next } /^\.Ed/ { on = 0 } on' "$source/client/libkvasir.3" |
    sed 's/\\e/\\/g' >"$stage/example.c"
grep -q kvasir_generate "$stage/example.c" || fail 'no example in libkvasir.3'
# shellcheck disable=SC2046  # flags are words
"${CC:-cc}" -std=c11 -Wall -Wextra -Werror "${sanitize[@]}" -o "$stage/example" "$stage/example.c" \
    $(pkg-config --cflags --libs kvasir)

# Without a daemon the example says so and fails with UNAVAILABLE.
status=0
KVASIR_RUNTIME_DIR=$stage "$stage/example" 2>"$stage/errors" || status=$?
[ "$status" = 14 ] || fail "the example ended with $status: $(cat "$stage/errors")"
grep -q '^UNAVAILABLE: no kvasird at ipc://' "$stage/errors" || fail "$(cat "$stage/errors")"

archive=$(find "$stage" -name libkvasir.a)
names=$(nm --defined-only --extern-only "$archive" | awk 'NF == 3 && $3 !~ /^kvasir_[a-z]/ { print $3 }' |
    grep -v '^__\(asan\|odr_asan\)' || true)
[ -z "$names" ] || fail "foreign names in the archive: $names"

header=$(find "$stage" -name kvasir.h)
printf '#include "%s"\nint main() { return kvasir_version() == nullptr; }\n' "$header" >"$stage/cpp.cc"
if command -v c++ >/dev/null; then
    c++ -std=c++11 -Wall -Wextra -Werror -fsyntax-only "$stage/cpp.cc"
fi
