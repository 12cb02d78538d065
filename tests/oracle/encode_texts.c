/* SPDX-License-Identifier: Apache-2.0 */
/* encode_texts text|chat VOCABULARY.gguf - ids of texts, for compare_tokenizers.py.
 *
 * Reads texts from stdin, each a 32-bit length and its bytes; writes for each a 32-bit count and
 * its ids. `text`: ids of the text; they must decode to the text again unless that is refused by
 * its vocabulary, in which case the difference is counted on stderr.  `chat`: the text is role NUL
 * content NUL role NUL ..., and the ids are those of all segments. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/template.h"

#define TEXT_BYTES_MAX (4u << 20)
#define MESSAGES_MAX   64

struct program {
    struct tokenizer *tokenizer;
    struct tokenizer_scratch *scratch;
    uint32_t *ids; /* of all segments of a chat */
    size_t count;
    size_t texts, changed;
};

static void
die(const char *what)
{
    fprintf(stderr, "encode_texts: %s: %s\n", what, status_detail());
    exit(1);
}

static void
write_ids(const uint32_t *ids, size_t count)
{
    uint32_t n = (uint32_t)count;

    if (fwrite(&n, sizeof(n), 1, stdout) != 1 || fwrite(ids, sizeof(ids[0]), n, stdout) != n) {
        die("cannot write");
    }
}

/* True if the ids decode to the text. */
static bool
gives_back(const struct program *program, const uint32_t *ids, size_t count, const char *text,
           size_t length)
{
    struct detokenizer state = {0};
    char out[DETOKENIZER_OUT_MAX];
    size_t at = 0;

    for (size_t i = 0; i < count; i++) {
        size_t written = detokenizer_push(program->tokenizer, &state, ids[i], out);

        if (written > length - at || memcmp(out, text + at, written) != 0) {
            return false;
        }
        at += written;
    }
    return at == length && state.n_held == 0;
}

static void
encode_text(struct program *program, const char *text, size_t length)
{
    const uint32_t *ids;
    size_t count;

    if (tokenizer_encode(program->tokenizer, program->scratch, text, length, false, &ids, &count)
        != ST_OK) {
        die("encode");
    }
    write_ids(ids, count);
    program->changed += !gives_back(program, ids, count, text, length);
}

static enum status
keep_segment(void *arg, enum template_segment_kind kind, size_t document_index, const uint32_t *ids,
             size_t count)
{
    struct program *program = arg;

    (void)kind;
    (void)document_index;
    if (count > TEXT_BYTES_MAX - program->count) {
        return ERR(ST_INVALID, "too many ids");
    }
    memcpy(program->ids + program->count, ids, count * sizeof(ids[0]));
    program->count += count;
    return ST_OK;
}

static void
encode_chat(struct program *program, const char *text, size_t length)
{
    struct template_message messages[MESSAGES_MAX];
    size_t count = 0;
    size_t jinja_length;
    const char *jinja = tokenizer_chat_template(program->tokenizer, &jinja_length);

    for (size_t at = 0; at < length && count < MESSAGES_MAX; count++) {
        messages[count].role = text + at;
        at += strlen(text + at) + 1;
        messages[count].content = text + at;
        messages[count].content_length = strlen(text + at);
        at += messages[count].content_length + 1;
    }
    program->count = 0;
    if (template_render_chat(template_detect(jinja, jinja_length), program->tokenizer,
                             program->scratch, messages, count, NULL, 0, keep_segment, program)
        != ST_OK) {
        die("chat");
    }
    write_ids(program->ids, program->count);
}

int
main(int argc, char **argv)
{
    struct program program = {0};
    struct gguf *gguf = NULL;
    char *text;
    uint32_t length;

    if (argc != 3) {
        fprintf(stderr, "usage: encode_texts text|chat VOCABULARY.gguf\n");
        return 2;
    }
    text = malloc(TEXT_BYTES_MAX + 1);
    program.ids = malloc(TEXT_BYTES_MAX * sizeof(program.ids[0]));
    if (text == NULL || program.ids == NULL || gguf_open(argv[2], &gguf) != ST_OK
        || tokenizer_new(gguf, &program.tokenizer) != ST_OK
        || tokenizer_scratch_new(&program.scratch) != ST_OK) {
        die(argv[2]);
    }
    while (fread(&length, sizeof(length), 1, stdin) == 1) {
        if (length > TEXT_BYTES_MAX || fread(text, 1, length, stdin) != length) {
            die("cannot read");
        }
        text[length] = '\0'; /* ends the last content of a chat */
        (strcmp(argv[1], "chat") == 0 ? encode_chat : encode_text)(&program, text, length);
        program.texts++;
    }
    fprintf(stderr, "%zu texts, %zu decode to something else\n", program.texts, program.changed);
    tokenizer_scratch_destroy(&program.scratch);
    tokenizer_destroy(&program.tokenizer);
    gguf_close(&gguf);
    free(program.ids);
    free(text);
    return 0;
}
