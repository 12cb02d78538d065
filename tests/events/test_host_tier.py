# SPDX-License-Identifier: Apache-2.0
"""A pool with a host tier behind it: where documents lie is told to routers, to operators and to whoever asked."""
import faulthandler
import subprocess
import sys
import unittest

import zmq
from kvasir_client import Client, Document
from test_kv_events import BLOCK, AllBlocksCleared, BlockStored, Listener, hashes, ids_of, kvasirctl

DOCS, BLOCKS = 10, 12


def gauge(name):
    return next(g["value"] for g in kvasirctl("stats")["gauges"] if g["name"] == name)


def ask(client, index):
    """Then waits for what should be copied."""
    usage = client.generate("x", is_raw=True, max_tokens=1, ignore_end=True,
                            documents=[Document(token_ids=ids_of(index, BLOCKS * BLOCK))]).usage
    while gauge("host_blocks_writing") > 0:
        pass
    return usage


class HostTier(unittest.TestCase):
    def follow(self, until):
        """Takes events until the two levels are as expected; every event must fit what was told before."""
        while not until():
            event = self.ear.expect()
            if isinstance(event, AllBlocksCleared):
                for level in self.levels.values():
                    level.clear()
                continue
            level = self.levels[event.medium]
            names = set(event.block_hashes)
            self.assertEqual(len(names), len(event.block_hashes))
            if isinstance(event, BlockStored):
                self.assertEqual(len(event.token_ids), 0 if event.medium == "HOST" else len(names) * BLOCK)
                self.assertFalse(level & names)
                level |= names
            else:
                self.assertLessEqual(names, level)
                level -= names

    def listed(self):
        return {d["key"]: d for d in kvasirctl("docs", "list")["documents"]}

    def test_where_documents_lie_is_told(self):
        context = zmq.Context()
        self.ear = Listener(context)
        self.levels = {"CPU": set(), "HOST": set()}
        client = Client()
        usages = [ask(client, i) for i in range(DOCS)]
        keys = [u.documents[-1].key for u in usages]
        named = [set(hashes(k, 0, BLOCKS)) for k in keys]
        self.assertEqual({u.tokens_loaded for u in usages}, {0})

        # The first has made room for others, and its copy is what is left of it.
        self.follow(lambda: named[0] <= self.levels["HOST"] and not named[0] & self.levels["CPU"])
        shown = self.listed()
        for key, names in zip(keys, named):
            document = shown[key.hex()]
            self.follow(lambda: len(names & self.levels["CPU"]) == document.get("blocks", 0))
            self.follow(lambda: len(names & self.levels["HOST"]) >= document.get("host_blocks", 0))
        first = shown[keys[0].hex()]
        self.assertEqual((first["state"], first["host_blocks"], first["tokens"], first["tokens_resident"]),
                         ("host", BLOCKS, BLOCKS * BLOCK, 0))
        self.assertEqual(kvasirctl("docs", "get", keys[0].hex())["state"], "host")
        table = subprocess.run(["./kvasirctl", "docs"], check=True, capture_output=True, text=True).stdout
        self.assertRegex(table, f"(?m)^{keys[0].hex()} +host +{BLOCKS * BLOCK} +0 +0 +{BLOCKS} ")

        # It comes back by a copy, and that is said.
        usage = ask(client, 0)
        self.assertEqual((usage.tokens_loaded, usage.tokens_built), (BLOCKS * BLOCK, 0))
        self.assertGreaterEqual(usage.tokens_reused, usage.tokens_loaded)
        explained = subprocess.run(["./kvasirctl", "explain"], check=True, capture_output=True, text=True).stdout
        self.assertIn(f"({BLOCKS * BLOCK} from the host tier)", explained)
        self.follow(lambda: named[0] <= self.levels["CPU"])

        # One document is made to go by name; its copy stays.
        out = subprocess.run(["./kvasirctl", "docs", "evict", keys[0].hex()], check=True, capture_output=True)
        self.assertEqual(out.stdout, b"%d blocks evicted\n" % BLOCKS)
        self.follow(lambda: not named[0] & self.levels["CPU"])
        self.assertEqual(self.listed()[keys[0].hex()]["state"], "host")
        self.assertLessEqual(named[0], self.levels["HOST"])

        # What is forgotten is nowhere.
        client.forget(keys[0])
        self.follow(lambda: not named[0] & self.levels["HOST"])
        self.assertNotIn(keys[0].hex(), self.listed())
        client.close()
        self.ear.close()
        context.term()


if __name__ == "__main__":
    faulthandler.dump_traceback_later(900, exit=True)
    unittest.main(argv=sys.argv[:1], verbosity=2)
