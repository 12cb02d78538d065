/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums, comparison and filling of blocks on the device against their twins, and the engine's
 * upkeep over them. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "kernels/kv_checksum.h"
#include "kernels/kv_compare.h"
#include "tests/support/engine_rig.h"
#include "tests/support/gpu_scene.h"

static void
fill_random(void *memory, size_t bytes)
{
    uint16_t *halves = memory;

    for (size_t i = 0; i < bytes / 2; i++) {
        halves[i] = to_bf16(random_value());
    }
}

/* Pieces of 64 KiB, whole and begun; four loads a thread, and fewer. */
START_TEST(sums_are_those_of_the_twin_for_every_size_of_block)
{
    const size_t sizes[] = {256, 4096, 65536, 65536 + 256, 3 * 65536 - 16, 1 << 20};
    enum {
        BLOCKS = 9
    };

    for (size_t i = 0; i < gpu_cases(4, sizeof(sizes) / sizeof(sizes[0])); i++) {
        uint32_t blocks[7] = {3, 0, 8, 3, 1, 7, 2};
        uint64_t want[7], got[7];
        char *host = mem_zalloc(BLOCKS, sizes[i]);

        fill_random(host, BLOCKS * sizes[i]);
        struct kv_checksum_args args = {.kv = host,
                                        .block_bytes = sizes[i],
                                        .n_blocks = BLOCKS,
                                        .blocks = blocks,
                                        .sums = want,
                                        .N = 7};

        CHECK_OK(kv_checksum_ref(args));
        void *kv = to_device(host, BLOCKS * sizes[i]);
        void *ids = to_device(blocks, sizeof(blocks)), *sums = to_device(want, sizeof(want));

        args.kv = kv;
        args.blocks = ids;
        args.sums = sums;
        CHECK_OK(gpu->kv_checksum(gpu, args));
        CHECK_OK(gpu->download(gpu, got, sums, sizeof(got)));
        CHECK_OK(gpu->finish(gpu));
        ck_assert_mem_eq(got, want, sizeof(got));
        release_all((const void *[]){kv, ids, sums, NULL});
        mem_free(host);
    }
    printf("kv_checksum: bits of the twin for blocks of 256 bytes to 1 MiB\n");
}
END_TEST

static void
compare_case(uint32_t P, uint32_t D)
{
    const struct kv_layout layout = {P, 3, 5, D, KV_BF16, KV_LAYOUT_CK8};
    const size_t block_bytes = kv_layout_block_bytes(&layout);
    uint32_t a[6] = {6, 6, 6, 6, 6, 7}, b[6] = {0, 1, 2, 3, 4, 5};
    uint32_t tokens[6] = {P, P - 1, 1, 0, P, P};
    struct kv_difference want[6], got[6];
    char *host = mem_zalloc(8, block_bytes);

    fill_random(host, 8 * block_bytes);
    memcpy(host, host + 6 * block_bytes, block_bytes); /* 0 is 6 but for one bit, */
    host[block_bytes / 3] ^= 1;
    memcpy(host + 5 * block_bytes, host + 7 * block_bytes, block_bytes); /* 5 is 7, */
    memset(host + 4 * block_bytes, 0xff, 64); /* and 4 begins with what is no number */
    struct kv_compare_args args = {.kv = host,
                                   .layout = layout,
                                   .n_blocks = 8,
                                   .a = a,
                                   .b = b,
                                   .tokens = tokens,
                                   .diff = want,
                                   .N = 6};

    CHECK_OK(kv_compare_ref(args));
    ck_assert_uint_eq(want[0].elements, 1);
    ck_assert_uint_eq(want[5].elements, 0);
    void *kv = to_device(host, 8 * block_bytes), *d_a = to_device(a, sizeof(a));
    void *d_b = to_device(b, sizeof(b)), *d_tokens = to_device(tokens, sizeof(tokens));
    void *diff = to_device(want, sizeof(want));

    args.kv = kv;
    args.a = d_a;
    args.b = d_b;
    args.tokens = d_tokens;
    args.diff = diff;
    CHECK_OK(gpu->kv_compare(gpu, args));
    CHECK_OK(gpu->download(gpu, got, diff, sizeof(got)));
    CHECK_OK(gpu->finish(gpu));
    for (int i = 0; i < 6; i++) {
        ck_assert_uint_eq(got[i].elements, want[i].elements);
        ck_assert(isinf(got[i].relative) == isinf(want[i].relative));
        ck_assert(isinf(want[i].relative)
                  || fabsf(got[i].relative - want[i].relative) <= 1e-4f * want[i].relative);
    }
    release_all((const void *[]){kv, d_a, d_b, d_tokens, diff, NULL});
    mem_free(host);
}

START_TEST(differences_are_those_of_the_twin)
{
    for (uint32_t P = 16; P <= 64; P *= 2) {
        compare_case(P, 64);
        compare_case(P, 128);
    }
    printf("kv_compare: elements exact, relative within 1e-4 of the twin\n");
}
END_TEST

START_TEST(a_fill_writes_its_bytes_and_no_others)
{
    unsigned char host[4096], got[4096];

    fill_random(host, sizeof(host));
    void *memory = to_device(host, sizeof(host));

    CHECK_OK(gpu->fill(gpu, (char *)memory + 256, 0xff, 1024));
    memset(host + 256, 0xff, 1024);
    CHECK_OK(gpu->download(gpu, got, memory, sizeof(got)));
    CHECK_OK(gpu->finish(gpu));
    ck_assert_mem_eq(got, host, sizeof(host));
    gpu->release(gpu, memory);
}
END_TEST

/* --- the engine ------------------------------------------------------------------------------- */

enum {
    DOC = 141,
    DOC_BLOCKS = 9 /* of 16 */
};

static struct rig *
open_rig(bool is_deterministic)
{
    struct tiny_model_config tiny = tiny_model_defaults();
    struct rig_config config = rig_defaults();

    tiny.H = 8;
    tiny.Hkv = 2;
    tiny.D = 128;
    tiny.C = 512;
    tiny.F = 768;
    tiny.type = GGUF_TENSOR_BF16;
    config.tiny = &tiny;
    config.kind = &device_cuda;
    config.is_deterministic = is_deterministic;
    return rig_new(&config);
}

static uint64_t
sum_of(const struct rig *rig, uint32_t block)
{
    size_t bytes = kv_layout_block_bytes(&rig->layout);
    char *host = mem_zalloc(1, bytes);

    CHECK_OK(rig->kind->read(host, (char *)rig->kv + block * bytes, bytes));
    uint64_t sum = kv_checksum_block(host, bytes);

    mem_free(host);
    return sum;
}

static void
build(struct rig *rig, struct rig_doc *doc, bool has_company)
{
    uint32_t query[24];
    struct rig_request company = {
        .id = 1, .query = query, .n_query = 24, .max_tokens = 3, .ignores_end = true};

    for (uint32_t t = 0; t < 24; t++) {
        query[t] = 5 + t;
    }
    if (has_company) { /* other rows in its steps */
        rig_assign(rig, &company);
    }
    rig_assign(rig, &(struct rig_request){.docs = doc, .n_docs = 1});
    rig_run(rig);
    ck_assert_uint_eq(rig->builds[doc->build].n_sealed, 1);
}

static void
check(struct rig *rig, uint64_t id, uint32_t *blocks, uint32_t *twins)
{
    Kvasir__V1__Check wire = KVASIR__V1__CHECK__INIT;

    wire.check = id;
    wire.block_ids = blocks;
    wire.n_block_ids = DOC_BLOCKS;
    wire.twin_block_ids = twins;
    wire.n_twin_block_ids = twins == NULL ? 0 : DOC_BLOCKS;
    wire.n_tokens = DOC;
    rig_send(rig, KVASIR__V1__DAEMON_MESSAGE__BODY_CHECK, &wire);
    while (rig->checked.check != id) {
        ck_assert(rig_step(rig) || engine_has_upkeep(rig->engine));
    }
    ck_assert_uint_eq(rig->checked.n_sums, DOC_BLOCKS);
}

static void
seal_and_check(bool is_deterministic)
{
    uint32_t ids[DOC];
    struct rig *rig = open_rig(is_deterministic);

    for (uint32_t t = 0; t < DOC; t++) {
        ids[t] = 3 + (t * 31 + t * t) % 256;
    }
    struct rig_doc doc = {ids, DOC, rig_blocks(rig, DOC), 1, false, 0, {0}};
    struct rig_doc again = {ids, DOC, rig_blocks(rig, DOC), 2, false, 0, {0}};
    uint64_t sums[DOC_BLOCKS];

    build(rig, &doc, false);
    ck_assert_uint_eq(rig->n_sums, DOC_BLOCKS);
    memcpy(sums, rig->sums, sizeof(sums));
    for (uint32_t i = 0; i < DOC_BLOCKS; i++) {
        ck_assert_uint_eq(sums[i], sum_of(rig, doc.blocks[i]));
    }
    build(rig, &again, true);
    check(rig, 1, again.blocks, doc.blocks);
    printf("%s: %llu elements of %u tokens differ when computed again in other company, "
           "relative %.2e\n",
           is_deterministic ? "deterministic" : "default",
           (unsigned long long)rig->checked.differing, DOC, (double)rig->checked.relative);
    ck_assert(!is_deterministic || rig->checked.differing == 0);
    ck_assert_float_lt(rig->checked.relative, KV_COMPARE_ROUNDING_BF16);
    char *at = (char *)rig->kv + doc.blocks[4] * kv_layout_block_bytes(&rig->layout) + 1000;
    char byte;

    CHECK_OK(rig->kind->read(&byte, at, 1));
    byte ^= 16;
    CHECK_OK(rig->kind->write(at, &byte, 1));
    check(rig, 2, doc.blocks, NULL);
    for (uint32_t i = 0; i < DOC_BLOCKS; i++) {
        ck_assert_int_eq(rig->checked.sums[i] == sums[i], i != 4);
    }
    mem_free(doc.blocks);
    mem_free(again.blocks);
    rig_destroy(&rig);
}

START_TEST(a_seal_brings_the_sums_of_what_is_in_memory_and_a_flipped_bit_is_found)
{
    seal_and_check(false);
}
END_TEST

START_TEST(with_deterministic_a_document_computed_again_has_the_same_bits)
{
    seal_and_check(true);
}
END_TEST

GPU_MAIN("upkeep_cuda", gpu_open(), sums_are_those_of_the_twin_for_every_size_of_block,
         differences_are_those_of_the_twin, a_fill_writes_its_bytes_and_no_others,
         a_seal_brings_the_sums_of_what_is_in_memory_and_a_flipped_bit_is_found,
         with_deterministic_a_document_computed_again_has_the_same_bits)
