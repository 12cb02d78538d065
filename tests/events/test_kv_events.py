# SPDX-License-Identifier: Apache-2.0
"""The events of a daemon that run.sh has started, against what was done to it."""
import json
import os
import signal
import subprocess
import sys
import unittest

import msgpack
import msgspec
import zmq
from kvasir_client import Client, Document, Unavailable

DIR, FORMAT = sys.argv[1], sys.argv[2]
IS_ARRAY = FORMAT == "array"
TOPIC = b"kv@test"
BLOCK = 16
BITS = (1 << 64) - 1
PATIENCE_MS = 600000

# vLLM's structures (vllm/distributed/kv_events.py, read at 0181ea3; `array` as before it): a field that is missing,
# renamed, superfluous or of another type does not decode.


class Event(msgspec.Struct, array_like=IS_ARRAY, tag=True, forbid_unknown_fields=True):
    pass


class BlockStored(Event):
    block_hashes: list[int]
    parent_block_hash: int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None


class BlockRemoved(Event):
    block_hashes: list[int]
    medium: str | None


class AllBlocksCleared(Event):
    pass


class KVEventBatch(msgspec.Struct, array_like=IS_ARRAY, forbid_unknown_fields=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


def hashes(key, first, count):
    head = int.from_bytes(key[:8], "big")
    return [(head + i * 0x9E3779B97F4A7C15) & BITS for i in range(first, first + count)]


def ids_of(seed, count):
    return [1 + (seed * 37 + i * 11) % 200 for i in range(count)]


class Listener:
    """Every event since the daemon's start, in order: what was missed before we came is asked for."""

    def __init__(self, context):
        self.sub = context.socket(zmq.SUB)
        self.sub.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
        self.sub.subscribe(TOPIC)
        self.sub.connect(f"ipc://{DIR}/events")
        self.replay = context.socket(zmq.DEALER)
        self.replay.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
        self.replay.connect(f"ipc://{DIR}/replay")
        self.next = 0
        self.raw = {}
        self.pending = []

    def close(self):
        self.sub.close(0)
        self.replay.close(0)

    def take(self, number, payload):
        if number < self.next:  # heard of already
            assert self.raw[number] == payload
            return
        assert number == self.next, f"batch {number} after {self.next - 1}"
        self.raw[number] = payload
        self.next += 1
        msgpack.unpackb(payload)  # well-formed for another decoder, too
        batch = msgspec.msgpack.decode(payload, type=KVEventBatch)
        assert batch.data_parallel_rank == 0 and batch.ts > 1.7e9
        self.pending += batch.events

    def ask(self, first):
        """As vLLM's subscribers do: an empty frame, then the number."""
        self.replay.send_multipart([b"", first.to_bytes(8, "big")])
        while True:
            empty, number, payload = self.replay.recv_multipart()
            assert empty == b""
            if number == b"\xff" * 8:
                assert payload == b""
                return
            yield int.from_bytes(number, "big"), payload

    def receive(self):
        topic, number, payload = self.sub.recv_multipart()
        assert topic == TOPIC and len(number) == 8
        number = int.from_bytes(number, "big")
        if number > self.next:
            for missed in self.ask(self.next):
                self.take(*missed)
        self.take(number, payload)

    def expect(self):
        """The next event, also if it was published before the subscription was heard of."""
        while not self.pending:
            for missed in self.ask(self.next):
                self.take(*missed)
            if not self.pending and self.sub.poll(10):
                self.receive()
        return self.pending.pop(0)


def kvasirctl(*args):
    out = subprocess.run(["./kvasirctl", "--json", *args], check=True, capture_output=True)
    return json.loads(out.stdout) if out.stdout else None


class KvEvents(unittest.TestCase):
    def setUp(self):
        self.context = zmq.Context()
        self.addCleanup(self.context.term)
        self.client = Client()
        self.ear = Listener(self.context)
        self.addCleanup(self.ear.close)

    def tearDown(self):
        self.client.close()

    def ask(self, *documents):
        usage = self.client.generate("x", is_raw=True, max_tokens=1, ignore_end=True,
                                     documents=[Document(token_ids=ids) for ids in documents]).usage
        return [d.key for d in usage.documents][-len(documents):]

    def ask_until_there(self, *documents):
        while True:
            try:
                return self.ask(*documents)
            except Unavailable:
                self.client.close()
                self.client = Client()

    def assert_stored(self, key, ids, first, count):
        event = self.ear.expect()
        self.assertIsInstance(event, BlockStored)
        self.assertEqual(event.block_hashes, hashes(key, first, count))
        self.assertEqual(event.parent_block_hash, None if first == 0 else hashes(key, first - 1, 1)[0])
        self.assertEqual(event.token_ids, ids[first * BLOCK:(first + count) * BLOCK])
        self.assertEqual(event.block_size, BLOCK)
        self.assertEqual((event.lora_id, event.lora_name, event.medium), (None, None, "CPU"))

    def assert_removed(self, key, first, count):
        event = self.ear.expect()
        self.assertIsInstance(event, BlockRemoved)
        self.assertEqual(event.block_hashes, hashes(key, first, count))
        self.assertEqual(event.medium, "CPU")

    def test_whoever_listens_knows_what_the_pool_holds(self):
        a, b, short = ids_of(1, 5 * BLOCK + 3), ids_of(2, 2 * BLOCK), ids_of(3, BLOCK - 1)
        key_a, key_b, _ = self.ask(a, b, short)
        self.assertIsInstance(self.ear.expect(), AllBlocksCleared)
        self.assert_stored(key_a, a, 0, 5)
        self.assert_stored(key_b, b, 0, 2)
        self.ask(b, a)  # all hits, in another order: no news
        self.client.forget(key_b)
        self.assert_removed(key_b, 0, 2)

        # The tail goes first, then comes back behind its head.
        while kvasirctl("docs", "get", key_a.hex())["blocks"] > 3:
            kvasirctl("docs", "evict", "1")
        self.assert_removed(key_a, 4, 1)
        self.assert_removed(key_a, 3, 1)
        self.ask(a)
        self.assert_stored(key_a, a, 3, 2)

        # The next kvasird takes the pool over, and tells anew, from 0.
        self.ear.close()
        os.kill(int(os.environ["KEEPER"]), signal.SIGUSR2)
        c = ids_of(4, BLOCK)
        key_c, = self.ask_until_there(c)
        self.ear = Listener(self.context)
        self.addCleanup(self.ear.close)
        self.assertIsInstance(self.ear.expect(), AllBlocksCleared)
        self.assert_stored(key_a, a, 0, 5)
        self.assert_stored(key_c, c, 0, 1)

        # Once the subscription is heard of, nothing has to be asked for.
        seed = 5
        while not self.ear.sub.poll(10):
            self.ask(ids_of(seed, BLOCK))
            seed += 1
        for missed in self.ear.ask(self.ear.next):
            self.ear.take(*missed)
        self.ear.pending.clear()
        for _ in range(3):
            d = ids_of(seed, BLOCK)
            seed += 1
            key_d, = self.ask(d)
            while not self.ear.pending:
                self.ear.receive()
            self.assert_stored(key_d, d, 0, 1)

        # What is asked for again is byte for byte what it was.
        self.assertEqual(dict(self.ear.ask(0)), self.ear.raw)
        self.assertEqual(list(self.ear.ask(1 << 40)), [])
        stats = {c["name"]: c["value"] for c in kvasirctl("stats")["counters"]}
        self.assertEqual(stats["kv_events_published"], self.ear.next)
        self.assertEqual(stats["kv_events_dropped"] + stats["kv_events_missed"], 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
