/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks that go to the host tier and come back: the same bytes, the same answer, and whatever is
 * not what it was is computed. */
#include <stdatomic.h>
#include <string.h>

#include "common/mem.h"
#include "tests/support/abc_request.h"
#include "tests/support/check_main.h"
#include "tests/support/engine_rig.h"

#define PLACES 32
#define BLOCKS 3 /* of document a: 37 tokens in blocks of 16 */

static const uint32_t places[BLOCKS] = {20, 3, 31};

/* Asks the abc request, so that the documents are there, and spills document a. */
static struct rig *
rig_with_a_spilled(const struct rig_config *config, struct abc *abc)
{
    struct rig *rig = rig_new(config);
    struct rig_request request;

    rig_add_host(rig, PLACES);
    *abc = abc_new(rig);
    request = abc_request(abc, 1);
    rig_assign(rig, &request);
    rig_run(rig);
    rig_spill(rig, 7, abc->docs[0].blocks, places, BLOCKS);
    rig_run_moves(rig, 1);
    ck_assert_uint_eq(rig->spills[7].blocks_moved, BLOCKS);
    ck_assert_str_eq(rig->spills[7].error, "");
    return rig;
}

/* Wipes the arena's copy of document a; what it held is returned. */
static float *
wipe_a(struct rig *rig, const struct abc *abc)
{
    size_t block_bytes = kv_layout_block_bytes(&rig->layout);
    float *kv = rig_kv(rig, abc->docs[0].blocks, 37);

    for (uint32_t i = 0; i < BLOCKS; i++) {
        memset((char *)rig->kv + abc->docs[0].blocks[i] * block_bytes, 0x55, block_bytes);
    }
    return kv;
}

/* Request `id` over the same documents; a is taken from the host as far as `n_host` says. */
static void
ask_again(struct rig *rig, struct abc *abc, uint64_t id, uint32_t start, uint32_t n_host,
          const uint64_t *sums)
{
    struct rig_request request = abc_request(abc, id);

    abc->docs[0].build = 11;
    abc->docs[0].start = start;
    abc->docs[0].place.host_places = places + start / rig->config.block_tokens;
    abc->docs[0].place.host_sums = sums + start / rig->config.block_tokens;
    abc->docs[0].place.n_host = n_host;
    abc->docs[1].build = abc->docs[2].build = 0;
    rig->rows_built = 0;
    rig_assign(rig, &request);
    rig_run_moves(rig, 0);
    abc->docs[0].place.n_host = 0;
}

static void
check_a(struct rig *rig, const struct abc *abc, const float *kv)
{
    float *now = rig_kv(rig, abc->docs[0].blocks, 37);

    ck_assert_mem_eq(now, kv, rig_kv_bytes(rig, 37));
    mem_free(now);
    check_same_answer(&rig->heard[1], &rig->heard[2]);
    ck_assert_uint_eq(rig->builds[11].n_sealed, 1);
    ck_assert_uint_eq(rig->builds[11].n_loaded, 1);
}

START_TEST(a_document_that_comes_back_has_the_same_bytes_and_computes_nothing)
{
    struct rig_config config = rig_defaults();
    struct abc abc;

    fill_all();
    struct rig *rig = rig_with_a_spilled(&config, &abc);
    float *kv = wipe_a(rig, &abc);

    ask_again(rig, &abc, 2, 0, BLOCKS, rig->spills[7].sums);
    check_a(rig, &abc, kv);
    ck_assert_uint_eq(rig->builds[11].blocks_moved, BLOCKS);
    ck_assert_uint_eq(rig->rows_built, 0);
    mem_free(kv);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

START_TEST(what_the_tier_does_not_have_is_computed_behind_what_it_has)
{
    struct rig_config config = rig_defaults();
    struct abc abc;

    fill_all();
    struct rig *rig = rig_with_a_spilled(&config, &abc);
    float *kv = wipe_a(rig, &abc);

    ask_again(rig, &abc, 2, 0, 2, rig->spills[7].sums);
    check_a(rig, &abc, kv);
    ck_assert_uint_eq(rig->rows_built, 37 - 32);
    mem_free(kv);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

START_TEST(a_tail_comes_back_behind_a_head_that_stayed)
{
    struct rig_config config = rig_defaults();
    struct abc abc;

    fill_all();
    struct rig *rig = rig_with_a_spilled(&config, &abc);
    size_t block_bytes = kv_layout_block_bytes(&rig->layout);
    float *kv = rig_kv(rig, abc.docs[0].blocks, 37);

    for (uint32_t i = 1; i < BLOCKS; i++) {
        memset((char *)rig->kv + abc.docs[0].blocks[i] * block_bytes, 0x55, block_bytes);
    }
    ask_again(rig, &abc, 2, 16, 2, rig->spills[7].sums);
    check_a(rig, &abc, kv);
    ck_assert_uint_eq(rig->builds[11].blocks_moved, 2);
    ck_assert_uint_eq(rig->rows_built, 0);
    mem_free(kv);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

START_TEST(any_bit_that_changed_is_found_and_computed_anew)
{
    struct rig_config config = rig_defaults();
    struct abc abc;

    fill_all();
    for (uint32_t bad = 0; bad < BLOCKS; bad++) {
        struct rig *rig = rig_with_a_spilled(&config, &abc);
        size_t block_bytes = kv_layout_block_bytes(&rig->layout);
        float *kv = wipe_a(rig, &abc);

        rig->host[places[bad] * block_bytes + (bad + 1) * block_bytes / 4] ^= 0x10;
        ask_again(rig, &abc, 2, 0, BLOCKS, rig->spills[7].sums);
        check_a(rig, &abc, kv);
        ck_assert_uint_eq(rig->builds[11].blocks_moved, bad);
        ck_assert_ptr_nonnull(strstr(rig->builds[11].error, "has sum"));
        ck_assert_uint_eq(rig->rows_built, 37 - 16 * bad);
        mem_free(kv);
        abc_free(&abc);
        rig_destroy(&rig);
    }
}
END_TEST

START_TEST(a_load_that_is_stopped_writes_nothing_afterwards)
{
    struct rig_config config = rig_defaults();
    struct abc abc;

    fill_all();
    struct rig *rig = rig_with_a_spilled(&config, &abc);
    struct rig_request request = abc_request(&abc, 2);

    for (uint64_t i = 0; i < 50; i++) {
        float *kv;

        abc.docs[0].build = 11;
        abc.docs[0].place.host_places = places;
        abc.docs[0].place.host_sums = rig->spills[7].sums;
        abc.docs[0].place.n_host = BLOCKS;
        abc.docs[1].build = abc.docs[2].build = 0;
        request.id = 0;
        request.n_docs = 1;
        rig_assign(rig, &request);
        if (i % 2 == 0) {
            (void)rig_step(rig);
        }
        rig_stop_build(rig, 11);
        kv = wipe_a(rig, &abc); /* the blocks are others' from here on */
        mem_free(kv);
        kv = rig_kv(rig, abc.docs[0].blocks, 37);
        rig_run(rig);
        ck_assert_uint_eq(rig->builds[11].n_dropped, i + 1);
        float *now = rig_kv(rig, abc.docs[0].blocks, 37);

        ck_assert_mem_eq(now, kv, rig_kv_bytes(rig, 37));
        mem_free(now);
        mem_free(kv);
    }
    ck_assert_uint_eq(engine_open(rig->engine), 0);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

START_TEST(after_a_reset_nothing_is_being_copied)
{
    Kvasir__V1__Reset reset = KVASIR__V1__RESET__INIT;
    struct rig_config config = rig_defaults();
    struct abc abc;

    fill_all();
    struct rig *rig = rig_with_a_spilled(&config, &abc);

    for (uint64_t i = 0; i < 20; i++) {
        rig_spill(rig, 8, abc.docs[0].blocks, places, BLOCKS);
    }
    rig_send(rig, KVASIR__V1__DAEMON_MESSAGE__BODY_RESET, &reset);
    memset(rig->host, 0x77, (size_t)PLACES * kv_layout_block_bytes(&rig->layout));
    rig_run(rig);
    for (size_t i = 0; i < PLACES * kv_layout_block_bytes(&rig->layout); i++) {
        ck_assert_int_eq(rig->host[i], 0x77);
    }
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

START_TEST(places_to_be_erased_are_zero_when_that_is_said)
{
    Kvasir__V1__Erase erase = KVASIR__V1__ERASE__INIT;
    struct rig_config config = rig_defaults();
    uint32_t ids[BLOCKS];
    struct abc abc;

    fill_all();
    struct rig *rig = rig_with_a_spilled(&config, &abc);
    size_t block_bytes = kv_layout_block_bytes(&rig->layout);

    memcpy(ids, places, sizeof(ids));
    erase.has_erase = true;
    erase.erase = 99;
    erase.n_host_block_ids = BLOCKS;
    erase.host_block_ids = ids;
    rig->erased = 0;
    rig_send(rig, KVASIR__V1__DAEMON_MESSAGE__BODY_ERASE, &erase);
    while (rig->erased != 99) {
        rig_run(rig);
        ck_assert(rig->erased == 99 || sem_wait(&rig->moved) == 0);
    }
    for (uint32_t i = 0; i < BLOCKS; i++) {
        for (size_t at = 0; at < block_bytes; at++) {
            ck_assert_int_eq(rig->host[places[i] * block_bytes + at], 0);
        }
    }
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

START_TEST(what_kvasird_may_not_say_is_refused_by_name)
{
    static const uint32_t far_places[BLOCKS] = {1, PLACES, 2};
    struct rig_config config = rig_defaults();
    uint64_t sums[BLOCKS] = {0};
    struct abc abc;

    fill_all();
    struct rig *rig = rig_with_a_spilled(&config, &abc);

    rig_spill(rig, 9, abc.docs[0].blocks, far_places, BLOCKS);
    rig_run(rig);
    ck_assert_str_eq(rig->spills[9].error, "refused");
    ck_assert_uint_eq(rig->spills[9].blocks_moved, 0);
    rig_spill(rig, 10, abc.docs[0].blocks, places, 0);
    rig_run(rig);
    ck_assert_str_eq(rig->spills[10].error, "refused");

    struct rig_request request = abc_request(&abc, 2);

    abc.docs[0].build = 12;
    abc.docs[0].place.host_places = far_places;
    abc.docs[0].place.host_sums = sums;
    abc.docs[0].place.n_host = BLOCKS;
    rig_assign(rig, &request);
    rig_run(rig);
    ck_assert_ptr_nonnull(strstr(rig->heard[2].error, "place 1 is 32: there are 32"));

    request.id = 3;
    abc.docs[0].build = 13;
    abc.docs[0].place.host_places = places;
    abc.docs[0].start = 16;
    rig_assign(rig, &request);
    rig_run(rig);
    ck_assert_ptr_nonnull(strstr(rig->heard[3].error, "3 blocks of the host tier"));
    ck_assert_uint_eq(engine_open(rig->engine), 0);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

START_TEST(without_a_host_tier_all_is_computed_and_spills_are_refused)
{
    struct rig_config config = rig_defaults();
    struct rig *rig = rig_new(&config);
    uint64_t sums[BLOCKS] = {0};

    fill_all();
    struct abc abc = abc_new(rig);
    struct rig_request request = abc_request(&abc, 1);

    rig_spill(rig, 9, abc.docs[0].blocks, places, BLOCKS);
    abc.docs[0].place.host_places = places;
    abc.docs[0].place.host_sums = sums;
    abc.docs[0].place.n_host = BLOCKS;
    rig_assign(rig, &request);
    rig_run(rig);
    ck_assert_str_eq(rig->spills[9].error, "refused");
    ck_assert_int_ge(rig->heard[1].finish, 0);
    ck_assert_uint_eq(rig->rows_built, 37 + 16 + 61);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

/* A copier without memory for the first `refused` calls that need some. */
static atomic_uint refused;

static enum status
create_or_not(const struct copier_config *config, struct copier **copier_out)
{
    if (refused > 0) {
        refused--;
        return ERR(ST_NO_MEMORY, "no memory for a copier");
    }
    return copier_cpu.create(config, copier_out);
}

static enum status
load_or_not(struct copier *copier, struct copier_batch batch)
{
    if (refused > 0) {
        refused--;
        return ERR(ST_NO_MEMORY, "no memory for a load");
    }
    return copier_cpu.load(copier, batch);
}

START_TEST(without_memory_for_a_copy_a_load_is_computed_and_nothing_is_called_bad)
{
    struct copier_ops copier = copier_cpu;
    struct device_kind kind = device_cpu;
    struct rig_config config = rig_defaults();
    struct abc abc;

    fill_all();
    copier.create = create_or_not;
    copier.load = load_or_not;
    kind.copier = &copier;
    config.kind = &kind;
    refused = 1; /* the thread's start; the spill has what it needs */
    struct rig *rig = rig_with_a_spilled(&config, &abc);
    float *kv = wipe_a(rig, &abc);

    refused = 1;
    ask_again(rig, &abc, 2, 0, BLOCKS, rig->spills[7].sums);
    check_a(rig, &abc, kv);
    ck_assert_uint_eq(rig->builds[11].blocks_moved, 0);
    ck_assert(rig->builds[11].is_unread);
    ck_assert_uint_eq(rig->rows_built, 37);
    mem_free(kv);
    abc_free(&abc);
    rig_destroy(&rig);
}
END_TEST

CHECK_MAIN("engine_moves", a_document_that_comes_back_has_the_same_bytes_and_computes_nothing,
           what_the_tier_does_not_have_is_computed_behind_what_it_has,
           a_tail_comes_back_behind_a_head_that_stayed,
           any_bit_that_changed_is_found_and_computed_anew,
           a_load_that_is_stopped_writes_nothing_afterwards, after_a_reset_nothing_is_being_copied,
           places_to_be_erased_are_zero_when_that_is_said,
           what_kvasird_may_not_say_is_refused_by_name,
           without_a_host_tier_all_is_computed_and_spills_are_refused,
           without_memory_for_a_copy_a_load_is_computed_and_nothing_is_called_bad)
