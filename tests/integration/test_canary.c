/* SPDX-License-Identifier: Apache-2.0 */
/* Two tenants whose documents are alike in everything but their contents, in a pool that is too
 * small for both: whatever is evicted, built again and read at once, each one's answers are those
 * over its own documents, and neither finds what the other has. */
#include <string.h>

#include "common/htab.h"
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define TENANTS   2
#define QUESTIONS 10
#define AT_ONCE   6
#define ROUNDS    SCENE(40, 15, 5)

static const char *const salts[TENANTS] = {"tenant one", "tenant two"};
static struct asking_doc docs[TENANTS][QUESTIONS + 2];
static struct question questions[TENANTS][QUESTIONS];
static struct answer alone[TENANTS][QUESTIONS], answer;
static uint64_t random_state;

static uint32_t
below(uint32_t limit)
{
    random_state++;
    return (uint32_t)(htab_mix(random_state) % limit);
}

/* Same lengths, same queries; the documents are the canaries. */
static void
make_questions(void)
{
    for (uint32_t t = 0; t < TENANTS; t++) {
        for (uint32_t i = 0; i < QUESTIONS + 2; i++) {
            docs[t][i] = (struct asking_doc){.n_tokens = 40 + 30 * i, .seed = 1000 * (t + 1) + i};
        }
        for (uint32_t i = 0; i < QUESTIONS; i++) {
            questions[t][i] = (struct question){.docs = docs[t] + i,
                                                .doc_count = 1 + i % 3,
                                                .query_seed = i,
                                                .max_tokens = 24,
                                                .salt = salts[t],
                                                .reuse = (enum kvasir_reuse)(i % 5)};
        }
    }
}

/* If a canary came over, the answer would be another one. */
static void
answer_alone(struct host *host)
{
    for (uint32_t i = 0; i < QUESTIONS; i++) {
        for (uint32_t t = 0; t < TENANTS; t++) {
            (void)host_evict(host, 1000);
            ask_ok(host, &questions[t][i], &alone[t][i]);
        }
        ck_assert_uint_eq(alone[0][i].id_count, alone[1][i].id_count);
        ck_assert_mem_ne(alone[0][i].ids, alone[1][i].ids,
                         alone[0][i].id_count * sizeof(alone[0][i].ids[0]));
    }
}

static struct host *
start_host(void)
{
    static const char *const args[] = {"--check-pool", NULL};

    return host_start(
        &(struct host_options){.workers = 2, .kv_memory = "4MiB", .daemon_args = args});
}

START_TEST(no_canary_crosses_under_eviction)
{
    struct host *host = start_host();
    struct asking *askings[AT_ONCE];
    uint32_t tenant[AT_ONCE], which[AT_ONCE];

    random_state = htab_mix(test_seed());
    make_questions();
    answer_alone(host);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < AT_ONCE; i++) {
            tenant[i] = below(TENANTS);
            which[i] = below(QUESTIONS);
            askings[i] = asking_start(host, &questions[tenant[i]][which[i]]);
        }
        (void)host_evict(host, below(40));
        for (int i = 0; i < AT_ONCE; i++) {
            asking_end(&askings[i], &answer);
            ck_assert_msg(answer.code == KVASIR_OK, "%s", answer.message);
            answer_assert_same(&alone[tenant[i]][which[i]], &answer);
        }
    }
    ck_assert_uint_gt(host_counter(host, "blocks_evicted"), 100);
    ck_assert_uint_gt(host_counter(host, "doc_hits"), 0);
    host_wait_exactly(host, "blocks_own", 0);
    host_stop(&host);
}
END_TEST

/* Word for word the same document: it is there for one tenant and not for the other. */
START_TEST(the_same_document_is_no_hit_for_another_tenant)
{
    struct host *host = start_host();
    struct question question;

    make_questions();
    for (uint32_t t = 0; t < TENANTS; t++) {
        question = questions[0][0];
        question.reuse = KVASIR_REUSE_LAZY;
        question.salt = salts[t];
        ask_ok(host, &question, &answer);
        ck_assert_uint_eq(answer.docs_hit, 0);
        ask_ok(host, &question, &answer);
        ck_assert_uint_eq(answer.docs_hit, 1);
    }
    host_stop(&host);
}
END_TEST

CHECK_MAIN("canary", no_canary_crosses_under_eviction,
           the_same_document_is_no_hit_for_another_tenant)
