#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare_tokenizers.py ENCODE_TEXTS DATA_FOLDER [SMOLLM2.gguf]

Compares our tokenizer with PyPI's `tokenizers` and `sentencepiece`, built from the same GGUF's vocabulary
and merges, over all strings of the corpora in DATA_FOLDER and over random Unicode.  Run by hand at
development time; model/README.md holds the result.  Needs tokenizers, sentencepiece, gguf, jinja2.
"""
import glob
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

import gguf
import jinja2
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer, normalizers
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Punctuation, Sequence, Split

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|DIGITS| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def cased_class(source):
    """deepseek-llm's letters, read from our own source: the list is data, the engine is what differs."""
    text = open(source, encoding="utf-8").read()
    block = text[text.index("#define CASED"):text.index("static const struct family")]
    ranges = "".join(part for i, part in enumerate(block.split('"')) if i % 2 == 1)
    return ranges.replace("\\\\x", "\\x")


def pre_tokenizer(pre):
    def split(pattern):
        return Split(Regex(pattern), "isolated")

    cjk = split("[一-龥ࠀ-一가-\ud7ff]+")
    raw = ByteLevel(add_prefix_space=False, use_regex=False)
    source = os.path.join(os.path.dirname(__file__), "../../model/pretokenize.c")
    return {
        "gpt-2": lambda: ByteLevel(add_prefix_space=False),
        "smollm": lambda: Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]),
        "falcon": lambda: Sequence([Punctuation("contiguous"), ByteLevel(add_prefix_space=False),
                                    Digits(individual_digits=False), split("[0-9][0-9][0-9]")]),
        "llama-bpe": lambda: Sequence([split(LLAMA3.replace("DIGITS", r"\p{N}{1,3}")), raw]),
        "qwen2": lambda: Sequence([split(LLAMA3.replace("DIGITS", r"\p{N}")), raw]),
        "deepseek-llm": lambda: Sequence([
            split("[\r\n]"), split(r"\s?[" + cased_class(source) + "]+"),
            split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"), split(r"\s+$"), cjk,
            Digits(individual_digits=True), raw]),
        "deepseek-coder": lambda: Sequence([split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), cjk,
                                            Digits(individual_digits=True), raw]),
    }[{"starcoder": "smollm"}.get(pre, pre)]()


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


class Vocabulary:
    def __init__(self, path):
        fields = gguf.GGUFReader(path).fields

        def get(key, default=None):
            return fields[key].contents() if key in fields else default

        self.path = path
        self.model = get("tokenizer.ggml.model")
        self.pre = get("tokenizer.ggml.pre")
        self.tokens = get("tokenizer.ggml.tokens")
        self.types = get("tokenizer.ggml.token_type")
        self.scores = get("tokenizer.ggml.scores")
        self.merges = get("tokenizer.ggml.merges")
        self.template = get("tokenizer.chat_template")

    def with_pre(self, pre):
        """The same vocabulary in a file of its own, for a pattern none of the data's vocabularies has."""
        path = os.path.join(tempfile.mkdtemp(), pre + ".gguf")
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_tokenizer_model(self.model)
        writer.add_tokenizer_pre(pre)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        writer.add_token_merges(self.merges)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
        return Vocabulary(path)

    def oracle(self, with_control=False):
        if self.model == "llama":
            return self.sentencepiece()
        ids = {token: i for i, token in enumerate(self.tokens)}
        normal = {token: i for token, i in ids.items() if self.types[i] == NORMAL}
        merges = [tuple(merge.split(" ")) for merge in self.merges]
        tokenizer = Tokenizer(BPE(vocab=ids if with_control else normal, merges=merges,
                                  ignore_merges=self.pre == "llama-bpe"))
        tokenizer.pre_tokenizer = pre_tokenizer(self.pre)
        if self.pre == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
        user_defined = [t for t in self.tokens if self.types[ids[t]] == USER_DEFINED]
        if user_defined and not with_control:
            # The model must know them, or they get new ids.
            tokenizer.model = BPE(vocab=normal | {t: ids[t] for t in user_defined}, merges=merges)
        tokenizer.add_tokens([AddedToken(t, normalized=False) for t in user_defined])
        if with_control:
            tokenizer.add_special_tokens([t for t in self.tokens if self.types[ids[t]] == CONTROL])
        return lambda texts: [e.ids for e in tokenizer.encode_batch(texts, add_special_tokens=False)]

    def sentencepiece(self):
        def field(number, payload):
            return varint(number << 3 | 2) + varint(len(payload)) + payload

        def flag(number, value):
            return varint(number << 3) + varint(value)

        model = b""
        for token, score, kind in zip(self.tokens, self.scores, self.types):
            # One unknown token is all that sentencepiece allows, and it wants it typed so.
            kind = UNKNOWN if token == "<unk>" else UNUSED if kind == UNKNOWN else kind
            model += field(1, field(1, token.encode()) + struct.pack("<Bf", 2 << 3 | 5, score) + flag(3, kind))
        model += field(2, flag(3, 2) + flag(35, 1))  # trainer: BPE, byte fallback
        # normaliser: a space in front, spaces kept, spaces escaped
        model += field(3, field(1, b"identity") + flag(3, 1) + flag(4, 0) + flag(5, 1))
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        return processor.encode


def ours(program, mode, path, texts):
    data = b"".join(struct.pack("<I", len(t)) + t for t in texts)
    run = subprocess.run([program, mode, path], input=data, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, check=True)
    out, at = [], 0
    while at < len(run.stdout):
        count = struct.unpack_from("<I", run.stdout, at)[0]
        out.append(list(struct.unpack_from(f"<{count}I", run.stdout, at + 4)))
        at += 4 + 4 * count
    return out, run.stderr.decode().strip()


def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


def corpora(folder):
    texts = set()
    for path in sorted(glob.glob(folder + "/*.json") + glob.glob(folder + "/2wiki*.jsonl")):
        with open(path, encoding="utf-8") as file:
            for value in map(json.loads, file) if path.endswith("l") else [json.load(file)]:
                texts.update(strings(value))
    return sorted(texts - {""})


def random_texts(count):
    """Unicode of all kinds, as far as Python's tables know it: version 14, like PCRE2 10.42."""
    rng = random.Random(20261129)
    known = [chr(c) for c in range(0x110000)
             if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co") and c != 0]
    plain = "aeinorst AEST  012.,'\"-\n\r\t()!"
    out = []
    for _ in range(count):
        pools = [plain, plain, [rng.choice(known) for _ in range(8)], "\u00e9\u0301\u4f60\u597d\u3042\ud55c "]
        out.append("".join(rng.choice(rng.choice(pools)) for _ in range(rng.randrange(1, 60))))
    return out


def compare(name, vocabulary, program, sets):
    encode = vocabulary.oracle()
    for label, texts in sets:
        wanted = encode(texts)
        got, note = ours(program, "text", vocabulary.path, [t.encode() for t in texts])
        bad = [i for i in range(len(texts)) if wanted[i] != got[i]]
        print(f"{name:16} {label:8} {len(texts)} texts, {sum(map(len, got))} ids, {len(bad)} differ ({note})",
              flush=True)
        for i in bad[:3]:
            print("   ", repr(texts[i][:80]), "\n    oracle", wanted[i][:16], "\n    ours  ", got[i][:16])


def compare_chats(vocabulary, program, texts):
    """Whole chats through the checkpoint's own Jinja against our segments, without documents."""
    rng = random.Random(1)
    jinja = jinja2.Environment().from_string(vocabulary.template)
    chats = []
    for _ in range(1000):
        roles = ["system"] * rng.randrange(2) + ["user", "assistant"] * rng.randrange(3) + ["user"]
        chats.append([{"role": role, "content": rng.choice(texts).replace("\0", "")} for role in roles])
    wanted = vocabulary.oracle(True)([jinja.render(messages=c, add_generation_prompt=True) for c in chats])
    flat = ["".join(m["role"] + "\0" + m["content"] + "\0" for m in c).encode() for c in chats]
    got, _ = ours(program, "chat", vocabulary.path, flat)
    print(f"chats: {len(chats)}, {sum(w != g for w, g in zip(wanted, got))} differ")


def main():
    program, folder = sys.argv[1:3]
    sets = [("corpora", corpora(folder)), ("random", random_texts(20000))]
    for path in sorted(glob.glob(folder + "/ggml-vocab-*.gguf")) + sys.argv[3:]:
        vocabulary = Vocabulary(path)
        compare(os.path.basename(path)[:-5].replace("ggml-vocab-", "")[:16], vocabulary, program, sets)
        if vocabulary.pre == "gpt-2":
            for pre in ("llama-bpe", "qwen2"):
                compare(f"gpt-2 {pre}", vocabulary.with_pre(pre), program, sets)
        if vocabulary.template and "<|im_start|>" in vocabulary.template:
            compare_chats(vocabulary, program, sets[0][1])


if __name__ == "__main__":
    main()
