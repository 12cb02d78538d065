/* SPDX-License-Identifier: Apache-2.0 */
/* The memo's bounds, and tokeniser threads: every job comes back once, limits are refusals. */
#include <poll.h>
#include <string.h>
#include <time.h>

#include "common/htab.h"
#include "daemon/ingest.h"
#include "daemon/memo.h"
#include "tests/support/check_main.h"

#include "kvasir/v1/rag.pb-c.h"

#define NAMES 20000u

static struct dockey
name_of(uint8_t i)
{
    struct dockey name = {{i}};

    return name;
}

static void
put(struct memo *memo, uint8_t name, uint32_t count)
{
    uint32_t ids[256] = {name};
    struct dockey key = name_of(name);
    struct tokens *tokens;

    ck_assert_int_eq(tokens_new(ids, count, &tokens), ST_OK);
    ck_assert_int_eq(memo_put(memo, MEMO_DOCUMENT, &key, tokens), ST_OK);
    tokens_release(&tokens);
}

static bool
has(struct memo *memo, uint8_t name)
{
    struct dockey key = name_of(name);
    struct tokens *tokens = memo_find(memo, MEMO_DOCUMENT, &key);
    bool is_there = tokens != NULL;

    ck_assert(!is_there || tokens_ids(tokens)[0] == name);
    tokens_release(&tokens);
    return is_there;
}

/* CPU time to keep many names and find them again; all begin with the same bytes, or none do. */
static uint64_t
time_names(bool are_alike)
{
    struct memo *memo;
    struct tokens *tokens = NULL;
    uint32_t id = 1;
    clock_t start = clock();

    ck_assert_int_eq(memo_new(64u << 20, &memo), ST_OK);
    ck_assert_int_eq(tokens_new(&id, 1, &tokens), ST_OK);
    for (int pass = 0; pass < 2; pass++) {
        for (uint64_t i = 0; i < NAMES; i++) {
            struct dockey name = {{0}};
            uint64_t first = are_alike ? 0 : htab_mix(i);

            memcpy(name.bytes, &first, sizeof(first));
            memcpy(name.bytes + sizeof(first), &i, sizeof(i));
            if (pass == 0) {
                ck_assert_int_eq(memo_put(memo, MEMO_IDS, &name, tokens), ST_OK);
            } else {
                struct tokens *found = memo_find(memo, MEMO_IDS, &name);

                ck_assert_ptr_nonnull(found);
                tokens_release(&found);
            }
        }
    }
    tokens_release(&tokens);
    memo_destroy(&memo);
    return (uint64_t)(clock() - start);
}

/* Without a secret the alike ones take 28 times as long. */
START_TEST(names_that_clients_have_chosen_to_be_alike_are_found_as_fast_as_others)
{
    ck_assert_uint_lt(time_names(true), 8 * time_names(false));
}
END_TEST

START_TEST(a_full_memo_drops_the_least_recently_used)
{
    struct memo *memo;

    ck_assert_int_eq(memo_new(4096, &memo), ST_OK);
    put(memo, 1, 256);
    put(memo, 2, 256);
    put(memo, 3, 256);
    ck_assert(has(memo, 1)); /* now 2 is the oldest */
    put(memo, 4, 256);
    ck_assert(has(memo, 1) && !has(memo, 2) && has(memo, 3) && has(memo, 4));
    ck_assert_uint_le(memo_stats(memo).bytes, 4096);
    ck_assert_uint_eq(memo_stats(memo).evicted, 1);
    memo_destroy(&memo);
}
END_TEST

START_TEST(what_one_kind_of_name_holds_another_does_not_find)
{
    struct memo *memo;
    struct tokens *tokens;
    uint32_t ids[1] = {7};
    struct dockey name = name_of(5);

    ck_assert_int_eq(memo_new(4096, &memo), ST_OK);
    ck_assert_int_eq(tokens_new(ids, 1, &tokens), ST_OK);
    ck_assert_int_eq(memo_put(memo, MEMO_IDS, &name, tokens), ST_OK);
    tokens_release(&tokens);
    ck_assert_ptr_null(memo_find(memo, MEMO_TEXT, &name));
    ck_assert(!memo_forget(memo, MEMO_TEXT, &name));
    put(memo, 5, 1); /* a document of the same name is one more entry */
    ck_assert_uint_eq(memo_stats(memo).entries, 2);
    ck_assert(has(memo, 5));
    tokens = memo_find(memo, MEMO_IDS, &name);
    ck_assert_ptr_nonnull(tokens);
    ck_assert_uint_eq(tokens_ids(tokens)[0], 7);
    tokens_release(&tokens);
    memo_destroy(&memo);
}
END_TEST

START_TEST(ids_larger_than_the_memo_are_refused_and_a_forgotten_name_is_gone)
{
    struct memo *memo;
    struct tokens *tokens;
    uint32_t ids[256] = {0};
    struct dockey key = name_of(9);

    ck_assert_int_eq(memo_new(512, &memo), ST_OK);
    ck_assert_int_eq(tokens_new(ids, 256, &tokens), ST_OK);
    ck_assert_int_eq(memo_put(memo, MEMO_DOCUMENT, &key, tokens), ST_NO_MEMORY);
    tokens_release(&tokens);
    put(memo, 9, 10);
    ck_assert(memo_forget(memo, MEMO_DOCUMENT, &key));
    ck_assert(!memo_forget(memo, MEMO_DOCUMENT, &key));
    ck_assert(!has(memo, 9));
    memo_destroy(&memo);
}
END_TEST

static void
reader_open(struct reader *reader, struct tokenizer **tokenizer)
{
    ck_assert_int_eq(tokenizer_new_bytes(300, tokenizer), ST_OK);
    *reader = (struct reader){.tokenizer = *tokenizer, .vocab_size = 300};
    ck_assert_int_eq(memo_new(1u << 20, &reader->memo), ST_OK);
    ck_assert_int_eq(memo_new(1u << 20, &reader->registered), ST_OK);
}

static void
reader_close(struct reader *reader, struct tokenizer **tokenizer)
{
    memo_destroy(&reader->memo);
    memo_destroy(&reader->registered);
    tokenizer_destroy(tokenizer);
}

static enum status
submit_of(struct ingest *ingest, const char *tenant, uint64_t call, const void *payload,
          size_t length)
{
    struct frames frames = {.count = 1};

    ck_assert_int_eq(zmq_msg_init_size(&frames.parts[0], length), 0);
    memcpy(zmq_msg_data(&frames.parts[0]), payload, length);
    enum status st = ingest_submit(
        ingest, call, &(struct client_message){METHOD_TOKENIZE, tenant, NULL, length, NULL},
        &frames);

    frames_close(&frames);
    return st;
}

static enum status
submit(struct ingest *ingest, uint64_t call, const void *payload, size_t length)
{
    return submit_of(ingest, "", call, payload, length);
}

START_TEST(every_job_comes_back_once_with_its_own_result)
{
    struct reader reader;
    struct tokenizer *tokenizer;
    struct ingest *ingest;
    struct ingest_job *job;
    bool is_back[201] = {false};
    uint32_t count = 0, first = 0;

    reader_open(&reader, &tokenizer);
    ck_assert_int_eq(ingest_new(&reader, 3, 1000, &ingest), ST_OK);
    for (uint64_t call = 0; call < 200; call++) {
        Kvasir__V1__TokenizeRequest request = KVASIR__V1__TOKENIZE_REQUEST__INIT;
        struct wire_buffer buffer = {0};
        char text[16];

        (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)call);
        request.text = text;
        ck_assert_int_eq(wire_pack(&buffer, &request.base), ST_OK);
        ck_assert_int_eq(submit(ingest, call, buffer.bytes, buffer.length), ST_OK);
        wire_buffer_deinit(&buffer);
    }
    while (count < 200) {
        struct pollfd item = {.fd = ingest_fd(ingest), .events = POLLIN};

        ck_assert_int_eq(poll(&item, 1, 600000), 1);
        while ((job = ingest_take(ingest)) != NULL) {
            char text[16];

            ck_assert_int_eq(job->status, ST_OK);
            ck_assert(!is_back[job->call]);
            is_back[job->call] = true;
            while (is_back[first]) {
                first++;
            }
            ck_assert_uint_eq(ingest_oldest(ingest), first < 200 ? first : UINT64_MAX);
            (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)job->call);
            ck_assert_uint_eq(tokens_count(job->reading.prompt.query), strlen(text));
            ck_assert_uint_eq(tokens_ids(job->reading.prompt.query)[0], (uint32_t)text[0]);
            ingest_job_destroy(&job);
            count++;
        }
    }
    ingest_destroy(&ingest);
    reader_close(&reader, &tokenizer);
}
END_TEST

START_TEST(more_jobs_than_the_limit_are_refused_by_name)
{
    struct reader reader;
    struct tokenizer *tokenizer;
    struct ingest *ingest;

    reader_open(&reader, &tokenizer);
    ck_assert_int_eq(ingest_new(&reader, 0, 0, &ingest), ST_OK); /* nobody works them off */
    for (uint64_t call = 0; call < INGEST_JOBS_MAX; call++) {
        ck_assert_int_eq(submit(ingest, call, "", 0), ST_OK);
    }
    ck_assert_int_eq(submit(ingest, 1, "", 0), ST_NO_MEMORY);
    ck_assert_str_eq(status_detail(), "1024 messages wait for tokenising: the limit is 1024");
    ingest_destroy(&ingest); /* with jobs inside */
    reader_close(&reader, &tokenizer);
}
END_TEST

START_TEST(a_tenant_leaves_as_many_places_free_as_it_has)
{
    struct reader reader;
    struct tokenizer *tokenizer;
    struct ingest *ingest;
    uint64_t call = 0;

    reader_open(&reader, &tokenizer);
    ck_assert_int_eq(ingest_new(&reader, 0, 0, &ingest), ST_OK);
    for (int i = 0; i < INGEST_JOBS_MAX / 2; i++) {
        ck_assert_int_eq(submit_of(ingest, "flood", ++call, "", 0), ST_OK);
    }
    ck_assert_int_eq(submit_of(ingest, "flood", ++call, "", 0), ST_NO_MEMORY);
    ck_assert_str_eq(
        status_detail(),
        "512 messages of this tenant wait for tokenising: the limit is what is left, 512");
    for (int i = 0; i < INGEST_JOBS_MAX / 4; i++) {
        ck_assert_int_eq(submit_of(ingest, "second", ++call, "", 0), ST_OK);
    }
    ck_assert_int_eq(submit_of(ingest, "second", ++call, "", 0), ST_NO_MEMORY);
    ck_assert_int_eq(submit_of(ingest, "third", ++call, "", 0), ST_OK);
    ingest_destroy(&ingest);
    reader_close(&reader, &tokenizer);
}
END_TEST

enum {
    FLOOD = 200,
    OTHER = FLOOD + 1
};

/* Takes what is back; how many of them before the other tenant's. */
static uint32_t
take_all(struct ingest *ingest, uint32_t *left, bool *is_other_back)
{
    struct ingest_job *job;
    uint32_t before = 0;

    while ((job = ingest_take(ingest)) != NULL) {
        *is_other_back |= job->call == OTHER;
        before += !*is_other_back;
        (*left)--;
        ingest_job_destroy(&job);
    }
    return before;
}

/* Of the flood only what is in work already goes before it, and one of the same round. */
START_TEST(a_flood_of_one_tenant_delays_another_by_a_message)
{
    static char text[1u << 16] = {0x0a, (char)0xfc, (char)0xff, 0x03}; /* field 1, its length */
    struct reader reader;
    struct tokenizer *tokenizer;
    struct ingest *ingest;
    uint32_t left = FLOOD + 1, before = 0;
    bool is_other_back = false;

    memset(text + 4, 'a', sizeof(text) - 4);
    reader_open(&reader, &tokenizer);
    ck_assert_int_eq(ingest_new(&reader, 1, 0, &ingest), ST_OK);
    for (uint64_t call = 1; call <= FLOOD; call++) {
        text[4] = (char)('A' + call % 64); /* not a known one */
        ck_assert_int_eq(submit_of(ingest, "flood", call, text, sizeof(text)), ST_OK);
    }
    ck_assert_int_eq(submit_of(ingest, "other", OTHER, text, sizeof(text)), ST_OK);
    (void)take_all(ingest, &left, &is_other_back); /* what was done by then */
    while (left > 0) {
        struct pollfd item = {.fd = ingest_fd(ingest), .events = POLLIN};

        ck_assert_int_eq(poll(&item, 1, 600000), 1);
        before += take_all(ingest, &left, &is_other_back);
    }
    ck_assert_uint_le(before, 2);
    ingest_destroy(&ingest);
    reader_close(&reader, &tokenizer);
}
END_TEST

CHECK_MAIN("ingest", names_that_clients_have_chosen_to_be_alike_are_found_as_fast_as_others,
           a_full_memo_drops_the_least_recently_used,
           ids_larger_than_the_memo_are_refused_and_a_forgotten_name_is_gone,
           what_one_kind_of_name_holds_another_does_not_find,
           every_job_comes_back_once_with_its_own_result,
           more_jobs_than_the_limit_are_refused_by_name,
           a_tenant_leaves_as_many_places_free_as_it_has,
           a_flood_of_one_tenant_delays_another_by_a_message)
