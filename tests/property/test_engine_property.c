/* SPDX-License-Identifier: Apache-2.0 */
/* Random lives of an engine: requests over shared documents come, wait for blocks, are preempted,
 * come back, are stopped for good; steps have random budgets.  Whatever happens, the text of every
 * request that ends is the text it has when it is alone, and every release is said once.
 * TEST_SEED replays a run. */
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "tests/support/abc_request.h"
#include "tests/support/check_main.h"
#include "tests/support/engine_rig.h"

#define ROUNDS       12
#define REQUESTS     10 /* of a round; ids 1.. */
#define DOCS         5
#define OPERATIONS   400
#define ANSWER_MAX   20
#define DOC_REFS_MAX 4

struct kind { /* what a request asks, fixed for a round */
    uint32_t docs[DOC_REFS_MAX];
    uint32_t n_docs;
    size_t n_query;
    uint32_t max_tokens;
    float temperature;
    char stop[3];
};

enum life {
    UNBORN,
    RUNNING,
    STOPPING,
    PREEMPTED,
    OVER
};

struct player {
    struct rig *rig;
    uint64_t state; /* of the random numbers */
    struct kind kinds[REQUESTS];
    struct rig_heard alone[REQUESTS];
    enum life lives[REQUESTS];
    uint32_t stops_said[REQUESTS]; /* releases that Stops have asked for */
    struct rig_doc docs[DOCS];
    uint64_t builds[DOCS]; /* the build of each document, once one was sent */
    uint64_t next_build;
    bool is_given_up[REQUESTS]; /* stopped for good */
};

static uint32_t
pick(struct player *p, uint32_t below)
{
    p->state = p->state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(p->state >> 33) % below;
}

static void
make_kinds(struct player *p)
{
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct kind *kind = &p->kinds[i];

        kind->n_docs = pick(p, DOC_REFS_MAX + 1);
        for (uint32_t d = 0; d < kind->n_docs; d++) {
            kind->docs[d] = pick(p, DOCS);
        }
        kind->n_query = 1 + pick(p, 11);
        kind->max_tokens = 1 + pick(p, ANSWER_MAX);
        kind->temperature = pick(p, 2) == 0 ? 0.0f : 1.2f;
        (void)snprintf(kind->stop, sizeof(kind->stop), "%c%c", 'a' + (char)pick(p, 26),
                       'a' + (char)pick(p, 26));
    }
}

/* Documents without their state; their blocks last as long as the engine. */
static void
make_docs(struct player *p)
{
    const uint32_t *ids[DOCS] = {doc_a, doc_b, doc_c, doc_d, doc_e};
    const uint32_t lengths[DOCS] = {37, 16, 61, 1, 48};

    for (uint32_t d = 0; d < DOCS; d++) {
        mem_free(p->docs[d].blocks);
        p->docs[d] =
            (struct rig_doc){ids[d], lengths[d], rig_blocks(p->rig, lengths[d]), 0, false, 0, {0}};
        p->builds[d] = 0;
    }
    p->next_build = 0;
}

/* Assigns request i, new or continued; documents that nobody has sent yet are built by it. */
static void
assign(struct player *p, uint32_t i, uint32_t own_blocks)
{
    const struct kind *kind = &p->kinds[i];
    const struct rig_heard *heard = &p->rig->heard[i + 1];
    struct rig_doc docs[DOC_REFS_MAX];
    char stop[3];

    for (uint32_t d = 0; d < kind->n_docs; d++) {
        uint32_t doc = kind->docs[d];
        bool is_new = p->builds[doc] == 0;

        if (is_new) {
            p->builds[doc] = ++p->next_build;
        }
        docs[d] = p->docs[doc];
        docs[d].build = p->builds[doc];
        docs[d].is_joined = !is_new;
    }
    memcpy(stop, kind->stop, sizeof(stop));
    struct rig_request request = {.id = i + 1,
                                  .docs = docs,
                                  .n_docs = kind->n_docs,
                                  .query = query,
                                  .n_query = kind->n_query,
                                  .sent = heard->ids,
                                  .n_sent = heard->n_ids,
                                  .sent_text_bytes = (uint32_t)heard->n_text,
                                  .max_tokens = kind->max_tokens,
                                  .own_blocks = own_blocks,
                                  .temperature = kind->temperature,
                                  .repetition_penalty = 1.05f,
                                  .seed = i,
                                  .stops = {stop},
                                  .n_stops = 1,
                                  .order = 1 + (i * 7) % REQUESTS};

    rig_assign(p->rig, &request);
    p->lives[i] = RUNNING;
}

static void
learn_answers(struct player *p)
{
    struct rig_config config = rig_defaults();

    for (uint32_t i = 0; i < REQUESTS; i++) {
        rig_restart(p->rig, &config);
        make_docs(p);
        assign(p, i, 0);
        rig_run(p->rig);
        p->alone[i] = p->rig->heard[i + 1];
        ck_assert_int_ge(p->alone[i].finish, 1);
    }
}

/* What the last step has changed. */
static void
observe(struct player *p)
{
    for (uint32_t i = 0; i < REQUESTS; i++) {
        const struct rig_heard *heard = &p->rig->heard[i + 1];

        ck_assert_str_eq(heard->error, "");
        if (heard->finish >= 0) {
            p->lives[i] = OVER;
        } else if (p->lives[i] == STOPPING && heard->n_released == p->stops_said[i]) {
            p->lives[i] = p->is_given_up[i] ? OVER : PREEMPTED;
        }
    }
}

static void
play_one(struct player *p)
{
    uint32_t i = pick(p, REQUESTS);
    uint32_t what = pick(p, 20);

    if (what < 12) {
        (void)rig_step(p->rig);
        observe(p);
    } else if (p->lives[i] == UNBORN || p->lives[i] == PREEMPTED) {
        assign(p, i, 1 + pick(p, 2));
    } else if (p->lives[i] == RUNNING && what < 17) {
        rig_grant(p->rig, i + 1, 1);
    } else if (p->lives[i] == RUNNING) {
        rig_stop(p->rig, i + 1);
        p->stops_said[i]++;
        p->is_given_up[i] = pick(p, 8) == 0;
        p->lives[i] = STOPPING;
    }
}

static bool
are_all_over(const struct player *p)
{
    for (uint32_t i = 0; i < REQUESTS; i++) {
        if (p->lives[i] != OVER) {
            return false;
        }
    }
    return true;
}

/* Lets everything that is open come to its end. */
static void
play_out(struct player *p)
{
    for (int turn = 0; !are_all_over(p); turn++) {
        ck_assert_int_lt(turn, 1000);
        for (uint32_t i = 0; i < REQUESTS; i++) {
            if (p->lives[i] == UNBORN || p->lives[i] == PREEMPTED) {
                assign(p, i, 1);
            } else if (p->lives[i] == RUNNING) {
                rig_grant(p->rig, i + 1, 1);
            }
        }
        while (rig_step(p->rig)) {
            observe(p);
        }
    }
}

static void
check_round(const struct player *p)
{
    ck_assert_uint_eq(engine_open(p->rig->engine), 0);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        const struct rig_heard *heard = &p->rig->heard[i + 1], *alone = &p->alone[i];

        ck_assert_uint_eq(heard->n_released, p->stops_said[i] + (heard->finish >= 0 ? 1 : 0));
        ck_assert_uint_le(heard->n_text, alone->n_text);
        ck_assert_mem_eq(heard->text, alone->text, heard->n_text);
        if (!p->is_given_up[i]) {
            check_same_answer(alone, heard);
        }
    }
    for (uint64_t b = 1; b <= p->next_build; b++) {
        ck_assert_uint_eq(p->rig->builds[b].n_sealed, 1);
    }
}

START_TEST(texts_survive_any_order_of_events)
{
    struct rig_config config = rig_defaults();
    static struct player player;

    player = (struct player){.state = test_seed()};
    fill_all();
    player.rig = rig_new(&config);
    config.block_count = 4096;
    config.seqs_max = REQUESTS;
    for (int round = 0; round < ROUNDS; round++) {
        make_kinds(&player);
        learn_answers(&player);
        config.step_tokens = REQUESTS + pick(&player, 80);
        config.decodes_max = pick(&player, 5);
        rig_restart(player.rig, &config);
        make_docs(&player);
        memset(player.lives, 0, sizeof(player.lives));
        memset(player.stops_said, 0, sizeof(player.stops_said));
        memset(player.is_given_up, 0, sizeof(player.is_given_up));
        for (int i = 0; i < OPERATIONS; i++) {
            play_one(&player);
        }
        play_out(&player);
        check_round(&player);
    }
    for (uint32_t d = 0; d < DOCS; d++) {
        mem_free(player.docs[d].blocks);
    }
    rig_destroy(&player.rig);
}
END_TEST

CHECK_MAIN("engine_property", texts_survive_any_order_of_events)
