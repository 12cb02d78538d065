#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What a program outside this tree gets: the example of libkvasir.3 builds with the installed header,
# library (shared and archive) and pkg-config file alone, neither shows a name but kvasir_*, and the header
# is C and C++.
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
    install-libLIBRARIES install-shared install-kvasirincludeHEADERS install-pkgconfigDATA >/dev/null
pc=$(find "$stage" -name kvasir.pc)
export PKG_CONFIG_PATH=${pc%/*} PKG_CONFIG_SYSROOT_DIR=$stage

awk '/^\.Bd -literal/ { on = 1; next } /^\.Ed/ { on = 0 } on' "$source/client/libkvasir.3" |
    sed 's/\\e/\\/g' >"$stage/example.c"
grep -q kvasir_generate "$stage/example.c" || fail 'no example in libkvasir.3'
archive=$(find "$stage" -name libkvasir.a)
shared=$(find "$stage" -name 'libkvasir.so.*')
build_and_run() { # NAME LINK-OPTION...: without a daemon the example says so and fails with UNAVAILABLE
    local program=$stage/$1 status=0
    shift
    "${CC:-cc}" -std=c11 -Wall -Wextra -Werror "${sanitize[@]}" -o "$program" "$stage/example.c" "$@"
    LD_LIBRARY_PATH=${shared%/*} KVASIR_RUNTIME_DIR=$stage "$program" 2>"$stage/errors" || status=$?
    [ "$status" = 14 ] || fail "the example ended with $status: $(cat "$stage/errors")"
    grep -q '^UNAVAILABLE: no kvasird at ipc://' "$stage/errors" || fail "$(cat "$stage/errors")"
}
read -ra flags <<<"$(pkg-config --cflags --libs kvasir)"
build_and_run with-shared "${flags[@]}"
readelf -d "$stage/with-shared" | grep -q "NEEDED.*${shared##*/}" || fail 'the shared library is not used'
# Not pkg-config --static: that would want an archive of everything that libzmq stands on, too.
read -ra flags <<<"$(pkg-config --cflags kvasir) $archive \
    $(env -u PKG_CONFIG_SYSROOT_DIR pkg-config --libs libzmq libprotobuf-c) -pthread"
build_and_run with-archive "${flags[@]}"

for symbols in "--extern-only $archive" "--dynamic $shared"; do
    # shellcheck disable=SC2086  # an option and a path without blanks
    names=$(nm --defined-only $symbols | awk 'NF == 3 && $3 !~ /^kvasir_[a-z]/ { print $3 }' |
        grep -v '^__\(asan\|odr_asan\)' || true)
    [ -z "$names" ] || fail "foreign names in ${symbols##*/}: $names"
done

header=$(find "$stage" -name kvasir.h)
printf '#include "%s"\nint main() { return kvasir_version() == nullptr; }\n' "$header" >"$stage/cpp.cc"
if command -v c++ >/dev/null; then
    c++ -std=c++11 -Wall -Wextra -Werror -fsyntax-only "$stage/cpp.cc"
fi
