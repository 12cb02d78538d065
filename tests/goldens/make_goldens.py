#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the golden logits and greedy answers that the forward pass is tested against.

Run at development time; its output is committed.  Needs torch, transformers, tokenizers and gguf:

    make_goldens.py --tool BUILD/kvasir-tiny-model --smollm2 SmolLM2-135M-Instruct.Q4_1.gguf

The oracle is transformers' LlamaForCausalLM on the weights that the gguf package de-quantises.
Every case is run twice: in float32 as transformers does it, and in float64 with angles in float64.
The float64 logits are written, and the largest difference between the two runs as the case's
noise: a right float32 implementation may differ from the golden by a small multiple of it.

A prompt is documents, each seeing itself alone, then a query that sees everything before it.
Positions are global: document d starts where document d - 1 ended.  Without documents it is a
plain prompt.

Format, one record a line, words separated by blanks; '#' starts a comment:

    model KEY=VALUE...      what to open: kind=tiny and the arguments of kvasir-tiny-model, or
                            kind=file and name; both with sha256 of the file
    index N i...            the ids whose logits are stored; without it all of them
    case NAME               a prompt; the records below belong to it
    docs N n...             lengths of its documents; what is left of ids is the query
    ids N id...             the whole prompt
    noise X                 largest |float32 - float64| over all positions and logits of the case
    logits P N x...         at position P; x = the 8 hex digits of a float32
    top P N id...           the N largest logits at position P, largest first
    greedy GAP N id...      the greedy answer, not cut at end tokens; GAP = the smallest lead of a
                            chosen token over the next best (float64)
"""

import argparse
import hashlib
import os
import struct
import subprocess
import tempfile

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

GREEDY_TOKENS = 64
LENGTHS = (1, 31, 32, 33, 100, 300)
TOP = 5
SUBSAMPLE = 256

TINY = {
    # GQA 1, 3, 4 and 8; head dimension 64 and 128; each rope regime; four tensor types
    "tiny_gqa1": dict(
        seed=11, layers=2, heads=4, kv_heads=4, head_dim=64, type="f32", rope="plain"
    ),
    "tiny_gqa3": dict(
        seed=12, layers=2, heads=6, kv_heads=2, head_dim=64, width=192, type="q8_0", rope="linear"
    ),
    "tiny_gqa4": dict(
        seed=13, layers=2, heads=4, kv_heads=1, head_dim=128, type="bf16", rope="freqs", untied=1
    ),
    "tiny_gqa8": dict(
        seed=14, layers=3, heads=8, kv_heads=1, head_dim=64, type="q4_1", rope="plain"
    ),
}
TINY_SHAPE = dict(width=128, ffn=256, vocab=320)
TINY_DOCS = {
    "docs_around_a_block": ([31, 32, 33], 20),
    "docs_one_empty": ([40, 0, 64], 7),
    "docs_many": ([1, 16, 17, 5, 48], 33),
}

TEXT = """\
A ship's log is older than the clock that keeps its time. The first logs were pieces of
wood on a knotted line, thrown over the stern and left to float while a small glass of
sand ran out. A sailor counted the knots that slipped through his fingers, and the number
went into a book together with the course, the wind and the weather. From these few
columns a navigator could work out where the ship must be, even after a week of clouds. He
added each hour's run to the point before it, and so every error was carried into all the
hours that followed. A wrong count at midnight was still there at noon. Good officers knew
this, and they trusted the sky more than the book whenever they could see it. When the sun
came out they measured its height, compared the two positions, and wrote down the
difference without comment. Over the years such differences taught them more than any
single fix. They showed which currents ran stronger in spring, which compass turned a
degree to the west, and which helmsman fell asleep. The same habit serves whoever runs
machines today. Keep the count, note what you expected, and look at the difference before
you look for someone to blame. It is a slow way to become right, but nobody has found a
faster one that lasts."""

DOCUMENTS = [
    "Title: The Marrow lighthouse\n"
    "The Marrow lighthouse was built in 1871 by the engineer Edith Harrow. It stands on the north "
    "end of Sule island and its lamp can be seen for nineteen miles.\n\n",
    "Title: Sule island\n"
    "Sule is a small island with a village of eighty people, one school and a ferry that runs on "
    "Tuesdays and Fridays. Its highest hill is called Brandy Law.\n\n",
    "Title: Edith Harrow\n"
    "Edith Harrow was born in Leith in 1834. She learnt to draw bridges in her father's office "
    "and later built four lighthouses and a harbour.\n\n",
]
SYSTEM = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
QUESTIONS = [
    "What is the capital of France?",
    "Write one sentence about rain.",
    "Name three colours and say why people like them.",
]
DOCUMENT_QUESTION = "Who built the Marrow lighthouse, and where was she born?"


def chat(question):
    return "<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n"


class Rotary(torch.nn.Module):
    """Angles in float64, whatever the type of the model."""

    def __init__(self, inv_freq):
        super().__init__()
        self.inv_freq = inv_freq

    def forward(self, x, position_ids):
        angle = position_ids[..., None].double() * self.inv_freq
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)


class Norm(torch.nn.Module):
    """RMS norm that stays in the type of its input; transformers' own goes through float32."""

    def __init__(self, weight, eps):
        super().__init__()
        self.weight, self.eps = weight, eps

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps))


class Oracle:
    def __init__(self, path):
        reader = GGUFReader(path)
        self.fields = {k: f.contents() for k, f in reader.fields.items()}

        def get(key, default=None):
            return self.fields.get("llama." + key, default)

        tensors = {}
        for t in reader.tensors:
            shape = tuple(int(n) for n in reversed(t.shape))
            tensors[t.name] = torch.from_numpy(
                dequantize(t.data, t.tensor_type).reshape(shape).astype(np.float32)
            )
        heads, kv_heads = get("attention.head_count"), get("attention.head_count_kv")
        width = get("embedding_length")
        self.D = get("attention.key_length", width // heads)
        config = LlamaConfig(
            hidden_size=width,
            intermediate_size=get("feed_forward_length"),
            num_hidden_layers=get("block_count"),
            num_attention_heads=heads,
            num_key_value_heads=kv_heads,
            head_dim=self.D,
            vocab_size=tensors["token_embd.weight"].shape[0],
            rms_norm_eps=get("attention.layer_norm_rms_epsilon"),
            tie_word_embeddings="output.weight" not in tensors,
            max_position_embeddings=get("context_length"),
            attn_implementation="sdpa",
        )
        self.V = config.vocab_size
        state = self.state(tensors, config)
        inv_freq = 1.0 / get("rope.freq_base", 10000.0) ** (
            torch.arange(0, self.D, 2, dtype=torch.float64) / self.D
        )
        if get("rope.scaling.type") == "linear":
            inv_freq = inv_freq / get("rope.scaling.factor")
        if "rope_freqs.weight" in tensors:
            inv_freq = inv_freq / tensors["rope_freqs.weight"].double()
        self.single = self.build(config, state)
        self.single.model.rotary_emb.inv_freq = inv_freq.float()
        self.double = self.build(config, state).double()
        self.double.model.rotary_emb = Rotary(inv_freq)
        for layer in self.double.model.layers:
            for name in ("input_layernorm", "post_attention_layernorm"):
                setattr(layer, name, Norm(getattr(layer, name).weight, config.rms_norm_eps))
        self.double.model.norm = Norm(self.double.model.norm.weight, config.rms_norm_eps)

    @staticmethod
    def build(config, state):
        model = LlamaForCausalLM(config).eval()
        missing, unexpected = model.load_state_dict(state, strict=False)
        assert not unexpected and all(name == "lm_head.weight" for name in missing), (
            missing,
            unexpected,
        )
        return model

    def state(self, tensors, config):
        def halves(w, heads):  # GGUF keeps rotation pairs as neighbours, transformers as halves
            return w.reshape(heads, self.D // 2, 2, -1).swapaxes(1, 2).reshape(w.shape).contiguous()

        names = {
            "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.o_proj",
            "ffn_gate": "mlp.gate_proj",
            "ffn_up": "mlp.up_proj",
            "ffn_down": "mlp.down_proj",
            "attn_norm": "input_layernorm",
            "ffn_norm": "post_attention_layernorm",
        }
        state = {
            "model.embed_tokens.weight": tensors["token_embd.weight"],
            "model.norm.weight": tensors["output_norm.weight"],
        }
        state["lm_head.weight"] = tensors.get("output.weight", tensors["token_embd.weight"])
        for i in range(config.num_hidden_layers):
            to, of = f"model.layers.{i}.", f"blk.{i}."
            state[to + "self_attn.q_proj.weight"] = halves(
                tensors[of + "attn_q.weight"], config.num_attention_heads
            )
            state[to + "self_attn.k_proj.weight"] = halves(
                tensors[of + "attn_k.weight"], config.num_key_value_heads
            )
            for ours, theirs in names.items():
                state[f"{to}{theirs}.weight"] = tensors[f"{of}{ours}.weight"]
        return state

    @staticmethod
    def mask(docs, length, dtype):
        """Additive [1, 1, T, T]: a document sees itself, the query everything before it."""
        seen = torch.tril(torch.ones(length, length, dtype=torch.bool))
        start = 0
        for n in docs:
            seen[start : start + n, :start] = False
            start += n
        return torch.zeros(length, length, dtype=dtype).masked_fill(~seen, float("-inf"))[
            None, None
        ]

    @torch.no_grad()
    def prefill(self, model, ids, docs, **kwargs):
        dtype = model.lm_head.weight.dtype
        return model(
            torch.tensor([ids]),
            attention_mask=self.mask(docs, len(ids), dtype),
            position_ids=torch.arange(len(ids))[None],
            **kwargs,
        )

    @torch.no_grad()
    def greedy(self, model, ids, docs):
        out = self.prefill(model, ids, docs, use_cache=True)
        answer, gap = [], float("inf")
        while True:
            best = torch.topk(out.logits[0, -1].double(), 2)
            gap = min(gap, float(best.values[0] - best.values[1]))
            answer.append(int(best.indices[0]))
            if len(answer) == GREEDY_TOKENS:
                return answer, gap
            cache = out.cache if hasattr(out, "cache") else out.past_key_values
            out = model(
                torch.tensor([answer[-1:]]),
                position_ids=torch.tensor([[len(ids) + len(answer) - 1]]),
                cache=cache,
                use_cache=True,
            )


def words(values):
    return " ".join([str(len(values))] + [str(v) for v in values])


def hexes(values):
    return " ".join(struct.pack(">f", v).hex() for v in values)


class Writer:
    def __init__(self, path, oracle, model_line, index=None):
        self.oracle, self.index = oracle, index
        self.file = open(path, "w", encoding="ascii")
        print("# Made by make_goldens.py, which says what this is; do not edit.", file=self.file)
        print("model", model_line, file=self.file)
        if index is not None:
            print("index", words(index), file=self.file)

    def case(self, name, ids, docs=(), positions=None, with_greedy=False):
        double = self.oracle.prefill(self.oracle.double, ids, docs).logits[0]
        single = self.oracle.prefill(self.oracle.single, ids, docs).logits[0]
        noise = float((double - single.double()).abs().max())
        out = self.file
        print(f"case {name}\ndocs {words(docs)}\nids {words(ids)}\nnoise {noise:.3e}", file=out)
        for p in sorted(set(positions or [len(ids) - 1])):
            row = double[p]
            kept = row if self.index is None else row[torch.tensor(self.index)]
            print(f"logits {p} {len(kept)} {hexes(kept.tolist())}", file=out)
            print(f"top {p} {words(torch.topk(row, TOP).indices.tolist())}", file=out)
        if with_greedy:
            answer, gap = self.oracle.greedy(self.oracle.double, ids, docs)
            again, _ = self.oracle.greedy(self.oracle.single, ids, docs)
            assert (
                answer == again and gap > 8 * noise
            ), f"{name}: a near-tie ({gap} at noise {noise}); take another prompt"
            print(f"greedy {gap:.3e} {words(answer)}", file=out)
            print(f"  {name}: noise {noise:.1e} gap {gap:.1e} distinct {len(set(answer))}")


def tokenizer_of(fields):
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
    tok.add_special_tokens(
        [t for t, kind in zip(tokens, fields["tokenizer.ggml.token_type"]) if kind == 3]
    )
    return tok


def sha256_of(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def make_tiny(name, arguments, tool, folder):
    arguments = {**TINY_SHAPE, **arguments}
    with tempfile.TemporaryDirectory() as temp:
        path = os.path.join(temp, name + ".gguf")
        flags = [f"--{k.replace('_', '-')}={v}" for k, v in arguments.items()]
        subprocess.run([tool, "--out", path] + flags, check=True)
        oracle, sha256 = Oracle(path), sha256_of(path)
    rng = np.random.default_rng(arguments["seed"])
    ids = [int(i) for i in rng.integers(3, 300, size=max(LENGTHS))]
    line = " ".join(["kind=tiny"] + [f"{k}={v}" for k, v in arguments.items()])
    line += f" sha256={sha256}"
    writer = Writer(os.path.join(folder, name + ".txt"), oracle, line)
    for n in LENGTHS:
        writer.case(
            f"prompt_{n}",
            ids[:n],
            positions=[n // 2, n - 1] if n > 33 else None,
            with_greedy=n in (32, 100),
        )
    for case, (docs, query) in TINY_DOCS.items():
        total = sum(docs)
        writer.case(
            case, ids[: total + query], docs, positions=[total, total + query - 1], with_greedy=True
        )
    repeated = ids[:50] + ids[50:83] + ids[:50] + ids[83:95]
    writer.case("docs_one_twice", repeated, [50, 33, 50], positions=[133, 144], with_greedy=True)


def make_smollm2(path, folder):
    oracle = Oracle(path)
    tok = tokenizer_of(oracle.fields)
    rng = np.random.default_rng(20)
    index = sorted(int(i) for i in rng.choice(oracle.V, size=SUBSAMPLE, replace=False))
    writer = Writer(
        os.path.join(folder, "smollm2.txt"),
        oracle,
        f"kind=file name={os.path.basename(path)} sha256={sha256_of(path)}",
        index,
    )

    def encode(text):
        return tok.encode(text).ids

    ids = encode(" ".join(TEXT.split()))
    assert len(ids) >= 260, len(ids)
    for n in LENGTHS:
        n = min(n, len(ids))
        writer.case(f"prompt_{n}", ids[:n], positions=[n // 2, n - 1] if n > 33 else None)
    for i, question in enumerate(QUESTIONS):
        writer.case(f"chat_{i}", encode(SYSTEM + chat(question)), with_greedy=True)
    segments = [encode(t) for t in [SYSTEM] + DOCUMENTS]
    for name, order in (("docs_in_order", (0, 1, 2, 3)), ("docs_reversed", (0, 3, 2, 1))):
        docs = [segments[i] for i in order]
        query = encode(chat(DOCUMENT_QUESTION))
        total = sum(map(len, docs))
        whole = sum(docs, []) + query
        writer.case(
            name, whole, [len(d) for d in docs], positions=[total, len(whole) - 1], with_greedy=True
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tool", required=True, help="kvasir-tiny-model")
    parser.add_argument(
        "--smollm2", help="the real checkpoint; without it only the tiny ones are made"
    )
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    args = parser.parse_args()
    torch.manual_seed(0)
    for name, arguments in TINY.items():
        print(name)
        make_tiny(name, arguments, args.tool, args.out)
    if args.smollm2:
        print("smollm2")
        make_smollm2(args.smollm2, args.out)


if __name__ == "__main__":
    main()
