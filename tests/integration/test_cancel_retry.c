/* SPDX-License-Identifier: Apache-2.0 */
/* Cancel and ask again, at random: after any number of tokens, or before the first, with the same
 * documents still being read, built or just let go of, several at once, in a pool so small that
 * documents go and answers are preempted.  Every answer that is let run to its end is the one that
 * the question had alone, and nothing is left behind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/htab.h"
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define QUESTIONS 9
#define DOCS      3
#define LANES     3 /* questions under way at once */
#define ANSWER    40
#define ROUNDS    SCENE(80, 40, 5) /* a cancel and a retry each; CANCEL_ROUNDS overrides */
#define KV_MEMORY "3MiB"           /* 24 blocks; a question needs up to 17 */

static struct asking_doc docs[QUESTIONS][DOCS];
static struct answer alone[QUESTIONS];
static struct answer got[LANES];
static uint64_t state;

static uint32_t
below(uint32_t n)
{
    state = htab_mix(state + 1);
    return (uint32_t)(state % n);
}

static struct question
make_question(uint32_t index)
{
    return (struct question){
        .docs = docs[index], .doc_count = DOCS, .query_seed = index, .max_tokens = ANSWER};
}

/* Questions share documents, so that one's cancel meets another's build. */
static void
make_documents(void)
{
    for (uint32_t q = 0; q < QUESTIONS; q++) {
        for (uint32_t d = 0; d < DOCS; d++) {
            uint32_t seed = 1 + (q + d * d) % QUESTIONS;

            docs[q][d] = (struct asking_doc){.n_tokens = 20 + 13 * seed, .seed = seed};
        }
    }
}

static uint32_t
rounds(void)
{
    const char *text = getenv("CANCEL_ROUNDS");

    return text == NULL ? ROUNDS : (uint32_t)strtoul(text, NULL, 10);
}

/* One lane: asks, lets it run for so many tokens, cancels, and asks the same at once. */
struct lane {
    struct asking *first, *retry;
    uint32_t question;
};

static void
begin(struct host *host, struct lane *lane)
{
    struct question question;

    lane->question = below(QUESTIONS);
    question = make_question(lane->question);
    lane->first = asking_start(host, &question);
    if (below(3) != 0) {
        asking_wait_tokens(lane->first, below(ANSWER));
    }
    asking_cancel(lane->first);
    lane->retry = asking_start(host, &question);
}

static void
end(struct lane *lane, struct answer *answer)
{
    asking_end(&lane->first, answer); /* cancelled, or it was faster */
    ck_assert(answer->code == KVASIR_CANCELLED || answer->code == KVASIR_OK);
    ck_assert_mem_eq(answer->ids, alone[lane->question].ids,
                     answer->id_count * sizeof(answer->ids[0]));
    asking_end(&lane->retry, answer);
    ck_assert_msg(answer->code == KVASIR_OK, "question %u again: %s", lane->question,
                  answer->message);
    answer_assert_same(answer, &alone[lane->question]);
}

START_TEST(an_answer_asked_for_again_is_the_answer_whatever_was_cancelled_before)
{
    const char *const args[] = {"--check-pool", "--reserve-tokens", "8",  "--scrub-interval",
                                "50ms",         "--verify-reuse",   "20", NULL};
    struct tiny_model_config model = host_slow_model(); /* a cancel comes in the middle */
    struct lane lanes[LANES] = {0};

    struct host *host = host_start(&(struct host_options){
        .workers = 2, .kv_memory = KV_MEMORY, .model = &model, .daemon_args = args});

    state = test_seed();
    make_documents();
    for (uint32_t q = 0; q < QUESTIONS; q++) {
        struct question question = make_question(q);

        ask_ok(host, &question, &alone[q]);
    }
    for (uint32_t round = 0; round < rounds(); round++) {
        struct lane *lane = &lanes[round % LANES];

        if (lane->retry != NULL) {
            end(lane, &got[round % LANES]);
        }
        begin(host, lane);
    }
    for (uint32_t i = 0; i < LANES; i++) {
        if (lanes[i].retry != NULL) {
            end(&lanes[i], &got[i]);
        }
    }
    host_wait_exactly(host, "blocks_own", 0);
    host_wait_exactly(host, "requests_running", 0);
    printf("%u rounds: %llu cancelled, %llu preempted, %llu evicted, %llu builds dropped, "
           "%llu handed over\n",
           rounds(), (unsigned long long)host_counter(host, "requests_cancelled"),
           (unsigned long long)host_counter(host, "requests_preempted"),
           (unsigned long long)host_counter(host, "docs_evicted"),
           (unsigned long long)host_counter(host, "builds_dropped"),
           (unsigned long long)host_counter(host, "builds_handed_over"));
    ck_assert_uint_gt(host_counter(host, "requests_cancelled"), 0);
    ck_assert_uint_eq(host_counter(host, "docs_damaged"), 0);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("cancel_retry", an_answer_asked_for_again_is_the_answer_whatever_was_cancelled_before)
