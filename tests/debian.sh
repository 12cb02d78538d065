#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# debian.sh DEBS: the packages of `make deb` in folder DEBS.  lintian finds nothing; in a Debian root made for
# the purpose they install, answer a question with a tiny model, and go away again without a trace.
# Exit status 77 where no root can be made (no network, no right to chroot).
set -euo pipefail
debs=$1
# shellcheck source=tests/debian_root.sh
. "$(dirname "$0")/debian_root.sh"

complaints=$(lintian --allow-root --fail-on none "$debs"/*.changes)
[ -z "$complaints" ] || fail "lintian: $complaints"

make_root 'the packages were not installed'

mkdir "$root/debs"
find "$debs" -name '*.deb' ! -name '*-dbgsym_*' ! -name 'kvasir-worker-cuda_*' -exec cp {} "$root/debs/" \;
in_root sh -c 'apt-get -qq update && apt-get -qq install -y --no-install-recommends python3-minimal libpython3-stdlib /debs/*.deb' \
    >"$root/apt.log" 2>&1 || fail "installing: $(tail -n 20 "$root/apt.log")"

# No systemd runs there: its services are started by hand, as their user, as the units would.
./kvasir-tiny-model --out "$root/tiny.gguf" >/dev/null
echo 'model = /tiny.gguf' >>"$root/etc/kvasir/kvasird.conf"
in_root systemd-tmpfiles --create kvasir.conf
# CI runs this with the least priority beside its tests: the limits are for what hangs.
cat >"$root/serve" <<'SERVE'
set -e
port=$1
as_kvasir() { exec setpriv --reuid=kvasir --regid=kvasir --init-groups "$@"; }
as_kvasir kvasird --config=/etc/kvasir/kvasird.conf --log-level=warn & daemon=$!
until kvasirctl status >/dev/null 2>&1; do
    kill -0 "$daemon"
    sleep 0.1
done
as_kvasir kvasir-worker --config=/etc/kvasir/kvasir-worker.conf --log-level=warn & worker=$!
echo 'The harbour closes at nine.' >/document.txt
timeout 900 kvasir ask --docs /document.txt --max-tokens 4 'When does the harbour close?'
setpriv --reuid=kvasir-gateway --regid=kvasir-gateway --init-groups \
    kvasir-gateway --config=/etc/kvasir/kvasir-gateway.conf --port="$port" --log-level=warn & gateway=$!
python3 /over-http.py "$port"
kill "$gateway" "$worker" "$daemon"
wait "$gateway" "$worker" "$daemon"
SERVE
cat >"$root/over-http.py" <<'HTTP'
import json, sys, time, urllib.request
url = "http://127.0.0.1:%s/v1/chat/completions" % sys.argv[1]
body = {"messages": [{"role": "user", "content": "When?"}], "documents": ["At nine."], "max_tokens": 2}
until = time.monotonic() + 900
while time.monotonic() < until:
    try:
        request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        print(json.load(urllib.request.urlopen(request, timeout=900))["usage"])
        sys.exit(0)
    except urllib.error.URLError as error:
        last = error
        time.sleep(0.1)
sys.exit("no answer over HTTP: %s" % last)
HTTP
in_root sh /serve "$("$(dirname "$0")/support/free_port.py")" >"$root/answer" 2>&1 || fail "no answer: $(tail -n 20 "$root/answer")"
for program in kvasir kvasirctl kvasird kvasir-gateway kvasir-worker; do
    in_root "$program" --version >/dev/null || fail "$program does not run"
done

in_root apt-get -qq purge -y 'kvasir-*' 'libkvasir*' >"$root/apt.log" 2>&1 || fail "purging: $(tail -n 20 "$root/apt.log")"
left=$(find "$root/etc" "$root/usr" "$root/lib/systemd" "$root/var/lib/systemd" -name '*kvasir*' ! -path '*/dpkg/*')
[ -z "$left" ] || fail "left behind: $left"
echo "PASS: $(find "$root/debs" -name '*.deb' | wc -l) packages installed, answered and went"
