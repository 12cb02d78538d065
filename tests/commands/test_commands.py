# SPDX-License-Identifier: Apache-2.0
"""Every command of kvasirctl and kvasir in its human and its JSON form; one without a test here fails."""
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import time
import unittest

DIR = pathlib.Path(sys.argv[1])
CONFIG = DIR / "kvasird.conf"
PATIENCE_S = 900  # for what hangs, not for what is slow
NOBODY = "0" * 64

OK, FAILURE, USAGE, UNREACHABLE, NOT_FOUND, INTERRUPTED = 0, 1, 2, 3, 4, 130


def run(program, *args, code=OK):
    out = subprocess.run([f"./{program}", *args], capture_output=True, timeout=PATIENCE_S, text=True, check=False,
                         stdin=subprocess.DEVNULL)
    assert out.returncode == code, f"{program} {args}: {out.returncode}\n{out.stdout}\n{out.stderr}"
    return out.stdout if code in (OK, FAILURE) else out.stderr


def ctl(*args, code=OK):
    return run("kvasirctl", *args, code=code)


def complaint(*args):
    """What kvasirctl says of a line that is well formed and fails."""
    out = subprocess.run(["./kvasirctl", *args], capture_output=True, timeout=PATIENCE_S, text=True, check=False)
    assert out.returncode == FAILURE, f"{args}: {out.returncode}\n{out.stdout}\n{out.stderr}"
    return out.stderr


def ctl_json(*args, code=OK):
    reply = json.loads(ctl("--json", *args, code=code))
    assert reply.pop("schema") == 1
    return reply


def commands(program="kvasirctl"):
    """From --help: the same table that parses, and `completion`, which test_manuals tries."""
    text = run(program, "--help").split("Commands:\n")[1].split("\n\n")[0]
    found = re.findall(r"^  ([a-z]+(?: [a-z]+)?)(?= |$)", text, re.M)
    return [command for command in found if command != "completion"]


def ask(text, *documents):
    folder = DIR / "documents"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for i, document in enumerate(documents):
        (folder / f"{i}.txt").write_text(document)
    run("kvasir", "ask", "--raw", "--docs", str(folder), "--max-tokens", "2", text)


def number(name):
    stats = ctl_json("stats")
    return {c["name"]: c.get("value", 0) for c in stats["gauges"] + stats["counters"]}[name]


def keys():
    return [d["key"] for d in ctl_json("docs")["documents"]]


def give_up(*_):
    raise TimeoutError("nothing came that was waited for")


class Patient(unittest.TestCase):
    """A test that waits for what never comes fails, and says where."""

    def setUp(self):
        signal.signal(signal.SIGALRM, give_up)
        signal.alarm(PATIENCE_S)

    def tearDown(self):
        signal.alarm(0)


class EveryCommand(Patient):
    def test_each_has_a_test_here(self):
        tested = {name[len("test_c_"):].replace("_", " ") for name in dir(self) if name.startswith("test_c_")}
        aliases = {"docs list", "docs show", "workers list", "requests list", "config show"}  # rows of one function
        self.assertEqual(set(commands()) - aliases, tested)
        for alias in aliases:
            base = {"docs list": "docs", "docs show": "docs get"}.get(alias, alias.split()[0])
            operands = keys()[:1] if alias == "docs show" else []
            self.assertEqual(ctl_json(*alias.split(), *operands).keys(), ctl_json(*base.split(), *operands).keys())

    def test_each_says_how_it_is_used(self):
        for command in commands():
            text = ctl(*command.split(), "--help")
            self.assertIn("kvasir-bench" if command == "bench" else f"Usage: kvasirctl {command}", text)

    def test_a_wrong_line_is_a_usage_error(self):
        for line in (["nonsense"], ["docs", "pin"], ["docs", "pin", "short"], ["status", "--limit", "3"],
                     ["stats", "extra"], ["stats", "--watch", "soon"], ["explain", "x"], ["config", "check", "a", "b"]):
            self.assertIn("kvasirctl:", ctl(*line, code=USAGE))

    def test_nobody_there_is_told_by_the_exit_code(self):
        for command in sorted(set(commands()) - {"keygen", "version", "bench", "docs warm"}):
            operands = {"docs pin": [NOBODY], "docs unpin": [NOBODY], "docs get": [NOBODY], "docs show": [NOBODY],
                        "docs forget": [NOBODY], "docs evict": ["1"], "docs prioritize": [NOBODY, "50"],
                        "workers drain": ["0"], "workers resume": ["0"], "requests cancel": ["1"]}
            ctl(*command.split(), *operands.get(command, []), "--runtime-dir", "/nowhere", code=UNREACHABLE)

    # --- how things stand

    def test_c_status(self):
        text = ctl("status")
        self.assertIn("dummy:tiny", text)
        self.assertRegex(text, r"workers_ready 1\b")
        self.assertRegex(text, r"WORKER +STATE")
        self.assertEqual(ctl_json("status")["model"], "dummy:tiny")

    def test_c_stats(self):
        text = ctl("stats")
        self.assertRegex(text, r"NAME +VALUE HELP")
        self.assertRegex(text, r"documents +\d+ documents in the index")
        self.assertNotIn("HELP", ctl("stats", "-o", "name,value"))
        self.assertNotIn("NAME", ctl("stats", "--no-headers"))
        raw = ctl("stats", "--raw", "-o", "name,value")
        self.assertIn("NAME VALUE\n", raw)
        self.assertRegex(raw, r"(?m)^workers_ready 1$")
        stats = ctl_json("stats")
        self.assertIn("requests_finished", [c["name"] for c in stats["counters"]])
        self.assertIn("kv_events_published", [c["name"] for c in stats["counters"]])
        ask("hello", "a document")
        bounds = re.search(r"(?m)^time_to_first_token_seconds: .*\n((?:  <= .*\n)+)", ctl("stats")).group(1)
        bounds = [float(bound) for bound in re.findall(r"<= (\S+): ", bounds)]
        self.assertTrue(bounds == sorted(set(bounds)) and bounds[0] > 0, bounds)

    def test_c_top(self):
        ask("hello", "a document of some length for the view")
        text = ctl("top")
        self.assertRegex(text, r"(?m)^requests [\d.]+/s in, [\d.]+/s done; 0 wait, 0 run on 1 workers$")
        self.assertRegex(text, r"(?m)^pool +\d+ documents; blocks: \d+, \d+% free")
        self.assertRegex(text, r"(?m)^KEY +STATE")
        self.assertNotIn("\033", text)  # no terminal
        frame = ctl_json("top")
        self.assertGreater(frame["interval_s"], 0)
        self.assertTrue(0 <= frame["hit_ratio"] <= 1)
        self.assertEqual(frame["workers_ready"], 1)
        start = time.monotonic()
        with subprocess.Popen(["./kvasirctl", "top", "--json", "--watch", "100ms"], stdout=subprocess.PIPE) as live:
            frames = [json.loads(live.stdout.readline()) for _ in range(3)]
            live.terminate()
        self.assertLess(sum(f["interval_s"] for f in frames[1:]), time.monotonic() - start)  # from frame to frame

    def test_c_health(self):
        self.assertRegex(ctl("health"), r"^SERVING: 1 workers ready")
        self.assertEqual(ctl_json("health")["status"], "SERVING")

    def test_c_health_detail(self):
        self.assertEqual(ctl("health", "detail"), "ok\n")
        self.assertEqual(ctl_json("health", "detail"), {"checks": [], "status": "ok"})
        ctl("workers", "drain", "all")
        self.assertRegex(ctl("health", "detail", code=FAILURE), r"(?m)^error DRAINING: 0 ")
        reply = ctl_json("health", "detail", code=FAILURE)
        self.assertEqual(reply["status"], "error")
        self.assertEqual(reply["checks"][0]["code"], "DRAINING")
        ctl("health", code=FAILURE)
        ctl("workers", "resume", "all")
        self.assertEqual(ctl("health", "detail"), "ok\n")

    def test_c_version(self):
        self.assertRegex(ctl("version"), r"^kvasirctl [\d.]+, protocol 1$")
        self.assertEqual(ctl_json("version")["protocol"], 1)

    # --- documents

    def test_c_docs(self):
        ask("hello", "one document", "and another one")
        self.assertRegex(ctl("docs"), r"KEY +STATE +TOKENS")
        self.assertGreaterEqual(ctl_json("docs")["total"], 2)
        self.assertEqual(len(ctl_json("docs", "--limit", "1")["documents"]), 1)
        self.assertIn("order must be", complaint("docs", "--order", "colour"))

    def test_c_docs_top(self):
        for _ in range(3):
            ask("hello", "the one that pays because it is hit again and again")
        first = ctl_json("docs", "top", "--limit", "1")["documents"][0]
        self.assertGreaterEqual(first["hits"], 2)
        self.assertIn(first["key"], ctl("docs", "top"))

    def test_c_docs_get(self):
        ask("hello", "to be looked at")
        key = keys()[0]
        self.assertIn(key, ctl("docs", "get", key))
        self.assertEqual(ctl_json("docs", "get", key)["state"], "sealed")
        ctl("docs", "get", NOBODY, code=NOT_FOUND)

    def test_c_docs_warm(self):
        manifest = DIR / "manifest.jsonl"
        manifest.write_text('{"id": "v", "text": "kept ready, too", "weight": 2}\n')
        self.assertRegex(ctl("docs", "warm", str(manifest), "--raw", "--wait"), r"^1 documents: 1 new or changed")
        self.assertEqual(ctl_json("docs", "warm", str(manifest), "--raw", "--wait")["count_waiting"], 0)
        ctl("docs", "warm", "/nowhere", code=USAGE)

    def test_c_docs_coverage(self):
        manifest = DIR / "manifest.jsonl"
        manifest.write_text('{"id": "w", "text": "kept ready", "weight": 2}\n')
        ctl("docs", "warm", str(manifest), "--raw", "--wait")
        self.assertRegex(ctl("docs", "coverage"), r"coverage 100\.0%")
        self.assertIn("w", ctl("docs", "coverage", "--documents"))
        self.assertGreaterEqual(ctl_json("docs", "coverage")["count"], 1)

    def test_c_docs_pin(self):
        ask("hello", "to be pinned")
        key = keys()[0]
        self.assertEqual(ctl("docs", "pin", key), "")
        self.assertEqual(ctl_json("docs", "pin", key, "--ttl", "10min"), {})
        self.assertEqual(ctl_json("docs", "get", key)["pins"], 2)
        ctl("docs", "unpin", key)
        ctl("docs", "unpin", key)

    def test_c_docs_unpin(self):
        ask("hello", "to be unpinned")
        key = keys()[0]
        ctl("docs", "pin", key)
        ctl("docs", "pin", key)
        self.assertEqual(ctl("docs", "unpin", key), "")
        self.assertEqual(ctl_json("docs", "unpin", key), {})
        self.assertEqual(ctl_json("docs", "get", key).get("pins", 0), 0)
        ctl("docs", "unpin", NOBODY, code=NOT_FOUND)

    def test_c_docs_prioritize(self):
        ask("hello", "to be cared for")
        self.assertEqual(ctl("docs", "prioritize", keys()[0], "80"), "")
        self.assertEqual(ctl_json("docs", "prioritize", keys()[0], "50"), {})
        ctl("docs", "prioritize", keys()[0], "101", code=USAGE)

    def test_c_docs_evict(self):
        ask("hello", "to make room " * 20)
        self.assertEqual(ctl("docs", "evict", "1"), "1 blocks evicted\n")
        self.assertEqual(ctl_json("docs", "evict", "1")["blocks"], 1)
        ask("hello", "to go by its name " * 20)
        key = max(ctl_json("docs", "list")["documents"], key=lambda d: d["tokens"])["key"]
        ctl("docs", "pin", key)
        ctl("docs", "evict", key, code=UNREACHABLE)  # not now
        ctl("docs", "unpin", key)
        self.assertRegex(ctl("docs", "evict", key), r"^\d+ blocks evicted\n$")
        self.assertNotIn(key, keys())
        ctl("docs", "evict", NOBODY, code=NOT_FOUND)
        ctl("docs", "evict", "some", code=USAGE)

    def test_c_docs_forget(self):
        ask("hello", "to be forgotten", "this one, too")
        one, two = keys()[:2]
        self.assertRegex(ctl("docs", "forget", one), r"^erased \d+ blocks")
        self.assertGreater(ctl_json("docs", "forget", two)["blocks"], 0)
        ctl("docs", "get", one, code=NOT_FOUND)

    # --- workers and requests

    def test_c_workers(self):
        self.assertRegex(ctl("workers"), r"WORKER STATE +DEVICE")
        self.assertEqual(ctl_json("workers")["workers"][0]["state"], "ready")

    def test_c_workers_drain(self):
        self.assertEqual(ctl("workers", "drain", "0"), "")
        self.assertEqual(ctl_json("workers")["workers"][0]["state"], "draining")
        self.assertEqual(ctl_json("workers", "drain", "0"), {})
        self.assertEqual(ctl("health", code=FAILURE), "NOT_SERVING: no worker is ready\n")
        self.assertEqual(number("workers_ready"), 0)
        ctl("workers", "drain", "63", code=NOT_FOUND)
        ctl("workers", "resume", "0")

    def test_c_workers_resume(self):
        ctl("workers", "drain", "0")
        self.assertEqual(ctl("workers", "resume", "0"), "")
        self.assertEqual(ctl_json("workers", "resume", "0"), {})
        self.assertEqual(ctl_json("workers")["workers"][0]["state"], "ready")

    def until_cancelled(self, look):
        """Asks for a long answer, looks at it by its number and cancels it, until that was before its end."""
        status = OK
        while status == OK:
            with subprocess.Popen(["./kvasir", "ask", "--raw", "--max-tokens", "5000", "--ignore-end", "on and on"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as asking:
                while not (running := ctl_json("requests")["requests"]) and asking.poll() is None:
                    pass
                if running:
                    look(running[0]["id"])
                status = asking.wait(PATIENCE_S)
        self.assertEqual(status, INTERRUPTED)
        return running[0]["id"]

    def test_c_requests(self):
        shown = []

        def look(number_of):
            shown.append(re.search(rf"(?m)^ *{number_of} ", ctl("requests")))
            ctl("requests", "cancel", str(number_of))

        self.until_cancelled(look)
        self.assertIsNotNone(shown[-1])

    def test_c_requests_cancel(self):
        for form in (ctl, ctl_json):
            number_of = self.until_cancelled(lambda number: self.assertFalse(form("requests", "cancel", str(number))))
        self.assertRegex(ctl("explain", str(number_of)), rf"^request {number_of} ended [\d.]+ s ago: cancelled")

    def test_c_requests_trace(self):
        ask("hello", "to be traced")
        text = ctl("requests", "trace")
        self.assertEqual(re.findall(r"(?m)^(\w+) +[\d.]+ ms  \+[\d.]+$", text),
                         ["read", "assigned", "heard", "begun", "ended", "returned", "sent", "last"])
        usage = ctl_json("requests", "trace")["usage"]
        times = [usage["trace"][p] for p in ("arrived", "read", "assigned", "heard", "begun", "ended", "returned", "sent")]
        self.assertEqual(times, sorted(times))

    # --- why

    def test_c_explain(self):
        common = "The valve opens at seven bar, " * 8
        ask("hello", common + "it was made in Oslo.")
        ask("hello", common + "it was made in Bergen.", common + "it was made in Oslo.")
        reply = ctl_json("explain")
        cold, hit = reply["documents"][-2:]
        self.assertEqual(reply["end"], "ok")
        self.assertEqual((cold["found"]["miss_reason"], hit["found"]["miss_reason"]), ("cold", "hit"))
        # Bytes are tokens here, so the first difference is where the texts part.
        self.assertEqual(cold["first_difference"], len(common + "it was made in "))
        self.assertEqual(cold["nearest_key"], hit["found"]["key"])
        text = ctl("explain")
        self.assertIn("the first token that differs is", text)
        self.assertRegex(text, r'here +"Bergen')
        self.assertRegex(text, r'there +"Oslo')
        self.assertIn("it was there whole", text)

        # Another salt: the same tokens, and another key.
        run("kvasir", "ask", "--raw", "--salt", "tenant", "--docs", str(DIR / "documents" / "1.txt"), "--max-tokens",
            "1", "hello")
        self.assertIn("the same tokens are there under another key", ctl("explain"))
        # Evicted, forgotten, mode none.
        ctl("docs", "forget", hit["found"]["key"])
        ask("hello", common + "it was made in Oslo.")
        self.assertIn("somebody had it forgotten", ctl("explain"))
        ctl("docs", "evict", "100000")
        ask("hello", common + "it was made in Oslo.")
        self.assertIn("was evicted to make room", ctl("explain"))
        run("kvasir", "ask", "--raw", "--reuse", "none", "--docs", str(DIR / "documents"), "--max-tokens", "1", "hello")
        self.assertIn("mode none computes every document again", ctl("explain"))
        ctl("explain", "18446744073709551615", code=NOT_FOUND)

    def test_c_whatif(self):
        self.assertIn("UNAVAILABLE", ctl("whatif", code=UNREACHABLE))  # too little traffic to tell
        ctl("bench", "--quiet", "--requests", "210", "--pool", "20", "--docs", "2", "--document-tokens", "16",
            "--query-tokens", "4", "--output-tokens", "1", "--vocab", "301", f"it=kvasir:{DIR}")
        text = ctl("whatif", "--kv-memory", "16MiB,32MiB", "--policy", "zipf,lru")
        self.assertRegex(text, r"^\d+ requests replayed; they hit [\d.]+% of their document tokens")
        self.assertEqual(len(re.findall(r"(?m)^(?:zipf|lru) +\d+ +[\d.]+", text)), 4)
        self.assertEqual(len(ctl_json("whatif", "--policy", "zipf,lru,arc")["points"]), 3)
        ctl("whatif", "--kv-memory", "nonsense", code=USAGE)
        ctl("whatif", "--policy", ",".join(["lru"] * 9), code=USAGE)

    # --- options

    def test_c_config(self):
        self.assertRegex(ctl("config"), r"(?m)^max-waiting +100$")
        self.assertIn({"name": "shape", "value": "tiny"}, ctl_json("config")["entries"])

    def with_config(self, before, after):
        text = CONFIG.read_text()
        self.assertIn(before, text)
        CONFIG.write_text(text.replace(before, after))
        self.addCleanup(CONFIG.write_text, text)

    def test_c_config_check(self):
        self.assertEqual(ctl("config", "check"), "nothing changes\n")
        self.with_config("max-waiting = 100", "max-waiting = 101")
        self.assertRegex(ctl("config", "check"), r"(?m)^max-waiting 100 +101 now$")
        self.assertEqual(ctl_json("config", "check")["changes"],
                         [{"name": "max-waiting", "from": "100", "to": "101", "effect": "now"}])
        self.assertIn({"name": "max-waiting", "value": "100"}, ctl_json("config")["entries"])
        other = DIR / "other.conf"
        other.write_text(CONFIG.read_text().replace("32MiB", "64MiB"))
        self.assertRegex(ctl("config", "check", str(other)), r"(?m)^kv-memory +32MiB +64MiB +restart$")
        other.write_text("max-waitin = 7\n")
        self.assertIn(f"{other}:1: unknown option 'max-waitin'; did you mean 'max-waiting'?",
                      complaint("config", "check", str(other)))
        ctl("config", "check", "/nowhere", code=USAGE)

    def test_c_config_reload(self):
        self.assertEqual(ctl("config", "reload"), "nothing changes\n")
        self.with_config("max-waiting = 100", "max-waiting = 99")
        self.addCleanup(ctl, "config", "reload")
        self.addCleanup(CONFIG.write_text, CONFIG.read_text().replace("99", "100"))
        self.assertEqual(ctl_json("config", "reload")["changes"][0]["to"], "99")
        self.assertIn({"name": "max-waiting", "value": "99"}, ctl_json("config")["entries"])

    # --- the rest

    def test_c_events(self):
        with subprocess.Popen(["./kvasirctl", "events", "--json", "--documents"], stdout=subprocess.PIPE) as listener, \
                subprocess.Popen(["./kvasirctl", "events", "--level", "debug"], stdout=subprocess.PIPE,
                                 text=True) as reader:
            seen = [json.loads(listener.stdout.readline())]
            self.assertEqual(seen[0]["event"], "listening")
            self.assertRegex(reader.stdout.readline(), r" debug listening documents=0$")
            ctl("docs", "evict", "1000")
            ask("hello", "a document that is stored and more than one block of tokens long")
            ctl("docs", "evict", "1000")
            while seen[-1]["event"] != "document_removed" or "document_stored" not in {e["event"] for e in seen}:
                seen.append(json.loads(listener.stdout.readline()))
            self.assertIn("evicted", {e["event"] for e in seen})
            self.assertTrue(all(e["schema"] == 1 and e["level"] == "info" for e in seen))
            stored = next(e for e in seen if e["event"] == "document_stored")
            self.assertRegex(stored["detail"], r"^first_block=0 blocks=\d+ key=[0-9a-f]{64}$")
            line = reader.stdout.readline()
            while "request_ended" not in line:
                line = reader.stdout.readline()
            self.assertRegex(line, r"^\d\d:\d\d:\d\d\.\d{3} debug request_ended request=\d+ code=OK")
            listener.send_signal(signal.SIGINT)
            reader.terminate()
            self.assertEqual((listener.wait(PATIENCE_S), reader.wait(PATIENCE_S)), (OK, OK))
        self.assertRegex(ctl("events", "--timeout", "1ms"), r"\A(|[\d:.]+ info  listening documents=0\n)\Z")
        self.assertIn("level must be", complaint("events", "--level", "loud"))

    def test_c_keygen(self):
        one, two = DIR / "one.key", DIR / "two.key"
        self.assertIn(ctl("keygen", str(one)), one.with_suffix(".key.pub").read_text())
        self.assertEqual(os.stat(one).st_mode & 0o777, 0o600)
        self.assertEqual(len(ctl_json("keygen", str(two))["public_key"]), 40)

    def test_c_bench(self):
        self.assertEqual(ctl("bench", "--help"), run("kvasir-bench", "--help"))
        out = subprocess.run(["./kvasirctl", "bench", "--nonsense"], capture_output=True, text=True, check=False)
        self.assertEqual(out.returncode, USAGE)
        self.assertIn("kvasir-bench", out.stderr)


class EveryCommandOfKvasir(Patient):
    def setUp(self):
        super().setUp()
        self.file = DIR / "known.txt"
        self.file.write_text("a text that is known")

    def json(self, *args):
        reply = json.loads(run("kvasir", *args, "--json"))
        self.assertEqual(reply.pop("schema"), 1)
        return reply

    def register(self):
        return run("kvasir", "register", "--raw", str(self.file)).split()[0]

    def test_each_has_a_test_here(self):
        tested = {name[len("test_c_"):] for name in dir(self) if name.startswith("test_c_")}
        self.assertEqual(set(commands("kvasir")), tested)

    def test_c_ask(self):
        args = ("ask", "--raw", "--docs", str(self.file), "--max-tokens", "3", "--ignore-end", "--seed", "1", "hi")
        text = run("kvasir", *args)
        whole = self.json(*args)
        self.assertEqual(text, whole["text"] + "\n")
        self.assertEqual(whole["usage"]["completion_tokens"], 3)
        replies = [json.loads(line) for line in run("kvasir", *args, "--stream-json").splitlines()]
        self.assertEqual("".join(r["text"] for r in replies), whole["text"])
        self.assertEqual(replies[-1]["finish"], "FINISH_LENGTH")

    def test_a_terminal_is_told_what_an_answer_waits_for(self):
        ctl("workers", "drain", "0")
        ours, theirs = pty.openpty()
        with subprocess.Popen(["./kvasir", "ask", "--raw", "--max-tokens", "1", "hi"], stdout=subprocess.DEVNULL,
                              stderr=theirs) as asking:
            self.assertIn(b"[waiting: ", os.read(ours, 4096))
            ctl("workers", "resume", "0")
            self.assertEqual(asking.wait(PATIENCE_S), OK)
        os.close(ours)
        os.close(theirs)

    def test_c_tokenize(self):
        self.assertEqual(run("kvasir", "tokenize", "hi"), "104 105\n")
        self.assertEqual(self.json("tokenize", "hi"), {"token_ids": [104, 105]})

    def test_c_register(self):
        self.assertRegex(run("kvasir", "register", "--raw", str(self.file)), rf"^[0-9a-f]{{64}} 20 {self.file}$")
        self.assertEqual(self.json("register", "--raw", str(self.file)), {"key": self.register(), "tokens": 20})

    def test_c_warm(self):
        key = self.register()
        self.assertEqual(run("kvasir", "warm", key), "")  # it has nothing to say
        self.assertEqual(ctl_json("docs", "get", key)["state"], "sealed")

    def test_c_forget(self):
        key = self.register()
        run("kvasir", "warm", key)
        self.assertRegex(run("kvasir", "forget", key), r"^erased [1-9]\d* blocks")
        key = self.register()
        run("kvasir", "warm", key)
        self.assertGreater(self.json("forget", key)["blocks"], 0)
        run("kvasir", "forget", key, code=NOT_FOUND)

    def test_c_version(self):
        self.assertRegex(run("kvasir", "version"), r"\Akvasir [\d.]+, protocol 1\nkvasird [\d.]+\n\Z")
        self.assertEqual(self.json("version").keys(), {"version", "daemon_version"})


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
