#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hit tokens: what the kernels read of earlier work is what the policy counted, token for token, while a pool too
small for all documents evicts them, whole or by their tails.

  hits.py --model GGUF --data JSONL      the documents of 2wiki_demo.jsonl
  hits.py --shape llama-3.1-8b           random weights of a real size, documents of random letters

Requests cite documents by a Zipf law, so that some stay and some come and go.  Usage of each answer tells what the
worker's kernels read and built (`tokens_reused`, `tokens_built`); kvasird's statistics, what pool and policy counted
(`tokens_hit`, `tokens_missed`).  The sums must be equal."""

import argparse
import json
import os
import random
import shutil
import string
import subprocess
import sys
import tempfile

from service import Service

DOCUMENTS = 40
CITED = 4  # a request


def read_documents(path):
    documents = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            documents.update({d["title"]: f"{d['title']}\n{d['text']}" for d in json.loads(line)["documents"]})
    return [documents[title] for title in sorted(documents)][:DOCUMENTS]


def make_documents(rng):
    return ["".join(rng.choices(string.ascii_letters, k=rng.randint(300, 1800))) for _ in range(DOCUMENTS)]


def draw(rng, documents):
    """Distinct documents, the first ones of the list most often."""
    left, cited = list(range(len(documents))), []
    while len(cited) < CITED:
        cited.append(rng.choices(left, weights=[1 / (rank + 1) for rank in left])[0])
        left.remove(cited[-1])
    return [documents[i] for i in cited]


def run(*command, **options):
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, **options).stdout)


def ask(service, documents, question):
    lines = "".join(json.dumps({"text": text}) + "\n" for text in documents)
    command = [os.path.join(service.bin, "kvasir"), "ask", "--runtime-dir", service.runtime, "--json", "--jsonl", "-"]
    usage = run(*command, "--max-tokens", "2", "--ignore-end", question, env=service.env, input=lines.encode())["usage"]
    return {name: int(usage.get(name, 0)) for name in ("tokens_reused", "tokens_built")}


def count(service):
    command = [os.path.join(service.bin, "kvasirctl"), "--json", "stats", "--runtime-dir", service.runtime]
    return {c["name"]: int(c["value"]) for c in run(*command, env=service.env)["counters"] if not c["labels"]}


def check(options, policy, documents, rng):
    folder = tempfile.mkdtemp(prefix="kvasir-hits-")
    daemon = ["--eviction", policy, "--kv-memory", options.kv_memory]
    daemon += [] if options.model else ["--load-format", "dummy", "--shape", options.shape]
    service = Service(options.bin, options.device, options.model, folder, *daemon)
    try:
        before = count(service)
        usages = [ask(service, draw(rng, documents), f"What about number {i}?") for i in range(options.requests)]
        counted = {name: value - before[name] for name, value in count(service).items()}
    finally:
        service.stop()
        shutil.rmtree(folder)
    read, built = (sum(u[name] for u in usages) for name in ("tokens_reused", "tokens_built"))
    print(
        f"{policy}: the kernels read {read} tokens of earlier work and built {built}; the policy counted "
        f"{counted['tokens_hit']} and {counted['tokens_missed']}; {counted['docs_evicted']} documents gone whole, "
        f"{counted['doc_misses_partial']} hit for their heads"
    )
    is_same = (read, built) == (counted["tokens_hit"], counted["tokens_missed"])
    return is_same and read > 0 and counted["docs_evicted"] > 0


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", default=os.path.join(here, "bin"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--model")
    parser.add_argument("--shape", default="llama-3.1-8b", help="without --model")
    parser.add_argument("--data", help="2wiki_demo.jsonl; without it documents are random letters")
    parser.add_argument("--policies", type=lambda text: text.split(","), default=["zipf", "lru", "s3fifo", "arc"])
    parser.add_argument("--kv-memory", default="2GiB")
    parser.add_argument("--requests", type=int, default=40)
    options = parser.parse_args()
    options.bin = os.path.abspath(options.bin)
    rng = random.Random(6)
    documents = read_documents(options.data) if options.data else make_documents(rng)
    results = [check(options, policy, documents, rng) for policy in options.policies]
    print(f"{sum(results)} of {len(results)} policies agree with the kernels")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
