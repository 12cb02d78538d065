/* SPDX-License-Identifier: Apache-2.0 */
/* A conversation over documents: each turn begins with the blocks that the turns before it have
 * left, and answers as if it had computed all of it. */
#include <string.h>

#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define BLOCK_TOKENS 32
#define TURNS        4

static const struct asking_doc docs[] = {{70, 1}, {33, 2}};

/* What was said so far: questions of 20 tokens, answers of 30. */
struct talk {
    uint32_t ids[512];
    uint32_t count;
};

static void
say(struct talk *talk, uint32_t turn)
{
    for (uint32_t i = 0; i < 20; i++) {
        talk->ids[talk->count++] = 10 + (7 * i + 31 * turn) % 200;
    }
}

static void
ask_turn(struct host *host, const struct talk *talk, struct question more, struct answer *answer)
{
    more.docs = docs;
    more.doc_count = 2;
    more.query_tokens = talk->count;
    more.query_ids = talk->ids;
    more.max_tokens = 30;
    ask_ok(host, &more, answer);
}

static void
hear(struct talk *talk, const struct answer *answer)
{
    memcpy(talk->ids + talk->count, answer->ids, answer->id_count * sizeof(talk->ids[0]));
    talk->count += (uint32_t)answer->id_count;
}

static void
check_conversation(struct host *host, enum kvasir_reuse mode)
{
    struct talk talk = {.count = 0};
    struct answer answer, undisturbed;
    uint32_t left = 0; /* own tokens of the turns before, whose KV is there */

    for (uint32_t turn = 0; turn < TURNS; turn++) {
        uint32_t at_most;

        say(&talk, turn);
        /* The same words without a turn kept or looked for, under a salt of their own. */
        ask_turn(host, &talk, (struct question){.reuse = mode, .salt = "elsewhere"}, &undisturbed);
        ck_assert_uint_eq(undisturbed.turn_tokens_reused, 0);
        ask_turn(host, &talk, (struct question){.reuse = mode, .keep_turn = true}, &answer);
        at_most = left < talk.count - 1 ? left : talk.count - 1;
        ck_assert_uint_eq(answer.turn_tokens_reused, at_most / BLOCK_TOKENS * BLOCK_TOKENS);
        answer_assert_same(&undisturbed, &answer);
        hear(&talk, &answer);
        left = talk.count - 1;
    }
}

START_TEST(every_turn_begins_with_the_blocks_of_the_turns_before_it)
{
    struct host *host = host_start(&(struct host_options){.workers = 2});

    check_conversation(host, KVASIR_REUSE_LAZY);
    ck_assert_uint_eq(host_counter(host, "requests_followed_up"), TURNS - 1);
    check_conversation(host, KVASIR_REUSE_PREFIX);
    check_conversation(host, KVASIR_REUSE_REENCODE);
    ck_assert_uint_eq(host_counter(host, "blocks_own"), 0);
    host_stop(&host);
}
END_TEST

/* Pins every document of the pool, or takes the pins back; how many there are. */
static size_t
pin_all(struct host *host, bool is_pin)
{
    struct kvasir_options options = {.runtime_dir = host_dir(host)};
    const struct kvasir_document_info *infos;
    uint8_t keys[16][KVASIR_KEY_BYTES];
    struct kvasir *client;
    size_t count;

    ck_assert_int_eq(kvasir_open(&options, &client), KVASIR_OK);
    ck_assert_int_eq(kvasir_list(client, 16, NULL, &infos, &count, NULL), KVASIR_OK);
    for (size_t i = 0; i < count; i++) {
        memcpy(keys[i], infos[i].key, KVASIR_KEY_BYTES);
    }
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq((is_pin ? kvasir_pin : kvasir_unpin)(client, keys[i]), KVASIR_OK);
    }
    kvasir_close(&client);
    return count;
}

START_TEST(turns_are_evicted_like_documents_and_computed_again)
{
    const char *const args[] = {"--check-pool", NULL};
    struct host *host = host_start(&(struct host_options){.workers = 1, .daemon_args = args});
    struct talk talk = {.count = 0};
    struct answer first, again;

    say(&talk, 0);
    ask_turn(host, &talk, (struct question){.keep_turn = true}, &first);
    hear(&talk, &first);
    say(&talk, 1);
    ask_turn(host, &talk, (struct question){.keep_turn = true}, &first);
    ck_assert_uint_eq(first.turn_tokens_reused, BLOCK_TOKENS);
    ck_assert_uint_eq(pin_all(host, true), 4); /* two documents, two turns */
    ck_assert_uint_eq(host_evict(host, 1000), 0);
    ck_assert_uint_eq(pin_all(host, false), 4);
    ck_assert_uint_ge(host_evict(host, 1000), 5);
    ck_assert_uint_eq(host_counter(host, "blocks_docs"), 0);
    ask_turn(host, &talk, (struct question){.keep_turn = true}, &again);
    ck_assert_uint_eq(again.turn_tokens_reused, 0);
    answer_assert_same(&first, &again);
    host_stop(&host);
}
END_TEST

START_TEST(turns_are_not_kept_where_the_daemon_is_told_so)
{
    const char *const args[] = {"--keep-turns=false", NULL};
    struct host *host = host_start(&(struct host_options){.workers = 1, .daemon_args = args});
    struct talk talk = {.count = 0};
    struct answer answer;

    say(&talk, 0);
    say(&talk, 1);
    ask_turn(host, &talk, (struct question){.keep_turn = true}, &answer);
    ask_turn(host, &talk, (struct question){.keep_turn = true}, &answer);
    ck_assert_uint_eq(answer.turn_tokens_reused, 0);
    ck_assert_uint_eq(host_counter(host, "documents"), 2);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("multi_turn", every_turn_begins_with_the_blocks_of_the_turns_before_it,
           turns_are_evicted_like_documents_and_computed_again,
           turns_are_not_kept_where_the_daemon_is_told_so)
