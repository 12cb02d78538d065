#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Python client against a live daemon.  Skipped, loudly, where pyzmq and protobuf cannot be had.
set -euo pipefail
# shellcheck source=tests/gateway/running.sh
. "${KVASIR_SRCDIR:-.}/tests/gateway/running.sh"
packages=(pyzmq==27.3.0 protobuf==7.36.2)
library=${XDG_CACHE_HOME:-$HOME/.cache}/kvasir/python-client-1

if [ ! -d "$library" ]; then
    if ! timeout 300 python3 -m pip install -q --no-warn-script-location --target "$dir/library" "${packages[@]}" \
        >"$dir/pip" 2>&1; then
        echo "SKIP: no ${packages[*]} from PyPI: $(tail -n 1 "$dir/pip")" >&2
        exit 77
    fi
    mkdir -p "${library%/*}"
    mv "$dir/library" "$library"
fi
export KVASIR_SCHEMA=$dir/schema.binpb PYTHONDONTWRITEBYTECODE=1
protoc -I "$source/proto" --descriptor_set_out="$KVASIR_SCHEMA" "$source"/proto/kvasir/v1/*.proto
start kvasird ./kvasird --load-format dummy --shape tiny --kv-memory 32MiB
start worker ./kvasir-worker
PYTHONPATH=$source/clients/python/src:$library python3 "$source/clients/python/tests/test_client.py"
