#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# HTTPS: a certificate that verifies, a stream over it, and a client that goes away.
set -euo pipefail
# shellcheck source=tests/gateway/running.sh
. "${KVASIR_SRCDIR:-.}/tests/gateway/running.sh"

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost -keyout "$dir/key.pem" -out "$dir/cert.pem" 2>/dev/null
run_kvasir --tls-cert "$dir/cert.pem" --tls-key "$dir/key.pem"
python3 - "$port" "$dir/cert.pem" <<'PY'
import http.client
import json
import socket
import ssl
import sys

port, certificate = int(sys.argv[1]), sys.argv[2]
context = ssl.create_default_context(cafile=certificate)


def connect():
    return http.client.HTTPSConnection("localhost", port, context=context, timeout=600)


def get(path):
    connection = connect()
    connection.request("GET", path)
    response = connection.getresponse()
    return response.status, response.read().decode()


def ask(max_tokens):
    connection = connect()
    connection.request("POST", "/v1/chat/completions", json.dumps({
        "messages": [{"role": "user", "content": "x"}], "max_tokens": max_tokens, "stream": True,
        "ignore_eos": True, "documents": ["a text"]}))
    return connection, connection.getresponse()


while get("/health")[0] != 200:
    pass
_, response = ask(20)
body = response.read().decode()
assert response.status == 200 and body.endswith("data: [DONE]\n\n"), body[-200:]
while "\nkvasir_http_client_aborts_total 0\n" in get("/metrics")[1]:  # or it was whole before it was given up
    connection, response = ask(1000)
    assert response.readline().startswith(b"data: ")
    connection.sock.shutdown(socket.SHUT_RDWR)
    while "\nkvasir_blocks_own 0\n" not in get("/metrics")[1]:
        pass
try:  # plain HTTP is no answer
    plain = http.client.HTTPConnection("localhost", port, timeout=600)
    plain.request("GET", "/health")
    plain.getresponse()
    sys.exit("plain HTTP was answered")
except (http.client.HTTPException, OSError):
    pass
assert get("/health")[0] == 200
PY

if ./kvasir-gateway --port 0 --tls-cert "$dir/key.pem" --tls-key "$dir/key.pem" >"$dir/refused" 2>&1; then
    echo 'a key was taken for a certificate' >&2
    exit 1
fi
grep -q "detail=\"tls-cert $dir/key.pem, tls-key $dir/key.pem: no certificate" "$dir/refused" || { cat "$dir/refused" >&2 && exit 1; }
