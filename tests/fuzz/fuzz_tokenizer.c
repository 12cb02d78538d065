/* SPDX-License-Identifier: Apache-2.0 */
/* 'G' and a GGUF file: its vocabulary is loaded, and if it is sound, used.  'T' and a text: it is
 * encoded with a byte-level vocabulary and rendered as a chat.  Whatever is accepted must hold: ids
 * are in the vocabulary, what is decoded is UTF-8, byte-level text comes back as it was, and no
 * text spells a control token. */
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "common/utf8.h"
#include "model/template.h"
#include "model/tiny_model.h"

#define CHECK(claim)                                                                               \
    do {                                                                                           \
        if (!(claim)) {                                                                            \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static struct tokenizer_scratch *scratch;
static struct tokenizer *tiny; /* a sound vocabulary with chatml's control tokens */

static void
require_fixtures(void)
{
    struct tiny_model_config config = tiny_model_defaults();
    struct gguf *gguf = NULL;
    void *bytes;
    size_t length;

    if (tiny != NULL) {
        return;
    }
    CHECK(tokenizer_scratch_new(&scratch) == ST_OK);
    CHECK(tiny_model_make(&config, &bytes, &length) == ST_OK);
    CHECK(gguf_open_bytes("tiny", bytes, length, &gguf) == ST_OK);
    CHECK(tokenizer_new(gguf, &tiny) == ST_OK);
    gguf_close(&gguf);
    mem_free(bytes);
}

/* Decodes ids and compares with the text, if there is one to compare with. */
static void
check_decoding(const struct tokenizer *tokenizer, const uint32_t *ids, size_t count,
               const char *text, size_t length)
{
    struct detokenizer state = {0};
    char out[DETOKENIZER_OUT_MAX];
    size_t at = 0;

    for (size_t i = 0; i <= count; i++) {
        size_t written = i < count ? detokenizer_push(tokenizer, &state, ids[i], out)
                                   : detokenizer_finish(&state, out);

        CHECK(i == count || ids[i] < tokenizer_vocab_size(tokenizer));
        CHECK(written <= DETOKENIZER_OUT_MAX && utf8_check(out, written) == written);
        if (text != NULL) {
            CHECK(written <= length - at && memcmp(out, text + at, written) == 0);
            at += written;
        }
    }
    CHECK(text == NULL || at == length);
}

/* Control tokens of a chat with the text in every place; each marker of the template is one. */
static enum status
check_segment(void *arg, enum template_segment_kind kind, size_t document_index,
              const uint32_t *ids, size_t count)
{
    size_t controls = 0;

    (void)arg;
    (void)document_index;
    for (size_t i = 0; i < count; i++) {
        controls += tokenizer_is_control(tiny, ids[i]);
    }
    CHECK(controls == (kind == TEMPLATE_PREAMBLE ? 1 : kind == TEMPLATE_DOCUMENT ? 0 : 4));
    return ST_OK;
}

static void
use_text(const char *text, size_t length)
{
    const struct template_message chat[] = {{"system", text, length}, {"user", text, length}};
    const struct template_document document = {text, length, text, length};
    const uint32_t *ids;
    size_t count;
    enum status st = tokenizer_encode(tiny, scratch, text, length, false, &ids, &count);

    CHECK((st == ST_OK) == (utf8_check(text, length) == length));
    if (st != ST_OK) {
        return;
    }
    check_decoding(tiny, ids, count, text, length);
    CHECK(template_render_chat(TEMPLATE_CHATML, tiny, scratch, chat, 2, &document, 1, check_segment,
                               NULL)
          == ST_OK);
}

static void
use_file(const uint8_t *bytes, size_t length)
{
    static const char text[] =
        "a text, 12 ab\xC3\xA9 e\xCC\x81 <s><|end|>  \n and aaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    struct gguf *gguf = NULL;
    struct tokenizer *tokenizer = NULL;

    if (gguf_open_bytes("fuzz", bytes, length, &gguf) == ST_OK
        && tokenizer_new(gguf, &tokenizer) == ST_OK) {
        const uint32_t *ids;
        size_t count;

        if (tokenizer_encode(tokenizer, scratch, text, sizeof(text) - 1, true, &ids, &count)
            == ST_OK) {
            check_decoding(tokenizer, ids, count, NULL, 0);
        }
    }
    tokenizer_destroy(&tokenizer);
    gguf_close(&gguf);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    require_fixtures();
    if (length > 0 && bytes[0] == 'G') {
        /* A copy of its own: gguf looks at alignment, and the sanitizer at the end. */
        uint8_t *copy = mem_dup(bytes + 1, length - 1);

        CHECK(copy != NULL);
        use_file(copy, length - 1);
        mem_free(copy);
    } else if (length > 0 && bytes[0] == 'T') {
        use_text((const char *)bytes + 1, length - 1);
    }
    return 0;
}
