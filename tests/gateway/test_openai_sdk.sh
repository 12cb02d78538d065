#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# OpenAI's Python SDK, as PyPI has it, against the gateway.  Skipped, loudly, where it cannot be had.
set -euo pipefail
# shellcheck source=tests/gateway/running.sh
. "${KVASIR_SRCDIR:-.}/tests/gateway/running.sh"
version=3.57.0
sdk=${XDG_CACHE_HOME:-$HOME/.cache}/kvasir/openai-$version

if [ ! -d "$sdk" ]; then
    if ! timeout 300 python3 -m pip install -q --no-warn-script-location --target "$dir/sdk" "openai==$version" \
        >"$dir/pip" 2>&1; then
        echo "SKIP: no openai==$version from PyPI: $(tail -n 1 "$dir/pip")" >&2
        exit 77
    fi
    mkdir -p "${sdk%/*}"
    mv "$dir/sdk" "$sdk"
fi
run_kvasir --served-model-name tiny --api-key secret
until python3 -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/health')" 2>/dev/null; do :; done
PYTHONPATH=$sdk python3 "$source/tests/gateway/test_openai_sdk.py" "$port"
