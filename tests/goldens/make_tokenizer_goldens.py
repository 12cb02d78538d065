#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes small tokenizer.json files, one a kind that is served, and the ids that the tokenizers
package gives for adversarial texts.

Run at development time; its output is committed in tests/goldens/tokenizers.  Needs tokenizers.

NAME.json is a tokenizer trained on the text below; NAME.txt has two lines a text: "text HEX", the
bytes of its UTF-8, and "ids N id...", without what a post-processor adds."""

import json
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import trainers

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SPACE = "\u2581"

TRAINING = """\
The lighthouse keeper wrote the weather into a book every evening, and every morning the wind had
changed. Nobody's ever counted how many pages he's filled; they'll say a hundred, I'd say 1234.
    def keep(log):
        return [entry for entry in log if entry.hours >= 24]
DON'T PANIC, said the cover. Die Gr\u00f6\u00dfe der Welle war 3,75 m. L'\u00e9t\u00e9 \u00e0 l'\u00eele.
\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u4f60\u597d\uff0c\u4e16\u754c\u3002 \u3053\u3093\u306b\u3061\u306f
"""

TEXTS = [
    "",
    " ",
    "  ",
    "a",
    " a",
    "  a",
    "a ",
    "\n",
    "\n\n a\n \n",
    "\t\ttabs\tand spaces   ",
    "\r\nwindows\r\n\r\n",
    "The lighthouse keeper wrote every evening.",
    "DON'T don't I'LL we'Ve it's 'S ' s'",
    "12345678901 3.14 1,000 x2y3",
    "\u0663\u0664 \u216b \u00bd\u00b2",
    "Gr\u00f6\u00dfe Gro\u0308\u00dfe e\u0301te\u0301",
    "a\u0301\u0327 a\u0327\u0301 \u1e69 s\u0323\u0307",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f",
    "\U0001f600\U0001f44d\U0001f3fd\u200d\u2640\ufe0f emoji",
    "\u00a0nbsp\u00a0 \u2003em\u3000ideographic",
    "next\u0085line \u180emongolian\u180e\u180e separator",
    "zero\u200bwidth \ufeffbom \u2060",
    "\u2028line\u2029paragraph",
    "!!!??? ... --- *** ///\n//",
    "$100 + 50% = <tag attr='x'>",
    "snake_case camelCase HTTPServer XMLHttpRequest",
    "<0x41> <unk> <s> </s>",
    "\u2581low line\u2581\u2581twice \u2581 ",
    "<|end|>turn<|end|><|end|> x",
    "a<|begin|> b <|begin|>",
    " <tool>call</tool> <tool",
    "<tool><tool>  <|end|>  ",
    "x\u0000y\u0001z\u007f",
    "\u0301 alone, \u0338<|end|>",
    "\u1e9e \u0130 \u0131 \ufb01 \u017fs '\u017f",
    "word" * 40,
    " " * 100 + "x" + " " * 50,
    "ab" * 200,
    "\uffff \U0010ffff \ue000",
    "every evening every evening\nevery evening",
]

SPECIALS = ["<|begin|>", "<|end|>"]


def add_tokens(tok):
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in SPECIALS])
    tok.add_tokens([AddedToken(t, normalized=False) for t in ("<tool>", "</tool>")])


def byte_level(splits, merges=90, normalizer=None, ignore_merges=False):
    tok = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tok.normalizer = normalizer
    tok.pre_tokenizer = pre_tokenizers.Sequence(splits)
    tok.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + merges,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tok.train_from_iterator([TRAINING], trainer)
    add_tokens(tok)
    return tok


def isolated(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def bytes_behind(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def sentencepiece(normalizer, pre_tokenizer, merges=110):
    """BPE over characters: the trained vocabulary behind <unk>, <s>, </s> and the bytes."""
    base = Tokenizer(models.BPE())
    base.normalizer = normalizers.Replace(" ", SPACE)
    base.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always", True)
    trainer = trainers.BpeTrainer(vocab_size=60 + merges, show_progress=False)
    base.train_from_iterator([TRAINING.replace("\n", " ")], trainer)
    model = json.loads(base.to_str())["model"]
    order = sorted(model["vocab"], key=model["vocab"].get)
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + order
    tok = Tokenizer(
        models.BPE(
            vocab={t: i for i, t in enumerate(tokens)},
            merges=[tuple(m) for m in model["merges"]],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    if normalizer is not None:
        tok.normalizer = normalizer
    if pre_tokenizer is not None:
        tok.pre_tokenizer = pre_tokenizer
    tok.decoder = decoders.Sequence(
        [
            decoders.Replace(SPACE, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tok.add_special_tokens(
        [AddedToken(t, normalized=False, special=True) for t in ("<unk>", "<s>", "</s>")]
    )
    add_tokens(tok)
    return tok


def kinds():
    yield "llama3", byte_level([isolated(LLAMA3), bytes_behind(False)], ignore_merges=True)
    yield "qwen2", byte_level(
        [isolated(QWEN2), bytes_behind(False)], normalizer=normalizers.NFC()
    )
    yield "smollm", byte_level(
        [pre_tokenizers.Digits(individual_digits=True), bytes_behind(True)]
    )
    yield "o200k", byte_level([isolated(O200K), bytes_behind(False)])
    legacy = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    yield "spm_prepend", sentencepiece(legacy, None)
    yield "spm_first", sentencepiece(None, pre_tokenizers.Metaspace(SPACE, "first", False))
    yield "spm_always", sentencepiece(None, pre_tokenizers.Metaspace(SPACE, "always", False))
    yield "spm_never", sentencepiece(None, pre_tokenizers.Metaspace(SPACE, "never", False))


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizers")
    os.makedirs(folder, exist_ok=True)
    for name, tok in kinds():
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(json.loads(tok.to_str()), file, ensure_ascii=False, separators=(",", ":"))
        with open(os.path.join(folder, name + ".txt"), "w", encoding="ascii") as file:
            print(f"vocab {tok.get_vocab_size()}", file=file)
            for text in TEXTS:
                ids = tok.encode(text, add_special_tokens=False).ids
                print("text", text.encode().hex(), file=file)
                print("ids", len(ids), *ids, file=file)


main()
