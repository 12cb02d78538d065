/* SPDX-License-Identifier: Apache-2.0 */
/* Tries an input as the payload of every method that carries a prompt: what is accepted must keep
 * the limits that the scheduler counts on. */
#include <stdlib.h>

#include "daemon/read_prompt.h"
#include "daemon/sched.h"
#include "tests/fuzz/fuzz.h"

#define VOCABULARY 300
#define MEMO_BYTES (64u << 10)

static void
require(int is_true)
{
    if (!is_true) {
        abort();
    }
}

static void
check(enum method_id method, const struct reading *reading)
{
    const struct prompt *prompt = &reading->prompt;

    require(prompt->document_count <= SCHED_DOCUMENTS_MAX);
    require(reading->priority <= PROMPT_PRIORITY_MAX);
    for (size_t i = 0; i < prompt->document_count; i++) {
        require(prompt->documents[i].tokens != NULL);
    }
    if (method == METHOD_GENERATE) {
        require(prompt->query != NULL && tokens_count(prompt->query) > 0);
        require(prompt->sampling.max_tokens >= 1);
        require(prompt->sampling.stop_count <= SAMPLING_STOPS_MAX);
        require(prompt->sampling.top_p > 0 && prompt->sampling.repetition_penalty > 0);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static const enum method_id methods[] = {METHOD_GENERATE, METHOD_TOKENIZE, METHOD_PROBE,
                                             METHOD_REGISTER};
    struct reader reader = {.vocab_size = VOCABULARY, .template_kind = TEMPLATE_PLAIN};
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_scratch *scratch = NULL;
    struct wire_arena *arena = NULL;

    require(tokenizer_new_bytes(VOCABULARY, &tokenizer) == ST_OK);
    require(tokenizer_scratch_new(&scratch) == ST_OK);
    require(wire_arena_new(&arena) == ST_OK);
    require(memo_new(MEMO_BYTES, &reader.memo) == ST_OK);
    require(memo_new(MEMO_BYTES, &reader.registered) == ST_OK);
    reader.tokenizer = tokenizer;
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        struct reading reading = {0};

        if (read_prompt(&reader, arena, scratch,
                        &(struct client_message){methods[i], "", bytes, length, NULL}, &reading)
            == ST_OK) {
            check(methods[i], &reading);
            prompt_deinit(&reading.prompt);
        }
    }
    memo_destroy(&reader.registered);
    memo_destroy(&reader.memo);
    wire_arena_destroy(&arena);
    tokenizer_scratch_destroy(&scratch);
    tokenizer_destroy(&tokenizer);
    return 0;
}
