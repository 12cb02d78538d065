#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every endpoint, asked in every wrong way; see test_endpoints.py.
set -euo pipefail
# shellcheck source=tests/gateway/running.sh
. "${KVASIR_SRCDIR:-.}/tests/gateway/running.sh"
run_kvasir --served-model-name tiny
until python3 -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/health')" 2>/dev/null; do :; done
python3 "$source/tests/gateway/test_endpoints.py" "$port" "$source/gateway/routes.c"
