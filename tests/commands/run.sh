#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every command of kvasirctl, as people and as programs read it, against a daemon that serves.
set -euo pipefail
# shellcheck source=tests/gateway/running.sh
. "${KVASIR_SRCDIR:-.}/tests/gateway/running.sh"
printf 'load-format = dummy\nshape = tiny\nkv-memory = 32MiB\nmax-waiting = 100\nlog-level = warn\n' >"$dir/kvasird.conf"
start kvasird ./kvasird --config "$dir/kvasird.conf"
start worker ./kvasir-worker
PYTHONDONTWRITEBYTECODE=1 python3 "$source/tests/commands/test_commands.py" "$dir"
