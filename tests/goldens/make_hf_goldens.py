#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes golden logits of small Hugging Face checkpoints, as make_goldens.py does of GGUFs.

Run at development time; its output is committed: hf/NAME.json, the config.json that transformers
wrote, and NAME.txt, the goldens (format: make_goldens.py).  Weights are not stored.  The test
(tests/support/hf_dir.c) and this script compute them by one rule: byte b of an element is the highest
of splitmix64(FNV-1a of the tensor's name + the element's number); a matrix has (2 b - 255) / 1024,
a norm (64 + b % 16) / 64.  All are exact in float32, float16 and bfloat16.

hf_sharded is a directory as transformers writes it, in several files with an index.

The model is written by transformers and read back by it, so that config.json means what
transformers takes it for.  float64 runs have angles and norms in float64; the scaled frequencies
are computed by the published rule and must be transformers' own to float32 rounding."""

import json
import math
import os
import shutil
import tempfile

import numpy as np
import torch
from make_goldens import Norm, Oracle, Rotary, Writer
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers import MistralConfig, MistralForCausalLM

SUBSAMPLE = 48
LENGTHS = (1, 40, 200)
VOCAB = 352  # the tokenizer has fewer: embeddings are often padded

LLAMA3 = dict(rope_type="llama3", low_freq_factor=1.0, high_freq_factor=4.0)

CASES = {
    "hf_llama3_tied": (
        LlamaConfig(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=64,
            tie_word_embeddings=True,
            max_position_embeddings=2048,
            rms_norm_eps=1e-5,
            rope_parameters=dict(
                LLAMA3, rope_theta=10000.0, factor=8.0, original_max_position_embeddings=64
            ),
        ),
        "bf16",
    ),
    "hf_llama3_untied": (
        LlamaConfig(
            hidden_size=256,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=4096,
            rope_parameters=dict(
                LLAMA3, rope_theta=500000.0, factor=32.0, original_max_position_embeddings=128
            ),
        ),
        "f32",
    ),
    "hf_linear": (
        LlamaConfig(
            hidden_size=128,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=8,
            num_key_value_heads=2,
            head_dim=64,
            max_position_embeddings=512,
            rope_parameters=dict(rope_type="linear", factor=4.0, rope_theta=10000.0),
        ),
        "f16",
    ),
    "hf_mistral": (
        MistralConfig(
            hidden_size=96,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=3,
            num_key_value_heads=3,
            head_dim=64,
            max_position_embeddings=1024,
            sliding_window=None,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0),
        ),
        "bf16",
    ),
}
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) % 2**64
    return value


def values(name, shape):
    with np.errstate(over="ignore"):
        x = np.uint64(fnv1a(name)) + np.arange(math.prod(shape), dtype=np.uint64)
        x += np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    byte = (x >> np.uint64(56)).astype(np.int64)
    scaled = (64 + byte % 16) / 64 if len(shape) == 1 else (2 * byte - 255) / 1024
    return torch.from_numpy(scaled.reshape(shape).astype(np.float32))


def frequencies(config):
    rope = config.rope_parameters
    D = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    out = []
    for i in range(D // 2):
        f = rope["rope_theta"] ** (-2 * i / D)
        if rope["rope_type"] == "linear":
            f /= rope["factor"]
        if rope["rope_type"] == "llama3":
            wave = 2 * math.pi / f
            original = rope["original_max_position_embeddings"]
            low, high = rope["low_freq_factor"], rope["high_freq_factor"]
            if wave > original / low:
                f /= rope["factor"]
            elif wave >= original / high:
                smooth = (original / wave - low) / (high - low)
                f = (1 - smooth) * f / rope["factor"] + smooth * f
        out.append(f)
    return torch.tensor(out, dtype=torch.float64)


class HfOracle(Oracle):
    def __init__(self, folder, config):
        def load(dtype):
            return AutoModelForCausalLM.from_pretrained(
                folder, dtype=dtype, attn_implementation="sdpa"
            ).eval()

        inv_freq = frequencies(config)
        self.single = load(torch.float32)
        theirs = self.single.model.rotary_emb.inv_freq.double()
        assert torch.allclose(theirs, inv_freq, rtol=1e-6, atol=0), (theirs, inv_freq)
        self.double = load(torch.float64)
        self.double.model.rotary_emb = Rotary(inv_freq)
        for layer in self.double.model.layers:
            for name in ("input_layernorm", "post_attention_layernorm"):
                setattr(layer, name, Norm(getattr(layer, name).weight, config.rms_norm_eps))
        self.double.model.norm = Norm(self.double.model.norm.weight, config.rms_norm_eps)


def build(config, dtype):
    kind = MistralForCausalLM if isinstance(config, MistralConfig) else LlamaForCausalLM
    model = kind(config).to(TYPES[dtype])
    state = {
        n: values(n, tuple(t.shape)).to(TYPES[dtype])
        for n, t in model.state_dict().items()
        if n != "lm_head.weight" or not config.tie_word_embeddings
    }
    model.load_state_dict(state, strict=False)
    return model


def make(name, config, dtype, out):
    config.vocab_size = VOCAB
    model = build(config, dtype)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        oracle = HfOracle(folder, config)
        shutil.copy(
            os.path.join(folder, "config.json"), os.path.join(out, "hf", name + ".json")
        )
    rng = np.random.default_rng(len(name))
    index = sorted(int(i) for i in rng.choice(VOCAB, size=SUBSAMPLE, replace=False))
    ids = [int(i) for i in rng.integers(0, 300, size=max(LENGTHS))]
    writer = Writer(os.path.join(out, name + ".txt"), oracle, f"kind=hf type={dtype}", index)
    for n in LENGTHS:
        writer.case(f"prompt_{n}", ids[:n])
    writer.case("docs", ids[:150], [33, 64], positions=[97, 149])


def make_sharded(folder):
    shutil.rmtree(folder, ignore_errors=True)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=1,
        head_dim=64,
        max_position_embeddings=256,
    )
    build(config, "bf16").save_pretrained(folder, max_shard_size="7KB")


def main():
    out = os.path.dirname(os.path.abspath(__file__))
    os.makedirs(os.path.join(out, "hf"), exist_ok=True)
    torch.manual_seed(0)
    for name, (config, dtype) in CASES.items():
        make(name, config, dtype, out)
        print(name, json.dumps(config.rope_parameters))
    make_sharded(os.path.join(out, "hf_sharded"))


main()
