#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A start-ask-stop cycle with every program under valgrind: no leak, no bad access.  Any finding ends a
# program with status 99, which the harness takes for a failed stop.
set -euo pipefail

if [ -n "${KVASIR_SANITIZED:-}" ]; then
    echo "SKIP: built with sanitizers, which look for the same"
    exit 77
fi
if ! command -v valgrind >/dev/null; then
    echo "SKIP: no valgrind here"
    exit 77
fi
# The synonym puts valgrind's malloc in the place of jemalloc's as well.
KVASIR_TEST_WRAPPER="env LD_PRELOAD=$PWD/tests/support/pidfd_shim.so valgrind -q --error-exitcode=99 \
--leak-check=full --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect \
--soname-synonyms=somalloc=*jemalloc*"
export KVASIR_TEST_WRAPPER CK_TIMEOUT_MULTIPLIER=10
exec tests/integration/test_start_stop
