/* SPDX-License-Identifier: Apache-2.0 */
/* tokenizer_hf - the tokenizer of a Hugging Face directory, from its parsed files.
 *
 * BPE over bytes, and BPE over characters with bytes for what has no token (SentencePiece's kind).
 * Unigram, WordPiece and every normaliser, splitter or option that is not known is refused by
 * name.  `post_processor` says only whether a BOS goes in front. */
#ifndef MODEL_TOKENIZER_HF_H
#define MODEL_TOKENIZER_HF_H

#include "common/status.h"
#include "model/json.h"
#include "model/tokenizer.h"

struct tokenizer_hf {
    struct json_view tokenizer; /* tokenizer.json */
    struct json_view config;    /* tokenizer_config.json; object NULL if there is none */
    struct json_view
        generation; /* what names eos_token_id: generation_config.json or config.json */
    struct gguf_string chat_template; /* chat_template.jinja; bytes NULL if there is none */
    uint32_t vocab_size;              /* rows of the embedding; ids beyond the tokens are unused */
};

/* ST_INVALID names file, key and reason; ST_NO_MEMORY.  Borrows nothing. */
enum status tokenizer_new_hf(const struct tokenizer_hf *files, struct tokenizer **tokenizer_out);

#endif
