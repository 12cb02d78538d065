/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/kv_layout.h"
#include "tests/kernels/compare.h"
#include "tests/support/check_main.h"

START_TEST(every_element_has_its_own_bytes_and_they_fill_the_block)
{
    for (int id = 0; id < 2; id++) {
        for (uint32_t P = 16; P <= 64; P *= 2) {
            for (uint32_t D = 64; D <= 128; D *= 2) {
                struct kv_layout layout = {P, 2, 3, D, KV_BF16, (enum kv_layout_id)id};
                size_t bytes = kv_layout_block_bytes(&layout);
                unsigned char *seen = calloc(bytes, 1);

                ck_assert_int_eq(kv_layout_check(&layout), ST_OK);
                for (uint32_t i = 0; i < 2 * 2 * 3 * P * D; i++) {
                    size_t at = kv_layout_offset(&layout, i / (2 * 3 * P * D),
                                                 (enum kv_part)(i / (3 * P * D) % 2),
                                                 i / (P * D) % 3, i / D % P, i % D);

                    ck_assert_uint_lt(at, bytes);
                    ck_assert_uint_eq(at % 2, 0);
                    seen[at]++;
                    seen[at + 1]++;
                }
                for (size_t b = 0; b < bytes; b++) {
                    if (seen[b] != 1) {
                        ck_abort_msg("layout %d P=%u D=%u: byte %zu used %d times", id, P, D, b,
                                     seen[b]);
                    }
                }
                free(seen);
            }
        }
    }
}
END_TEST

START_TEST(plain_is_layer_part_head_token_d)
{
    struct kv_layout layout = {32, 3, 2, 64, KV_F32, KV_LAYOUT_PLAIN};

    ck_assert_uint_eq(kv_layout_block_bytes(&layout), 3u * 2 * 2 * 32 * 64 * 4);
    ck_assert_uint_eq(kv_layout_offset(&layout, 0, KV_PART_K, 0, 0, 1), 4);
    ck_assert_uint_eq(kv_layout_offset(&layout, 0, KV_PART_K, 0, 1, 0), 64 * 4);
    ck_assert_uint_eq(kv_layout_offset(&layout, 0, KV_PART_K, 1, 0, 0), 32 * 64 * 4);
    ck_assert_uint_eq(kv_layout_offset(&layout, 0, KV_PART_V, 0, 0, 0), 2 * 32 * 64 * 4);
    ck_assert_uint_eq(kv_layout_offset(&layout, 1, KV_PART_K, 0, 0, 0), 4 * 32 * 64 * 4);
}
END_TEST

/* Offsets written down from the definition: unit of 8 tokens, halves of 64 elements, chunk ^ row.
 */
START_TEST(ck8_matches_offsets_worked_out_by_hand)
{
    struct kv_layout d128 = {16, 1, 1, 128, KV_BF16, KV_LAYOUT_CK8};
    struct kv_layout d64 = {16, 1, 1, 64, KV_BF16, KV_LAYOUT_CK8};

    ck_assert_uint_eq(kv_layout_offset(&d128, 0, KV_PART_K, 0, 0, 0), 0);
    ck_assert_uint_eq(kv_layout_offset(&d128, 0, KV_PART_K, 0, 0, 9), 16 + 2);
    ck_assert_uint_eq(kv_layout_offset(&d128, 0, KV_PART_K, 0, 0, 64), 1024);
    ck_assert_uint_eq(kv_layout_offset(&d128, 0, KV_PART_K, 0, 1, 0), 128 + 16);
    ck_assert_uint_eq(kv_layout_offset(&d128, 0, KV_PART_K, 0, 7, 63), 7 * 128 + 0 + 14);
    ck_assert_uint_eq(kv_layout_offset(&d128, 0, KV_PART_K, 0, 8, 0), 2048);
    ck_assert_uint_eq(kv_layout_offset(&d128, 0, KV_PART_V, 0, 13, 70),
                      16 * 256 + 2048 + 1024 + 5 * 128 + 5 * 16 + 6 * 2);
    ck_assert_uint_eq(kv_layout_offset(&d64, 0, KV_PART_K, 0, 8, 0), 1024);
    ck_assert_uint_eq(kv_layout_offset(&d64, 0, KV_PART_K, 0, 9, 8), 1024 + 128 + 0);
}
END_TEST

START_TEST(block_bytes_are_a_multiple_of_256)
{
    for (uint32_t P = 16; P <= 64; P *= 2) {
        for (int type = 0; type < 2; type++) {
            struct kv_layout layout = {P, 1, 1, 64, (enum kv_type)type, KV_LAYOUT_PLAIN};

            ck_assert_uint_eq(kv_layout_block_bytes(&layout) % 256, 0);
        }
    }
}
END_TEST

static void
refuse(struct kv_layout layout, const char *why)
{
    ck_assert_int_eq(kv_layout_check(&layout), ST_INVALID);
    ck_assert_msg(strstr(status_detail(), why) != NULL, "\"%s\" lacks \"%s\"", status_detail(),
                  why);
}

START_TEST(what_we_do_not_serve_is_refused_by_name)
{
    const struct kv_layout good = {32, 30, 3, 64, KV_F32, KV_LAYOUT_PLAIN};
    struct kv_layout bad;

    ck_assert_int_eq(kv_layout_check(&good), ST_OK);
    bad = good, bad.P = 8;
    refuse(bad, "block of 8 tokens");
    bad = good, bad.L = 0;
    refuse(bad, "0 layers");
    bad = good, bad.Hkv = 0;
    refuse(bad, "0 key/value heads");
    bad = good, bad.D = 96;
    refuse(bad, "head dimension 96");
    bad = good, bad.type = (enum kv_type)7;
    refuse(bad, "KV type 7");
    bad = good, bad.id = (enum kv_layout_id)7;
    refuse(bad, "KV layout 7");
    bad = good, bad.id = KV_LAYOUT_CK8;
    refuse(bad, "bf16 only");
}
END_TEST

CHECK_MAIN("kv_layout", every_element_has_its_own_bytes_and_they_fill_the_block,
           plain_is_layer_part_head_token_d, ck8_matches_offsets_worked_out_by_hand,
           block_bytes_are_a_multiple_of_256, what_we_do_not_serve_is_refused_by_name)
