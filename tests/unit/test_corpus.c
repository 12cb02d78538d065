/* SPDX-License-Identifier: Apache-2.0 */
/* The corpus: what is unchanged, what comes next, what is left out. */
#include "daemon/corpus.h"

#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "tests/support/pool_fixture.h"

struct rig {
    struct corpus *corpus;
    struct kvpool *pool;
};

static struct rig
rig_new(uint32_t block_count)
{
    struct corpus_config config = {
        .bytes_max = 4000, .quadratic_tokens = 50, .block_tokens = BLOCK_TOKENS};
    struct rig rig = {.pool = new_pool(block_count)};

    ck_assert_int_eq(corpus_new(&config, &rig.corpus), ST_OK);
    return rig;
}

static void
rig_end(struct rig *rig)
{
    corpus_destroy(&rig->corpus);
    kvpool_destroy(&rig->pool);
}

struct put {
    const char *id, *key, *version;
    uint32_t tokens;
    double weight;
    bool is_pinned;
    uint64_t pin_ends_us;
};

static enum status
put(struct rig *rig, struct put what, struct corpus_result *result_out)
{
    uint32_t ids[1000] = {0};
    struct tokens *tokens;
    enum status st;

    ck_assert_int_eq(tokens_new(ids, what.tokens, &tokens), ST_OK);
    st = corpus_put(rig->corpus,
                    &(struct corpus_put){
                        .name = named(what.id),
                        .key = named(what.key),
                        .id = what.id,
                        .version = what.version == NULL ? "" : what.version,
                        .tokens = tokens,
                        .weight = what.weight == 0 ? 1 : what.weight,
                        .is_pinned = what.is_pinned,
                        .pin_ends_us = what.pin_ends_us,
                    },
                    result_out);
    tokens_release(&tokens);
    return st;
}

static enum corpus_change
put_ok(struct rig *rig, struct put what)
{
    struct corpus_result result;

    ck_assert_msg(put(rig, what, &result) == ST_OK, "%s", status_detail());
    return result.change;
}

/* The id of what comes next, or "none"; with a + in front: it is to be pinned. */
static const char *
next(struct rig *rig, uint64_t now_us)
{
    static char text[64];
    enum corpus_task task;
    struct corpus_document *document = corpus_next(rig->corpus, rig->pool, now_us, true, &task);

    (void)snprintf(text, sizeof(text), "%s%s", document != NULL && task == CORPUS_PIN ? "+" : "",
                   document == NULL ? "none" : document->id);
    return text;
}

static void
make_resident(struct rig *rig, const char *key, uint32_t tokens)
{
    struct kvpool_want w = want(key, tokens);
    struct kvpool_claim *made = claim(rig->pool, &w, 1, 0, 1);

    kvpool_doc_seal(rig->pool, w.doc, 0);
    kvpool_claim_release(rig->pool, &made, 0);
}

START_TEST(only_another_text_under_a_name_is_a_change)
{
    struct rig rig = rig_new(100);
    struct corpus_result result;

    ck_assert_int_eq(put_ok(&rig, (struct put){"a", "key-1", "v1", 8, 1, false, 0}), CORPUS_NEW);
    ck_assert_int_eq(put_ok(&rig, (struct put){"a", "key-1", "v2", 8, 3, true, 0}),
                     CORPUS_UNCHANGED);
    ck_assert_str_eq(corpus_walk(rig.corpus, NULL)->version, "v2");
    ck_assert_double_eq(corpus_walk(rig.corpus, NULL)->weight, 3);
    ck_assert_int_eq(put(&rig, (struct put){"a", "key-2", "v3", 9, 3, false, 0}, &result), ST_OK);
    ck_assert_int_eq(result.change, CORPUS_CHANGED);
    ck_assert_mem_eq(result.old_key.bytes, named("key-1").bytes, DOCKEY_BYTES);
    ck_assert(result.is_old_unused);
    /* Two names of one document: the text goes with the last of them. */
    ck_assert_int_eq(put_ok(&rig, (struct put){"b", "key-2", "", 9, 1, false, 0}), CORPUS_NEW);
    ck_assert_int_eq(put(&rig, (struct put){"a", "key-3", "", 9, 1, false, 0}, &result), ST_OK);
    ck_assert(!result.is_old_unused);
    ck_assert_uint_eq(corpus_summary(rig.corpus, rig.pool).count, 2);
    ck_assert_uint_eq(corpus_forget(rig.corpus, &(struct dockey){.bytes = "key-2"}), 1);
    ck_assert_uint_eq(corpus_summary(rig.corpus, rig.pool).count, 1);
    rig_end(&rig);
}
END_TEST

START_TEST(pinned_ones_come_first_then_by_weight_times_benefit_for_a_block)
{
    struct rig rig = rig_new(1000);

    /* Tokens of a block: 4.  Cost for a block of n whole blocks: 4 + 16 n / 100. */
    put_ok(&rig, (struct put){"long", "1", "", 200, 1, false, 0});    /* 12.0 */
    put_ok(&rig, (struct put){"short", "2", "", 40, 1, false, 0});    /* 5.6 */
    put_ok(&rig, (struct put){"ragged", "3", "", 41, 1, false, 0});   /* 5.3: 11 blocks */
    put_ok(&rig, (struct put){"wanted", "4", "", 40, 2.2, false, 0}); /* 12.3 */
    put_ok(&rig, (struct put){"pinned", "5", "", 40, 0.1, true, 0});
    ck_assert_str_eq(next(&rig, 0), "pinned");
    ck_assert_str_eq(next(&rig, 0), "wanted");
    ck_assert_str_eq(next(&rig, 0), "long");
    ck_assert_str_eq(next(&rig, 0), "short");
    ck_assert_str_eq(next(&rig, 0), "ragged");
    ck_assert_str_eq(next(&rig, 0), "none");
    rig_end(&rig);
}
END_TEST

START_TEST(what_is_resident_is_not_encoded_and_what_has_no_room_is_left_out)
{
    struct rig rig = rig_new(20);

    put_ok(&rig, (struct put){"there", "1", "", 40, 9, false, 0});
    put_ok(&rig, (struct put){"big", "2", "", 60, 8, false, 0});
    put_ok(&rig, (struct put){"fits", "3", "", 32, 7, false, 0});
    make_resident(&rig, "1", 40);
    ck_assert_str_eq(next(&rig, 0), "fits");
    ck_assert_str_eq(next(&rig, 0), "none");
    struct corpus_summary sum = corpus_summary(rig.corpus, rig.pool);

    ck_assert_uint_eq(sum.tokens, 132);
    ck_assert_uint_eq(sum.tokens_resident, 40);
    ck_assert_uint_eq(sum.count_no_room, 1);
    ck_assert_uint_eq(sum.count_waiting, 1);
    ck_assert_uint_eq(sum.tokens_waiting, 32);
    /* Its first half was evicted by then: only the tail is waited for. */
    ck_assert_uint_eq(kvpool_evict(rig.pool, 4), 4);
    corpus_ended(rig.corpus, 3, CORPUS_WAITING); /* it gave way to a request */
    corpus_look_again(rig.corpus);
    ck_assert_str_eq(next(&rig, 0), "there");
    ck_assert_uint_eq(corpus_summary(rig.corpus, rig.pool).tokens_waiting, 16 + 32);
    rig_end(&rig);
}
END_TEST

START_TEST(nothing_worse_goes_first_while_no_worker_is_idle)
{
    struct rig rig = rig_new(100);
    enum corpus_task task;

    put_ok(&rig, (struct put){"a", "1", "", 40, 2, false, 0});
    put_ok(&rig, (struct put){"b", "2", "", 40, 1, false, 0});
    ck_assert_ptr_null(corpus_next(rig.corpus, rig.pool, 0, false, &task));
    ck_assert_str_eq(next(&rig, 0), "a");
    ck_assert_ptr_null(corpus_next(rig.corpus, NULL, 0, true, &task)); /* no pool yet */
    rig_end(&rig);
}
END_TEST

START_TEST(a_pin_is_set_once_the_document_is_there_and_not_after_its_end)
{
    struct rig rig = rig_new(100);
    struct dockey key = named("1");

    put_ok(&rig, (struct put){"a", "1", "", 40, 1, true, 1000});
    ck_assert_str_eq(next(&rig, 1), "a");
    make_resident(&rig, "1", 40);
    corpus_ended(rig.corpus, 1, CORPUS_WAITING);
    corpus_look_again(rig.corpus);
    ck_assert_str_eq(next(&rig, 2), "+a");
    ck_assert_int_eq(kvpool_pin(rig.pool, &key), ST_OK);
    corpus_pinned(corpus_find_number(rig.corpus, 1), true);
    corpus_look_again(rig.corpus);
    ck_assert_str_eq(next(&rig, 3), "none");
    ck_assert_uint_eq(corpus_summary(rig.corpus, rig.pool).count_pinned, 1);
    /* Forgotten and there again: the pin went with the first one. */
    ck_assert_int_eq(kvpool_forget(rig.pool, &key), ST_OK);
    make_resident(&rig, "1", 40);
    corpus_look_again(rig.corpus);
    ck_assert_str_eq(next(&rig, 4), "+a");
    corpus_look_again(rig.corpus);
    ck_assert_str_eq(next(&rig, 1000), "none");
    rig_end(&rig);
}
END_TEST

START_TEST(more_ids_than_allowed_are_refused_with_the_sizes)
{
    struct rig rig = rig_new(100);
    struct corpus_result result;

    put_ok(&rig, (struct put){"a", "1", "", 600, 1, false, 0});
    ck_assert_int_eq(put(&rig, (struct put){"b", "2", "", 401, 1, false, 0}, &result),
                     ST_NO_MEMORY);
    ck_assert_str_eq(status_detail(), "1604 bytes of ids beside the 2400 of the corpus: "
                                      "--corpus-memory allows 4000");
    put_ok(&rig, (struct put){"b", "2", "", 400, 1, false, 0});
    rig_end(&rig);
}
END_TEST

CHECK_MAIN("corpus", only_another_text_under_a_name_is_a_change,
           pinned_ones_come_first_then_by_weight_times_benefit_for_a_block,
           what_is_resident_is_not_encoded_and_what_has_no_room_is_left_out,
           nothing_worse_goes_first_while_no_worker_is_idle,
           a_pin_is_set_once_the_document_is_there_and_not_after_its_end,
           more_ids_than_allowed_are_refused_with_the_sizes)
