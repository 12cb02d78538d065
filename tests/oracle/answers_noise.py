#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""answers_noise.py MODEL.gguf ANSWERS [QUESTION...]

How far transformers' bf16 is off its own float32, as tests/gpu/answers.py measures ours: over the questions and
answers that it recorded, the largest difference of a logit among the 20 alternatives that both name.  That is where
its bound comes from.  Run at development time; needs torch, transformers, tokenizers and gguf."""

import copy
import json
import os
import sys

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "goldens"))
import make_goldens  # noqa: E402  (found by the line above)

ALTERNATIVES = 20


def difference(a, b):
    common = sorted(set(torch.topk(a, ALTERNATIVES).indices.tolist()) & set(torch.topk(b, ALTERNATIVES).indices.tolist()))
    delta = a[common] - b[common]
    return float((delta - delta.mean()).abs().max())


def main():
    oracle = make_goldens.Oracle(sys.argv[1])
    half = copy.deepcopy(oracle.single).to(torch.bfloat16)
    half.model.rotary_emb = copy.deepcopy(oracle.single.model.rotary_emb)
    tokenizer = make_goldens.tokenizer_of(oracle.fields)
    with open(sys.argv[2], encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    worst = 0.0
    for number in [int(word) for word in sys.argv[3:]] or range(1, len(rows) + 1):
        row = rows[number - 1]
        texts = [make_goldens.SYSTEM] + [text + "\n\n" for text in row["documents"]]
        documents = [tokenizer.encode(text).ids for text in texts]
        answer = [token["id"] for token in row["tokens"]]
        ids = sum(documents, []) + tokenizer.encode(make_goldens.chat(row["question"])).ids + answer[:-1]
        whole, rounded = (
            torch.log_softmax(
                oracle.prefill(model, ids, [len(d) for d in documents]).logits[0, -len(answer) :].float(), -1
            )
            for model in (oracle.single, half)
        )
        noise = max(difference(a, b) for a, b in zip(whole, rounded))
        worst = max(worst, noise)
        print(f"question {number}: {len(ids)} tokens, logits within {noise:.4f}", flush=True)
    print(f"worst {worst:.4f}")


if __name__ == "__main__":
    main()
