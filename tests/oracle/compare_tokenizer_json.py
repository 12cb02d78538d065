#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares our token ids with those of the tokenizers package, on a real vocabulary and real texts.

    compare_tokenizer_json.py --encode BUILD/tests/oracle/encode --gguf SmolLM2-135M-Instruct.Q4_1.gguf TEXT...

Builds a tokenizer.json from the vocabulary of the GGUF, then encodes every file (whole, by lines, and
by random cuts) three ways: the package with that tokenizer.json, ours with it, ours with the GGUF.
Prints how many texts, bytes and ids were equal; exit status 1 at the first difference.  Needs
tokenizers and gguf."""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers


def tokenizer_of(path):
    reader = GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items() if name.startswith("tokenizer.")}
    assert fields["tokenizer.ggml.model"] == "gpt2" and fields["tokenizer.ggml.pre"] == "smollm"
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"]]
    tok = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tok.decoder = decoders.ByteLevel()
    kinds = fields["tokenizer.ggml.token_type"]
    tok.add_special_tokens(
        [AddedToken(t, normalized=False) for t, k in zip(tokens, kinds) if k == 3]
    )
    return tok, len(tokens)


def texts_of(paths, seed):
    rng = random.Random(seed)
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read().replace("\0", "")
        yield text
        yield from text.split("\n")
        at = 0
        while at < len(text):
            length = int(rng.expovariate(1 / 400)) + 1
            yield text[at : at + length]
            at += length


def ours(command, texts):
    data = b"\0".join(t.encode() for t in texts) + b"\0"
    start = time.monotonic()
    out = subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout
    print(f"  {' '.join(os.path.basename(c) for c in command)}: {time.monotonic() - start:.2f} s")
    return [[int(i) for i in line.split()] for line in out.decode().split("\n")[:-1]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--encode", required=True, help="tests/oracle/encode of a build")
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("texts", nargs="+")
    args = parser.parse_args()
    tok, size = tokenizer_of(args.gguf)
    texts = list(texts_of(args.texts, args.seed))
    with tempfile.TemporaryDirectory() as temp:
        path = os.path.join(temp, "tokenizer.json")
        tok.save(path)
        answers = {
            "tokenizer.json": ours([args.encode, path, str(size)], texts),
            "GGUF": ours([args.encode, args.gguf], texts),
        }
    theirs = [e.ids for e in tok.encode_batch(texts, add_special_tokens=False)]
    for name, ids in answers.items():
        assert len(ids) == len(texts), (name, len(ids), len(texts))
        for text, mine, other in zip(texts, ids, theirs):
            if mine != other:
                sys.exit(f"{name}: seed {args.seed}: {text[:200]!r}\n  ours   {mine[:50]}\n  theirs {other[:50]}")
    print(
        f"{len(texts)} texts, {sum(len(t.encode()) for t in texts)} bytes, "
        f"{sum(map(len, theirs))} ids: equal both ways"
    )


main()
