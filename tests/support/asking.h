/* SPDX-License-Identifier: Apache-2.0 */
/* asking - calls of libkvasir in tests: questions made of token ids from seeds, answers as plain
 * data.
 *
 * A document is (length, seed): the same pair is the same document.  Answers are greedy and ignore
 * the end token, so their length is known. */
#ifndef TESTS_SUPPORT_ASKING_H
#define TESTS_SUPPORT_ASKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/kvasir.h"
#include "tests/support/host.h"

#define ASKING_DOCS_MAX   64
#define ASKING_TOKENS_MAX 4096

struct asking_doc {
    uint32_t n_tokens;
    uint32_t seed;
};

struct question {
    const struct asking_doc *docs;
    size_t doc_count;
    uint32_t query_tokens; /* 0: 8 */
    uint32_t query_seed;
    uint32_t max_tokens; /* 0: 16 */
    const char *salt;    /* NULL: none */
    uint32_t priority;   /* 0: the default */
    uint32_t timeout_ms; /* 0: none */
    enum kvasir_reuse reuse;
    const uint32_t *query_ids; /* [query_tokens], in place of those of the seed */
    bool keep_turn;
    uint32_t retry_ms; /* 0: the default */
};

struct answer {
    enum kvasir_code code;
    char message[512];
    uint32_t ids[ASKING_TOKENS_MAX];
    size_t id_count;
    size_t text_length;
    char text[8 * ASKING_TOKENS_MAX];
    enum kvasir_finish finish;
    uint32_t prompt_tokens, tokens_reused, tokens_built, tokens_copied, preemptions, worker;
    enum kvasir_reuse reuse;
    uint32_t turn_tokens_reused;
    uint64_t ttft_us;
    size_t docs_hit; /* documents with miss_reason "hit" */
};

/* Asks and waits for the end, whatever it is. */
void ask(struct host *host, const struct question *question, struct answer *answer_out);

/* Asks and fails the test unless the answer is OK and as long as was asked for. */
void ask_ok(struct host *host, const struct question *question, struct answer *answer_out);

/* The first token id of a document. */
uint32_t asking_first_id(struct asking_doc doc);

/* Fails the test unless both answers have the same tokens and the same text. */
void answer_assert_same(const struct answer *a, const struct answer *b);

/* A call in a thread of its own. */
struct asking;

/* The same for so many more than there are now. */
void asking_wait_more(struct asking *asking, size_t count);

struct asking *asking_start(struct host *host, const struct question *question);
void asking_wait_tokens(struct asking *asking, size_t count); /* so many came, or the call ended */
void asking_cancel(struct asking *asking);
/* Waits for the end and frees. */
void asking_end(struct asking **asking, struct answer *answer_out);

#endif
