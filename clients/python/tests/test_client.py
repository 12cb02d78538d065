# SPDX-License-Identifier: Apache-2.0
"""Both clients against a live daemon whose model is the dummy of run.sh: bytes are tokens."""
import asyncio
import json
import os
import subprocess
import unittest

from kvasir_client import (AsyncClient, Client, Document, InvalidArgument, Message, NotFound,
                           Unavailable)

DOCUMENTS = [Document("port 22", title="ssh", id="d1"), "cron runs jobs"]


def counter(name):
    out = subprocess.run(["./kvasirctl", "--json", "stats"], check=True, capture_output=True)
    stats = json.loads(out.stdout)
    return {c["name"]: c.get("value", 0) for c in stats["counters"] + stats["gauges"]}[name]


def wait_counter(name, value):
    while counter(name) != value:
        pass


class TheSyncClient(unittest.TestCase):
    def setUp(self):
        self.client = Client()
        self.addCleanup(self.client.close)

    def test_says_what_is_served(self):
        self.assertTrue(self.client.health().is_serving)
        self.assertGreater(self.client.model().context_tokens, 100)

    def test_streams_what_it_gives_whole_and_reuses_documents(self):
        arguments = dict(documents=DOCUMENTS, max_tokens=8, temperature=0, ignore_end=True)
        whole = self.client.generate("which port?", **arguments)
        chunks = list(self.client.stream("which port?", **arguments))
        self.assertEqual("".join(c.text for c in chunks), whole.text)
        self.assertEqual(whole.finish, "length")
        self.assertEqual(len(whole.token_ids), 8)
        usage = chunks[-1].usage
        self.assertGreater(usage.tokens_reused, 0)
        self.assertEqual([d.reason for d in usage.documents][-2:], ["hit", "hit"])
        self.assertIn("d1", [d.id for d in usage.documents])

    def test_chats_and_raw_prompts_and_seeds(self):
        messages = [Message("be brief", role="system"), Message("hi")]
        one, two = (self.client.generate(messages, max_tokens=6, temperature=1.0, seed=4,
                                         ignore_end=True) for _ in range(2))
        self.assertEqual(one.text, two.text)
        raw = self.client.generate("hello", is_raw=True, max_tokens=2, ignore_end=True,
                                   logit_bias={ord("q"): 100.0})
        self.assertEqual(raw.text, "qq")

    def test_json_schema(self):
        answer = self.client.generate("x", max_tokens=100, temperature=1.0, seed=1,
                                      json_schema='{"enum": ["yes", "no"]}')
        self.assertIn(json.loads(answer.text), ("yes", "no"))

    def test_tokens_and_back(self):
        ids = self.client.tokenize("ab ü")
        self.assertEqual(self.client.detokenize(ids), "ab ü")

    def test_documents_by_id_and_key(self):
        made = self.client.register(Document("to remember", id="r1"))
        self.client.warm("r1")
        self.assertEqual(self.client.get(made.key).state, "sealed")
        self.client.pin("r1", ttl_s=60)
        self.assertEqual(self.client.get("r1").pins, 1)
        self.client.unpin(made.key)
        self.assertIn(made.key, [d.key for d in self.client.list()])
        answer = self.client.generate("x", documents=[Document(document_id="r1"),
                                                      Document(key=made.key)], max_tokens=1)
        self.assertEqual({d.reason for d in answer.usage.documents[-2:]}, {"hit"})
        self.assertGreater(self.client.forget("r1").blocks, 0)
        with self.assertRaises(NotFound):
            self.client.get("r1")

    def test_errors_are_kinds(self):
        with self.assertRaises(InvalidArgument):
            self.client.generate("x", temperature=-1.0)
        with self.assertRaises(NotFound) as caught:
            self.client.generate("x", documents=[Document(document_id="nobody")])
        self.assertIn("documents[0]", str(caught.exception))
        self.assertTrue(self.client.health().is_serving)

    def test_leaving_a_stream_cancels_it(self):
        for _ in self.client.stream("x", max_tokens=1500, ignore_end=True):
            break
        self.assertTrue(self.client.health().is_serving)
        wait_counter("blocks_own", 0)

    def test_nobody_there(self):
        with Client("ipc:///tmp/kvasir-nobody-here.sock") as nobody:
            with self.assertRaises(Unavailable):
                nobody.health()


class TheAsyncClient(unittest.IsolatedAsyncioTestCase):
    async def test_many_calls_at_once(self):
        async with AsyncClient() as client:
            answers = await asyncio.gather(*(client.generate(
                f"question {i}", documents=DOCUMENTS, max_tokens=6, temperature=0, ignore_end=True)
                for i in range(24)))
            self.assertTrue(all(len(a.token_ids) == 6 for a in answers))
            self.assertEqual(await client.detokenize(await client.tokenize("abc")), "abc")
            self.assertTrue((await client.health()).is_serving)

    async def test_a_cancelled_task_cancels_its_request(self):
        async with AsyncClient() as client:
            async def ask():
                async for _ in client.stream("x", max_tokens=1500, ignore_end=True):
                    asyncio.current_task().cancel()
                    # The next tokens may all be there, then nothing else is waited for.
                    await asyncio.sleep(0)

            with self.assertRaises(asyncio.CancelledError):
                await asyncio.create_task(ask())
            self.assertTrue((await client.health()).is_serving)
            await asyncio.to_thread(wait_counter, "blocks_own", 0)

    async def test_errors_and_nobody(self):
        async with AsyncClient() as client:
            with self.assertRaises(NotFound):
                await client.get("nobody")
        async with AsyncClient("ipc:///tmp/kvasir-nobody-here.sock") as nobody:
            with self.assertRaises(Unavailable):
                await nobody.model()


if __name__ == "__main__":
    os.environ.setdefault("PYTHONASYNCIODEBUG", "0")
    unittest.main(verbosity=2)
