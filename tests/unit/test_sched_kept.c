/* SPDX-License-Identifier: Apache-2.0 */
/* Two schedulers, one after the other, on one catalog: what the worker has kept of the first one's
 * request goes on in the second, or is let go of; no block is lost either way. */
#include <string.h>
#include <sys/mman.h>

#include "common/mem.h"
#include "kvpool/catalog.h"
#include "tests/support/check_main.h"

#include "daemon/sched.h"

#define BLOCKS      32
#define P           4
#define DOC_TOKENS  10
#define QUERY       5
#define MAX_TOKENS  12
#define INCARNATION 7
#define WAIT_US     30000000u
#define LONG_US     (1000 * WAIT_US)

struct scene {
    struct sched *sched;
    struct catalog *catalog;
    void *memory;
    uint64_t now_us;
    /* What the worker has. */
    struct dockey doc;
    uint64_t generation;
    uint32_t doc_blocks[BLOCKS], own_blocks[BLOCKS];
    struct sched_kept_segment segment;
    struct sched_kept kept;
};

static const struct catalog_pool catalog_of = {.block_count = BLOCKS, .block_tokens = P};

static bool
may_write(void *arg, uint64_t incarnation)
{
    (void)arg;
    return incarnation == INCARNATION;
}

static struct sched *
new_sched(struct catalog *catalog)
{
    struct sched_config config = {.block_tokens = P,
                                  .reserve_tokens = 8,
                                  .waiting_max = 8,
                                  .policy = &evict_lru,
                                  .pin_share_max = 0.5,
                                  .quadratic_tokens = 1000,
                                  .check_pool = true};
    struct sched *sched;

    ck_assert_int_eq(sched_new(&config, &sched), ST_OK);
    sched_use_catalog(sched, catalog);
    return sched;
}

static struct tokens *
make_tokens(uint32_t count, uint32_t first)
{
    uint32_t ids[64];
    struct tokens *tokens;

    for (uint32_t i = 0; i < count; i++) {
        ids[i] = first + i;
    }
    ck_assert_int_eq(tokens_new(ids, count, &tokens), ST_OK);
    return tokens;
}

static void
submit(struct scene *s, uint64_t id, uint32_t query, const uint32_t *sent, uint32_t sent_count)
{
    struct sched_submit submit = {
        .id = id,
        .arrival_us = s->now_us,
        .deadline_us = s->now_us + LONG_US,
        .has_name = true,
        .is_retry = sent_count > 0,
        .name = "a call",
        .prompt = {.documents = mem_zalloc(1, sizeof(struct prompt_document)),
                   .document_count = 1,
                   .query = make_tokens(query, 50),
                   .sampling = {.max_tokens = MAX_TOKENS, .has_max_tokens = true},
                   .resume_count = sent_count,
                   .resume_ids = mem_dup(sent, sent_count * sizeof(sent[0])),
                   .resume_text_bytes = sent_count},
    };

    submit.prompt.documents[0] = (struct prompt_document){
        .key = s->doc, .kv_key = s->doc, .tokens = make_tokens(DOC_TOKENS, 20)};
    sched_submit(s->sched, ++s->now_us, &submit);
}

/* The only action, which is of this kind. */
static const struct sched_action *
only(struct scene *s, enum sched_action_kind kind)
{
    size_t count;
    const struct sched_action *actions = sched_take_actions(s->sched, &count);

    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(actions[0].kind, kind);
    return &actions[0];
}

static void
expect_silence(struct scene *s)
{
    size_t count;

    (void)sched_take_actions(s->sched, &count);
    ck_assert_uint_eq(count, 0);
}

static struct kvpool_stats
stats(const struct scene *s)
{
    struct kvpool_stats now;

    kvpool_stats(sched_pool(s->sched), &now);
    return now;
}

/* The first kvasird's time: a request whose document is sealed and that has said a token. */
static void
begin(struct scene *s)
{
    static const uint32_t token = 90;
    const struct sched_action *assign;

    submit(s, 1, QUERY, NULL, 0);
    assign = only(s, SCHED_SEND_ASSIGN);
    s->generation = assign->session->builds[0].build;
    memcpy(s->doc_blocks, assign->session->segments[0].blocks,
           assign->session->segments[0].block_count * sizeof(uint32_t));
    memcpy(s->own_blocks, assign->blocks, assign->block_count * sizeof(uint32_t));
    s->segment =
        (struct sched_kept_segment){.key = s->doc,
                                    .generation = s->generation,
                                    .n_tokens = DOC_TOKENS,
                                    .blocks = s->doc_blocks,
                                    .block_count = assign->session->segments[0].block_count};
    s->kept = (struct sched_kept){.kept = 3,
                                  .name = "a call",
                                  .query_tokens = QUERY,
                                  .answer_tokens = 4,
                                  .blocks = s->own_blocks,
                                  .block_count = assign->block_count,
                                  .segments = &s->segment,
                                  .segment_count = 1};
    (void)sched_worker_step(
        s->sched, ++s->now_us, 0, INCARNATION,
        &(struct sched_step){.step = 1,
                             .sealed = &s->generation,
                             .sealed_count = 1,
                             .results = &(struct sched_result){.request = 1,
                                                               .ids = &token,
                                                               .id_count = 1,
                                                               .text_bytes = 1,
                                                               .own_tokens = QUERY},
                             .result_count = 1});
    (void)only(s, SCHED_REPLY_CHUNK);
}

/* That kvasird dies, and the next one takes over. */
static struct kvpool_adopted
follow(struct scene *s)
{
    struct kvpool_adopted adopted;

    sched_leave_pool(s->sched); /* as a death would */
    sched_destroy(&s->sched);
    s->sched = new_sched(s->catalog);
    ck_assert_int_eq(sched_adopt_pool(s->sched, BLOCKS, may_write, NULL, &adopted), ST_OK);
    return adopted;
}

static struct scene
scene_new(void)
{
    struct scene s = {.now_us = 1, .doc = {.bytes = "a document"}};
    struct kvpool_adopted adopted;

    s.memory = mmap(NULL, catalog_bytes(&catalog_of), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(s.memory, MAP_FAILED);
    ck_assert_int_eq(catalog_format(s.memory, &catalog_of, &s.catalog), ST_OK);
    s.sched = new_sched(s.catalog);
    ck_assert_int_eq(sched_set_pool(s.sched, BLOCKS), ST_OK);
    sched_worker_ready(s.sched, ++s.now_us, 0, INCARNATION, 4);
    begin(&s);
    adopted = follow(&s);
    ck_assert_uint_eq(adopted.documents, 1);
    ck_assert_uint_eq(adopted.blocks_fenced, s.kept.block_count);
    sched_expect(s.sched, 1, s.now_us + WAIT_US / 10);
    return s;
}

/* `segment` moves with the scene. */
static bool
come_back(struct scene *s)
{
    s->kept.segments = &s->segment;
    s->kept.blocks = s->own_blocks;
    s->segment.blocks = s->doc_blocks;
    sched_expect(s->sched, 0, 0);
    return sched_worker_back(s->sched, ++s->now_us,
                             &(struct sched_back){.worker = 0,
                                                  .incarnation = INCARNATION,
                                                  .seqs_max = 4,
                                                  .kept = &s->kept,
                                                  .kept_count = 1,
                                                  .wait_us = WAIT_US});
}

static void
release_kept(struct scene *s)
{
    (void)sched_worker_step(
        s->sched, ++s->now_us, 0, INCARNATION,
        &(struct sched_step){.kept_released = &s->kept.kept, .kept_released_count = 1});
}

static void
scene_end(struct scene *s)
{
    struct kvpool_stats now = stats(s);

    ck_assert_uint_eq(now.blocks_own, 0);
    ck_assert_uint_eq(now.blocks_quarantined, 0);
    kvpool_check(sched_pool(s->sched));
    sched_destroy(&s->sched);
    catalog_close(&s->catalog);
    ck_assert_int_eq(munmap(s->memory, catalog_bytes(&catalog_of)), 0);
}

/* It goes on at its worker, in its blocks, and ends. */
static void
check_goes_on(struct scene *s, const struct sched_action *assign)
{
    static const uint32_t rest[MAX_TOKENS - 1] = {91, 92};
    static const uint64_t id = 2;

    ck_assert_uint_eq(assign->kept, 3);
    ck_assert_uint_eq(assign->build_count, 0);
    ck_assert_uint_eq(assign->block_count, s->kept.block_count);
    ck_assert_mem_eq(assign->blocks, s->own_blocks, assign->block_count * sizeof(uint32_t));
    ck_assert_mem_eq(assign->session->segments[0].blocks, s->doc_blocks, sizeof(uint32_t));
    ck_assert_uint_eq(sched_counters(s->sched)->tokens_regained, 3);
    (void)sched_worker_step(
        s->sched, ++s->now_us, 0, INCARNATION,
        &(struct sched_step){.results = &(struct sched_result){.request = 2,
                                                               .ids = rest,
                                                               .id_count = MAX_TOKENS - 1,
                                                               .finish = SCHED_FINISH_LENGTH},
                             .result_count = 1,
                             .released = &id,
                             .released_count = 1});
    ck_assert_int_eq(only(s, SCHED_REPLY_END)->end, SCHED_END_OK);
}

static const uint32_t said[] = {90};

START_TEST(a_retry_before_its_worker_waits_for_it)
{
    struct scene s = scene_new();

    submit(&s, 2, QUERY, said, 1);
    expect_silence(&s);
    ck_assert(come_back(&s));
    check_goes_on(&s, only(&s, SCHED_SEND_ASSIGN));
    scene_end(&s);
}
END_TEST

START_TEST(a_retry_after_its_worker_goes_on)
{
    struct scene s = scene_new();

    ck_assert(come_back(&s));
    expect_silence(&s);
    ck_assert_uint_eq(stats(&s).blocks_own, s.kept.block_count);
    ck_assert_uint_eq(stats(&s).blocks_quarantined, 0);
    submit(&s, 2, QUERY, said, 1);
    check_goes_on(&s, only(&s, SCHED_SEND_ASSIGN));
    scene_end(&s);
}
END_TEST

START_TEST(what_nobody_comes_for_is_stopped_and_comes_back)
{
    struct scene s = scene_new();

    ck_assert(come_back(&s));
    expect_silence(&s);
    ck_assert_uint_le(sched_wakeup_us(s.sched), s.now_us + WAIT_US);
    s.now_us += WAIT_US - 1;
    sched_tick(s.sched, s.now_us);
    expect_silence(&s);
    s.now_us += 2;
    sched_tick(s.sched, s.now_us);
    ck_assert_uint_eq(only(&s, SCHED_SEND_STOP)->kept, 3);
    ck_assert_uint_gt(stats(&s).blocks_own, 0); /* until the worker has let go */
    release_kept(&s);
    ck_assert_uint_eq(sched_counters(s.sched)->requests_orphaned, 1);
    scene_end(&s);
}
END_TEST

START_TEST(a_document_that_changed_meanwhile_ends_it)
{
    struct scene s = scene_new();

    ck_assert_uint_gt(sched_evict(s.sched, ++s.now_us, 1), 0);
    ck_assert(come_back(&s));
    ck_assert_uint_eq(only(&s, SCHED_SEND_STOP)->kept, 3);
    submit(&s, 2, QUERY, said, 1);
    const struct sched_action *assign = only(&s, SCHED_SEND_ASSIGN);

    ck_assert_uint_eq(assign->kept, 0);
    ck_assert_uint_eq(assign->build_count, 1);
    release_kept(&s);
    sched_worker_gone(s.sched, ++s.now_us, 0, INCARNATION);
    (void)sched_cancel(s.sched, ++s.now_us, 2, true);
    (void)only(&s, SCHED_REPLY_END);
    scene_end(&s);
}
END_TEST

/* It needs no block any more, so nobody waits for one of its. */
START_TEST(a_whole_answer_holds_nothing_and_is_told_all_the_same)
{
    struct scene s = scene_new();

    s.kept.is_done = true;
    s.kept.block_count = 0;
    s.kept.answer_tokens = MAX_TOKENS;
    ck_assert(come_back(&s));
    ck_assert_uint_eq(stats(&s).blocks_own + stats(&s).blocks_quarantined, 0);
    ck_assert_uint_eq(sched_evict(s.sched, ++s.now_us, BLOCKS), s.segment.block_count);
    submit(&s, 2, QUERY, said, 1);
    size_t count;
    const struct sched_action *actions = sched_take_actions(s.sched, &count);

    ck_assert_uint_ge(count, 1);
    ck_assert_int_eq(actions[0].kind, SCHED_SEND_ASSIGN);
    ck_assert_uint_eq(actions[0].kept, 3);
    ck_assert_uint_eq(actions[0].build_count, 0);
    static const uint32_t rest[MAX_TOKENS - 1] = {91};
    static const uint64_t id = 2;

    (void)sched_worker_step(
        s.sched, ++s.now_us, 0, INCARNATION,
        &(struct sched_step){.results = &(struct sched_result){.request = 2,
                                                               .ids = rest,
                                                               .id_count = MAX_TOKENS - 1,
                                                               .tokens_read = DOC_TOKENS,
                                                               .finish = SCHED_FINISH_LENGTH},
                             .result_count = 1,
                             .released = &id,
                             .released_count = 1});
    const struct sched_action *end = only(&s, SCHED_REPLY_END);

    ck_assert_int_eq(end->end, SCHED_END_OK);
    ck_assert_uint_eq(end->usage.tokens_reused, DOC_TOKENS);
    scene_end(&s);
}
END_TEST

/* Somebody listens to the one, nobody yet to the other. */
START_TEST(an_answer_that_lacks_blocks_gets_those_of_a_kept_request)
{
    struct scene s = scene_new();
    const struct sched_action *action;
    uint32_t own = 0;
    size_t count;

    ck_assert(come_back(&s));
    sched_worker_ready(s.sched, ++s.now_us, 1, INCARNATION + 1, 4);
    struct sched_submit other = {
        .id = 5,
        .deadline_us = s.now_us + LONG_US,
        .prompt = {.query = make_tokens(8, 50),
                   .sampling = {.max_tokens = 4 * BLOCKS - 8, .has_max_tokens = true}}};

    sched_submit(s.sched, ++s.now_us, &other);
    own = only(&s, SCHED_SEND_ASSIGN)->block_count;
    for (uint32_t tokens = 8; stats(&s).blocks_free + stats(&s).blocks_evictable > 0; tokens++) {
        (void)sched_worker_step(
            s.sched, ++s.now_us, 1, INCARNATION + 1,
            &(struct sched_step){.results =
                                     &(struct sched_result){.request = 5, .own_tokens = tokens},
                                 .result_count = 1});
        action = sched_take_actions(s.sched, &count);
        for (size_t i = 0; i < count; i++) {
            ck_assert_int_eq(action[i].kind, SCHED_SEND_GRANT);
            own += action[i].block_count;
        }
    }
    (void)sched_worker_step(
        s.sched, ++s.now_us, 1, INCARNATION + 1,
        &(struct sched_step){.results = &(struct sched_result){.request = 5, .own_tokens = own * P},
                             .result_count = 1});
    ck_assert_uint_eq(only(&s, SCHED_SEND_STOP)->kept, 3);
    release_kept(&s);
    ck_assert_int_eq(only(&s, SCHED_SEND_GRANT)->kind, SCHED_SEND_GRANT);
    sched_worker_gone(s.sched, ++s.now_us, 1, INCARNATION + 1);
    (void)sched_take_actions(s.sched, &count);
    (void)sched_cancel(s.sched, ++s.now_us, 5, true);
    (void)sched_take_actions(s.sched, &count);
    sched_worker_gone(s.sched, ++s.now_us, 0, INCARNATION);
    scene_end(&s);
}
END_TEST

START_TEST(another_request_of_the_same_name_does_not_get_it)
{
    struct scene s = scene_new();
    size_t count;

    ck_assert(come_back(&s));
    submit(&s, 2, QUERY + 1, said, 1);
    const struct sched_action *actions = sched_take_actions(s.sched, &count);

    ck_assert_uint_eq(count, 2);
    ck_assert_int_eq(actions[0].kind, SCHED_SEND_STOP);
    ck_assert_uint_eq(actions[0].kept, 3);
    ck_assert_int_eq(actions[1].kind, SCHED_SEND_ASSIGN);
    ck_assert_uint_eq(actions[1].kept, 0);
    release_kept(&s);
    sched_worker_gone(s.sched, ++s.now_us, 0, INCARNATION);
    (void)sched_cancel(s.sched, ++s.now_us, 2, true);
    (void)only(&s, SCHED_REPLY_END);
    scene_end(&s);
}
END_TEST

START_TEST(its_blocks_are_fenced_when_the_worker_falls_silent)
{
    struct scene s = scene_new();

    ck_assert(come_back(&s));
    sched_worker_lost(s.sched, ++s.now_us, 0, INCARNATION);
    ck_assert_uint_eq(stats(&s).blocks_quarantined, s.kept.block_count);
    sched_worker_gone(s.sched, ++s.now_us, 0, INCARNATION);
    scene_end(&s);
}
END_TEST

START_TEST(blocks_that_were_never_lent_are_not_believed)
{
    struct scene s = scene_new();

    s.own_blocks[0] = s.doc_blocks[0];
    ck_assert(!come_back(&s));
    expect_silence(&s);
    ck_assert_uint_eq(stats(&s).blocks_quarantined, s.kept.block_count);
    sched_worker_gone(s.sched, ++s.now_us, 0, INCARNATION);
    scene_end(&s);
}
END_TEST

START_TEST(a_retry_waits_for_a_silent_worker_only_so_long)
{
    struct scene s = scene_new();

    submit(&s, 2, QUERY, said, 1);
    sched_worker_ready(s.sched, ++s.now_us, 1, INCARNATION + 1, 4);
    expect_silence(&s);
    s.now_us += WAIT_US / 10;
    ck_assert_uint_le(sched_wakeup_us(s.sched), s.now_us);
    sched_tick(s.sched, s.now_us);
    ck_assert_uint_eq(only(&s, SCHED_SEND_ASSIGN)->worker, 1);
    sched_worker_gone(s.sched, ++s.now_us, 1, INCARNATION + 1);
    (void)sched_cancel(s.sched, ++s.now_us, 2, true);
    (void)only(&s, SCHED_REPLY_END);
    sched_worker_gone(s.sched, ++s.now_us, 0, INCARNATION);
    scene_end(&s);
}
END_TEST

/* The document of the scene is being forgotten, without abort. */
static void
forget(struct scene *s)
{
    ck_assert_int_eq(sched_forget(s->sched, ++s->now_us, 0, &s->doc, false), ST_OK);
    expect_silence(s);
    ck_assert_uint_eq(stats(s).documents, 0);
}

/* A new worker does what it is told, erases at once and ends the only request; what was told. */
static struct sched_forgotten
run_to_the_end(struct scene *s, uint32_t worker, uint64_t incarnation)
{
    static const uint32_t rest[MAX_TOKENS] = {91, 92};
    uint64_t step = 0;

    sched_worker_ready(s->sched, ++s->now_us, worker, incarnation, 4);
    for (int turn = 0; turn < 10; turn++) {
        struct sched_step report = {.step = ++step};
        struct sched_result result = {.ids = rest, .finish = SCHED_FINISH_LENGTH};
        uint64_t erased[8], sealed;
        size_t count;
        const struct sched_action *actions = sched_take_actions(s->sched, &count);

        for (size_t i = 0; i < count; i++) {
            if (actions[i].kind == SCHED_REPLY_FORGOTTEN) {
                return actions[i].forgotten;
            }
            if (actions[i].kind == SCHED_SEND_ERASE) {
                erased[report.erased_count++] = actions[i].build;
            } else if (actions[i].kind == SCHED_SEND_ASSIGN) {
                sealed = actions[i].session->builds[0].build;
                report.sealed_count = actions[i].build_count;
                result.request = actions[i].request;
                result.id_count = MAX_TOKENS - actions[i].session->sent_count;
                report.result_count = report.released_count = 1;
            }
        }
        report.erased = erased;
        report.sealed = &sealed;
        report.results = &result;
        report.released = &result.request;
        (void)sched_worker_step(s->sched, ++s->now_us, worker, incarnation, &report);
    }
    ck_abort_msg("the Forget has no end");
    return (struct sched_forgotten){0};
}

/* It reads what it had before; when its worker dies it builds that again, and all of it goes. */
START_TEST(who_comes_back_during_a_forget_is_one_of_its_readers)
{
    struct scene s = scene_new();

    ck_assert(come_back(&s));
    expect_silence(&s);
    forget(&s);
    submit(&s, 2, QUERY, said, 1);
    ck_assert_uint_eq(only(&s, SCHED_SEND_ASSIGN)->kept, 3);
    sched_worker_gone(s.sched, ++s.now_us, 0, INCARNATION);
    expect_silence(&s);
    struct sched_forgotten told = run_to_the_end(&s, 1, INCARNATION + 1);

    ck_assert_uint_eq(told.readers_waited, 1);
    ck_assert_uint_eq(sched_counters(s.sched)->builds_sealed, 1);
    ck_assert_uint_eq(stats(&s).documents, 0);
    ck_assert_uint_eq(stats(&s).blocks_free, BLOCKS);
    scene_end(&s);
}
END_TEST

/* Its blocks are fenced and to be erased; they are its own again, and erased all the same. */
START_TEST(what_comes_back_after_a_forget_began_is_waited_for_and_erased)
{
    struct scene s = scene_new();

    forget(&s);
    ck_assert(come_back(&s));
    ck_assert_uint_eq(stats(&s).blocks_own, s.kept.block_count);
    struct sched_forgotten told = {0};
    bool is_stopped = false, is_told = false; /* its document is no more */

    for (int turn = 0; turn < 5 && !is_told; turn++) {
        struct sched_step report = {.step = 1 + (uint64_t)turn};
        uint64_t erased[8];
        size_t count;
        const struct sched_action *actions;

        if (turn == 2) {
            ck_assert_uint_eq(stats(&s).blocks_own, s.kept.block_count); /* and nothing was told */
            report.kept_released = &s.kept.kept;
            report.kept_released_count = 1;
        }
        actions = sched_take_actions(s.sched, &count);
        for (size_t i = 0; i < count; i++) {
            if (actions[i].kind == SCHED_SEND_ERASE) {
                erased[report.erased_count++] = actions[i].build;
            }
            is_stopped |= actions[i].kind == SCHED_SEND_STOP && actions[i].kept == 3;
            is_told |= actions[i].kind == SCHED_REPLY_FORGOTTEN;
            told = actions[i].forgotten;
        }
        ck_assert(!is_told || turn > 2);
        report.erased = erased;
        (void)sched_worker_step(s.sched, ++s.now_us, 0, INCARNATION, &report);
    }
    ck_assert(is_stopped && is_told);
    ck_assert_uint_ge(told.blocks, s.kept.block_count + s.segment.block_count);
    scene_end(&s);
}
END_TEST

static bool
is_noted(const struct scene *s)
{
    struct dockey key;
    bool abort;

    for (uint32_t i = 0; i < CATALOG_FORGETS_MAX; i++) {
        if (catalog_get_forget(s->catalog, i, &key, &abort)) {
            ck_assert_mem_eq(&key, &s->doc, sizeof(key));
            return true;
        }
    }
    return false;
}

START_TEST(the_next_kvasird_goes_on_with_a_forget)
{
    struct scene s = scene_new();

    ck_assert(!is_noted(&s));
    forget(&s);
    ck_assert(is_noted(&s));
    (void)follow(&s);
    (void)follow(&s); /* nor does one more death lose it */
    sched_worker_gone(s.sched, ++s.now_us, 0, INCARNATION);
    struct sched_forgotten told = run_to_the_end(&s, 1, INCARNATION + 1);

    ck_assert_mem_eq(&told.key, &s.doc, sizeof(s.doc));
    ck_assert_uint_eq(told.blocks, s.kept.block_count + s.segment.block_count);
    ck_assert(!is_noted(&s));
    ck_assert_uint_eq(stats(&s).blocks_free, BLOCKS);
    for (uint32_t block = 0; block < BLOCKS; block++) {
        ck_assert_uint_eq(catalog_held(s.catalog, block), 0);
    }
    scene_end(&s);
}
END_TEST

/* An answer that names no document (reuse `none`) may have it among its own ids. */
START_TEST(the_next_kvasird_ends_the_readers_of_a_forget_that_was_to_end_them)
{
    struct scene s = scene_new();
    size_t count;

    ck_assert_int_eq(sched_forget(s.sched, ++s.now_us, 0, &s.doc, true), ST_OK);
    (void)follow(&s);
    s.kept.segment_count = 0;
    ck_assert(come_back(&s));
    ck_assert_uint_eq(sched_take_actions(s.sched, &count)[0].kept, 3); /* a Stop */
    submit(&s, 2, QUERY, said, 1); /* its client comes back, with the document */
    ck_assert_int_eq(only(&s, SCHED_REPLY_END)->end, SCHED_END_CANCELLED);
    submit(&s, 4, QUERY, NULL, 0); /* who comes now is none of its readers */
    ck_assert_uint_eq(only(&s, SCHED_SEND_ASSIGN)->build_count, 1);
    (void)sched_cancel(s.sched, ++s.now_us, 4, true);
    (void)sched_take_actions(s.sched, &count);
    sched_worker_gone(s.sched, ++s.now_us, 0, INCARNATION);
    (void)run_to_the_end(&s, 1, INCARNATION + 1);
    ck_assert(!is_noted(&s));
    scene_end(&s);
}
END_TEST

/* It may still do that when the next kvasird is there: the blocks are nobody's until it is back. */
START_TEST(what_a_worker_was_asked_to_overwrite_is_fenced_after_a_restart)
{
    struct scene s = scene_new();

    ck_assert(come_back(&s));
    (void)sched_cancel(s.sched, ++s.now_us, 1, true);
    sched_tick(s.sched, s.now_us + WAIT_US);
    (void)only(&s, SCHED_SEND_STOP);
    release_kept(&s);
    expect_silence(&s);
    ck_assert_int_eq(sched_forget(s.sched, ++s.now_us, 0, &s.doc, false), ST_OK);
    uint32_t asked = 0;
    size_t count;
    const struct sched_action *actions = sched_take_actions(s.sched, &count);

    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(actions[i].kind, SCHED_SEND_ERASE);
        asked += actions[i].block_count;
    }
    ck_assert_uint_ge(asked, s.segment.block_count);
    ck_assert_uint_eq(follow(&s).blocks_fenced, asked);
    sched_worker_gone(s.sched, ++s.now_us, 0, INCARNATION);
    (void)run_to_the_end(&s, 1, INCARNATION + 1);
    scene_end(&s);
}
END_TEST

CHECK_MAIN("sched_kept", a_retry_before_its_worker_waits_for_it, a_retry_after_its_worker_goes_on,
           what_nobody_comes_for_is_stopped_and_comes_back,
           a_document_that_changed_meanwhile_ends_it,
           a_whole_answer_holds_nothing_and_is_told_all_the_same,
           an_answer_that_lacks_blocks_gets_those_of_a_kept_request,
           another_request_of_the_same_name_does_not_get_it,
           its_blocks_are_fenced_when_the_worker_falls_silent,
           blocks_that_were_never_lent_are_not_believed,
           a_retry_waits_for_a_silent_worker_only_so_long,
           who_comes_back_during_a_forget_is_one_of_its_readers,
           what_comes_back_after_a_forget_began_is_waited_for_and_erased,
           the_next_kvasird_goes_on_with_a_forget,
           the_next_kvasird_ends_the_readers_of_a_forget_that_was_to_end_them,
           what_a_worker_was_asked_to_overwrite_is_fenced_after_a_restart)
