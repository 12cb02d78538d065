#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Log probabilities of the whole service beside transformers', on random Hugging Face checkpoints.

  hf_logits.py [--bin DIR] [--device cpu|cuda] [--cases WORD]

Run at development time, on a machine with torch and transformers; needs no network.  It makes small
Llama checkpoints as transformers writes them (GQA, head sizes, tied and untied, llama3 frequencies,
bf16 and f32), starts kvasird and a worker from DIR (a build, or the bin folder of a bundle), asks
each prompt for a few greedy tokens with 20 alternatives, and compares every alternative with what
transformers says after the same ids: prefill at the first token, decode at the rest.  With documents
the reference sees what the lazy mode defines: a document sees itself alone, the query sees all.

The reference is transformers in float64 on the CPU: in float32 on a GPU it was off by 0.33, three
checkpoints of six, where its bf16 and ours agreed.  On CUDA (bf16) ours may be no further from it
than transformers' own bf16 is, times 1.25, and not by more than 0.03, root mean square over a
checkpoint; a log probability has a standard deviation near 1.  On the CPU (float32) no alternative
may be off by more than 5e-5.  The tokenizer has one token a byte and no merges, so a text's ids are its bytes."""

import argparse
import json
import math
import os
import random
import shutil
import sys
import tempfile

import torch
import transformers
from transformers import LlamaConfig, LlamaForCausalLM

from service import ALTERNATIVES, Service

BYTES = 256
SPECIALS = 64
VOCAB = BYTES + SPECIALS
ANSWER_TOKENS = 6
LENGTHS = (1, 31, 32, 33, 100, 700)
DOCUMENTS = ((33, 64), (1, 31, 32, 33, 200))
FACTOR = 1.25  # of transformers' own bf16 error
CUDA_LIMIT = 0.03
CPU_LIMIT = 5e-5
CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,"

#          name, heads, KV heads, head size, tied, llama3, type
CASES = (
    ("mha_64_tied_bf16", 4, 4, 64, True, False, "bf16"),
    ("gqa4_64_llama3_bf16", 8, 2, 64, False, True, "bf16"),
    ("gqa8_128_llama3_bf16", 8, 1, 128, False, True, "bf16"),
    ("gqa4_128_tied_llama3_f32", 4, 1, 128, True, True, "f32"),
    ("gqa8_64_untied_f32", 8, 1, 64, False, False, "f32"),
    ("mha_128_untied_f32", 2, 2, 128, False, False, "f32"),
)
TYPES = {"bf16": torch.bfloat16, "f32": torch.float32}


def rope_options(is_llama3):
    """transformers 5 has rope_parameters, earlier ones rope_theta and rope_scaling."""
    theta = 500000.0 if is_llama3 else 10000.0
    scaling = {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    }
    if int(transformers.__version__.split(".")[0]) >= 5:
        kind = scaling if is_llama3 else {"rope_type": "default"}
        return {"rope_parameters": dict(kind, rope_theta=theta)}
    return {"rope_theta": theta, "rope_scaling": scaling if is_llama3 else None}


def byte_characters():
    """The printable character that stands for each byte in a byte-level vocabulary."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {byte: chr(byte) for byte in plain}
    for byte in range(BYTES):
        if byte not in names:
            names[byte] = chr(BYTES + len(names) - len(plain))
    return names


def write_tokenizer(folder):
    names = byte_characters()
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": BYTES + i,
                "content": f"<|s{i}|>",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for i in range(SPECIALS)
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, level],
        },
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {names[byte]: byte for byte in range(BYTES)},
            "merges": [],
        },
    }
    with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as out:
        json.dump(tokenizer, out)


def make_checkpoint(case, folder):
    _, heads, kv_heads, head_dim, is_tied, is_llama3, dtype = case
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=3,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        tie_word_embeddings=is_tied,
        max_position_embeddings=4096,
        bos_token_id=BYTES,
        eos_token_id=BYTES + 1,
        initializer_range=1 / 16,  # 1 / sqrt(hidden_size): scores and logits that matter
        **rope_options(is_llama3),
    )
    model = LlamaForCausalLM(config).to(TYPES[dtype])
    model.save_pretrained(folder)
    write_tokenizer(folder)


# --- transformers -----------------------------------------------------------------------------


def load(folder, dtype, device):
    key = "dtype" if int(transformers.__version__.split(".")[0]) >= 5 else "torch_dtype"
    options = {key: dtype, "attn_implementation": "sdpa"}
    return LlamaForCausalLM.from_pretrained(folder, **options).to(device).eval()


def lazy_mask(lengths, total, dtype, device):
    """[1, 1, total, total], 0 or -inf: documents see themselves, what follows them sees all."""
    mask = torch.full((total, total), float("-inf"), dtype=dtype, device=device).triu(1)
    start = 0
    for length in lengths:
        mask[start : start + length, :start] = float("-inf")
        start += length
    return mask[None, None]


def reference(model, ids, lengths, count):
    """Log probabilities [count, VOCAB] after each of the last `count` prefixes."""
    weight = model.model.embed_tokens.weight
    batch = torch.tensor([ids], device=weight.device)
    mask = lazy_mask(lengths, len(ids), weight.dtype, weight.device)
    with torch.no_grad():
        logits = model(batch, attention_mask=mask).logits[0, -count:]
    return torch.log_softmax(logits.double(), dim=-1).cpu()


# --- comparison -------------------------------------------------------------------------------


class Error:
    def __init__(self):
        self.squares, self.count, self.worst = 0.0, 0, 0.0

    def add(self, difference):
        self.squares += float((difference**2).sum())
        self.count += difference.numel()
        self.worst = max(self.worst, float(difference.abs().max()))

    def rms(self):
        return math.sqrt(self.squares / self.count)


def make_prompts(rng):
    def text(length):
        return "".join(rng.choice(CHARACTERS) for _ in range(length))

    prompts = [([], "q" + text(length - 1)) for length in LENGTHS]
    prompts += [([text(n) for n in lengths], "q" + text(20)) for lengths in DOCUMENTS]
    return prompts


def run_case(case, options, folder):
    model = os.path.join(folder, "model")
    make_checkpoint(case, model)
    service = Service(options.bin, options.device, model, folder, "--kv-memory", "256MiB")
    exact_model = load(model, torch.float64, "cpu")
    others = {
        "bf16": load(model, torch.bfloat16, options.device),
        "float32": load(model, torch.float32, options.device),
    }
    ours, theirs = Error(), {name: Error() for name in others}
    try:
        for documents, query in make_prompts(random.Random(case[0])):
            tokens = service.ask(documents, query, ANSWER_TOKENS, "--raw", "--ignore-end")
            assert len(tokens) == ANSWER_TOKENS, tokens
            ids = list("".join([*documents, query]).encode()) + [t["id"] for t in tokens[:-1]]
            lengths = [len(text) for text in documents]
            exact = reference(exact_model, ids, lengths, ANSWER_TOKENS)
            rough = {
                name: reference(model, ids, lengths, ANSWER_TOKENS) for name, model in others.items()
            }
            for i, token in enumerate(tokens):
                top_ids = token["top_ids"]
                assert len(top_ids) == ALTERNATIVES
                logprobs = torch.tensor(token["top_logprobs"], dtype=torch.float64)
                ours.add(logprobs - exact[i, top_ids])
                for name, error in theirs.items():
                    error.add(rough[name][i, top_ids] - exact[i, top_ids])
    finally:
        service.stop()
    is_good = ours.worst <= CPU_LIMIT
    if options.device == "cuda":
        is_good = ours.rms() <= min(FACTOR * theirs["bf16"].rms(), CUDA_LIMIT)
    print(
        f"{'ok' if is_good else 'NOT OK'}: {case[0]}: ours rms {ours.rms():.3g} worst {ours.worst:.3g},"
        f" transformers' bf16 rms {theirs['bf16'].rms():.3g} worst {theirs['bf16'].worst:.3g},"
        f" float32 rms {theirs['float32'].rms():.3g} worst {theirs['float32'].worst:.3g},"
        f" {ours.count} values",
        flush=True,
    )
    return is_good


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--bin", default=os.path.join(here, "bin"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--cases", default="", help="only those with this in their names")
    options = parser.parse_args()
    options.bin = os.path.abspath(options.bin)
    torch.manual_seed(20261129)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    failed = 0
    for case in CASES:
        if options.cases not in case[0]:
            continue
        folder = tempfile.mkdtemp(prefix="kvasir-hf-")
        try:
            failed += not run_case(case, options, folder)
        finally:
            shutil.rmtree(folder)
    print(f"{failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
