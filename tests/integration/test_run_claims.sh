#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# bench/run_claims when a worker or a daemon dies: it names it and its log, and goes on with the next cell.
set -euo pipefail

source=$(cd "${KVASIR_SRCDIR:-.}" && pwd)
build=$PWD
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

fail() {
    echo "test_run_claims: $*" >&2
    cat "$dir/printed" >&2
    exit 1
}

# Programs that leave their process id in the folder they run in; a client that ends one, once, and then asks.
mkdir "$dir/bin"
ln -s "$build/kvasirctl" "$dir/bin/"
ln -s "$source/deploy/start-ready" "$dir/bin/"
for program in kvasird kvasir-worker; do
    cat >"$dir/bin/$program" <<EOF
#!/usr/bin/env bash
echo \$\$ >"\$2/$program.pid"
echo \$\$ >>"$dir/pids"
exec "$build/$program" "\$@"
EOF
done
cat >"$dir/bin/kvasir-bench" <<EOF
#!/usr/bin/env bash
run=\${!#}
run=\${run#*=kvasir:}
run=\${run%%\?*}
for victim in kvasir-worker kvasird; do
    if [[ "\$*" = *"\$(cat "$dir/\$victim" 2>/dev/null || echo nothing)"* ]]; then
        rm "$dir/\$victim"
        kill -9 "\$(cat "\$run/\$victim.pid")"
    fi
done
exec "$build/kvasir-bench" "\$@"
EOF
chmod +x "$dir"/bin/*

echo "--salt fresh 0 " >"$dir/kvasir-worker" # the first cell loses its worker, the third its daemon
echo "--salt fresh 1 " >"$dir/kvasird"
if python3 -B "$source/bench/run_claims" --bin "$dir/bin" --out "$dir/out" --device cpu --shape tiny fresh \
    >"$dir/printed" 2>&1; then
    fail "it calls that a success"
fi
! grep -q Traceback "$dir/printed" || fail "a traceback"
for lost in "0 lazy: kvasir-worker" "1 none: kvasird"; do
    cell=${lost%: *}
    log=$dir/out/fresh.${cell/ /.}.${lost#*: }.log
    grep -q "^NOT OK: fresh $lost has ended; its log is $log" "$dir/printed" || fail "it does not name $lost"
    [ -s "$log" ] || fail "no $log"
    [ ! -e "$dir/out/fresh.${cell/ /.}.json" ] || fail "a result of $lost"
done
for cell in 0.none 1.lazy 2.lazy 2.none; do
    [ -s "$dir/out/fresh.$cell.json" ] || fail "it did not go on with $cell"
done
while read -r pid; do # a zombie is left by whoever is init here
    ! grep -qs '^State:[[:space:]]*[^ZX[:space:]]' "/proc/$pid/status" || fail "process $pid is left"
done <"$dir/pids"
