# SPDX-License-Identifier: Apache-2.0
"""Every endpoint of the gateway's own table, with requests that are wrong in every way that has a name: each is refused
in OpenAI's shape with a status of the client's, none is answered with the server's, and the server goes on."""
import http.client
import json
import re
import socket
import sys

PORT, ROUTES = int(sys.argv[1]), sys.argv[2]
PATIENCE_S = 600
ERROR = {"message", "type", "param", "code"}

CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
GOOD = {"/v1/chat/completions": CHAT, "/v1/completions": {"prompt": "hi", "max_tokens": 1},
        "/v1/documents": {"text": "a document", "id": "d"}, "/tokenize": {"prompt": "hi"},
        "/detokenize": {"tokens": [65]}}

# Not JSON, or not an object.
BROKEN = [b"", b"{", b"[]", b"null", b"1", b'"text"', b"{\"a\":}", b"\xff\xfe", b'{"messages": "\xff"}', b"[" * 100000,
          b'{"messages": [' + b'{"role": ' * 5000, b"{}", b'{"messages": null, "prompt": null, "text": null}', b"{} {}"]

# A good request with one member made wrong: (path, member, values).
WRONG = [
    ("/v1/chat/completions", "messages", [[], {}, "hi", [1], [{}], [{"role": "user"}], [{"role": 1, "content": "x"}],
                                          [{"role": "user", "content": 1}], [{"role": "pirate", "content": "x"}]]),
    ("/v1/chat/completions", "documents", [1, {}, "text", [1], [None], [[]], [{}], [{"id": 5}], [{"text": 1}],
                                           [{"hash": "sha256:12"}], [{"id": "nobody"}], [{"text": "x", "hash": "y"}]]),
    ("/v1/chat/completions", "max_tokens", [-1, 0, "many", 1.5, 1e300, 2**40]),
    ("/v1/chat/completions", "temperature", [-1, "hot", 1e9]),
    ("/v1/chat/completions", "top_p", [-0.1, 1.1, "x"]),
    ("/v1/chat/completions", "n", [0, -1, 100000, "two"]),
    ("/v1/chat/completions", "stop", [1, [1], ["a"] * 100, {}]),
    ("/v1/chat/completions", "logit_bias", [1, [], {"x": 1}, {"1": "x"}, {"1": 1000}]),
    ("/v1/chat/completions", "top_logprobs", [-1, 21, "x", 2]),
    ("/v1/chat/completions", "response_format", [1, {}, {"type": "poem"}, {"type": "json_schema"},
                                                 {"type": "json_schema", "json_schema": {"schema": 1}}]),
    ("/v1/chat/completions", "stream", ["yes", 1]),
    ("/v1/chat/completions", "seed", ["x", 1.5]),
    ("/v1/chat/completions", "tools", [[{"type": "function"}]]),
    ("/v1/completions", "prompt", [1, {}, [{}], [-1], [10**9]]),
    ("/v1/documents", "text", [1, [], {}]),
    ("/v1/documents", "id", [1, "", "x" * 5000]),
    ("/tokenize", "prompt", [1, {}]),
    ("/detokenize", "tokens", ["x", [-1], [1.5], [10**9], {}]),
]


def ask(method, path, body=None, headers=None):
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=PATIENCE_S)
    connection.request(method, path, body, headers or {"Content-Type": "application/json"})
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.status, text


def assert_refused(what, answer, statuses=range(400, 500)):
    """All of them are looked at before the first fails the test."""
    status, text = answer
    try:
        error = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        error = {}
    if status not in statuses or set(error) != ERROR or not error["message"] or error["type"] != "invalid_request_error":
        failures.append(f"{what}: {status} {text[:200]}")


failures = []


def routes():
    """(method, path with an argument where one belongs)"""
    with open(ROUTES, encoding="utf-8") as file:
        rows = re.findall(r'^    \{"([A-Z]+)", "([^"]+)", (NULL|"[^"]*"),', file.read(), re.M)
    assert len(rows) >= 15, rows
    return [(method, path if tail == "NULL" else path + "nobody" + tail.strip('"')) for method, path, tail in rows]


def check_good():
    """Or the refusals below would prove nothing."""
    for path, body in GOOD.items():
        status, text = ask("POST", path, json.dumps(body))
        assert status == 200, f"{path}: {status} {text[:300]}"


def check_broken():
    count = 0
    for method, path in routes():
        if method != "POST" or "/nobody" in path:
            continue
        assert path in GOOD, f"{path} is new: give it a good request here"
        for body in BROKEN:
            if path == "/v1/documents" and not body:
                continue
            assert_refused(f"{path} {body[:40]}", ask(method, path, body))
            count += 1
        assert_refused(f"{path} as a form", ask("POST", path, json.dumps(GOOD[path]).replace("{", "[", 1)))
    return count


def check_wrong():
    count = 0
    for path, member, values in WRONG:
        for value in values:
            body = json.dumps({**GOOD[path], member: value})
            if member == "top_logprobs" and value == 2:
                body = json.dumps({**GOOD[path], member: value})  # without logprobs it means nothing
            assert_refused(f"{path} {member}={str(value)[:60]}", ask("POST", path, body))
            count += 1
    return count


def check_methods_and_names():
    known = routes()
    for method, path in known:
        for other in ("GET", "POST", "DELETE", "PUT", "PATCH", "BREW"):
            if (other, path) not in known and not (other == "GET" and ("HEAD", path) in known):
                assert_refused(f"{other} {path}", ask(other, path, b"{}"), (404, 405, 400, 501))
        if "/nobody" in path:
            assert_refused(f"{method} {path}", ask(method, path), (404,))
    for path in ("/", "/v1", "/v1/chat", "/v1/chat/completions/", "/v2/models", "/..", "/%00", "/v1/models/%2e%2e",
                 "/v1/documents//", "/" + "x" * 4000):
        assert_refused(path[:40], ask("GET", path), range(400, 500))


def check_slow():
    """Who sends a byte and waits, or reads nothing, keeps nobody from an answer."""
    idle = []
    for begun in (b"", b"P", b"POST /v1/chat/completions HTTP/1.1\r\n",
                  b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{",
                  b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 20):
        for _ in range(8):
            client = socket.create_connection(("127.0.0.1", PORT))
            client.sendall(begun)
            idle.append(client)
    check_good()
    for client in idle:
        client.close()


check_good()
counts = check_broken(), check_wrong()
check_methods_and_names()
check_slow()
check_good()
if failures:
    sys.exit("\n".join(failures))
print(f"{len(routes())} endpoints, {sum(counts)} wrong requests refused")
