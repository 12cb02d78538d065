/* SPDX-License-Identifier: Apache-2.0 */
/* The golden values come from make_dockey_golden.py, which knows only the text of the header. */
#include <string.h>

#include "kvpool/dockey.h"
#include "tests/support/check_main.h"

static uint8_t fingerprint[32]; /* 0, 1, 2, ... */

static void
fill(uint8_t *bytes, size_t count, uint8_t first)
{
    for (size_t i = 0; i < count; i++) {
        bytes[i] = (uint8_t)(first + i);
    }
}

static struct dockey
key_of(const char *salt, const uint32_t *ids, size_t id_count)
{
    struct dockey key;

    fill(fingerprint, sizeof(fingerprint), 0);
    ck_assert_int_eq(dockey_compute(fingerprint, salt, strlen(salt), ids, id_count, &key), ST_OK);
    return key;
}

static void
must_equal(const uint8_t bytes[32], const char *hex)
{
    char text[2 * DOCKEY_BYTES + 1];
    struct dockey key;

    memcpy(key.bytes, bytes, DOCKEY_BYTES);
    dockey_hex(&key, DOCKEY_BYTES, text);
    ck_assert_str_eq(text, hex);
}

START_TEST(keys_equal_those_of_an_independent_implementation)
{
    uint32_t thousand[1000];
    const uint32_t one[] = {1};
    const uint32_t three[] = {1, 258, UINT32_MAX};

    for (uint32_t i = 0; i < 1000; i++) {
        thousand[i] = i;
    }
    must_equal(key_of("", NULL, 0).bytes,
               "41078aff64ffae5ebab2d040b4d28ef104fed8965c0e24f21afc3e9a399ba792");
    must_equal(key_of("", one, 1).bytes,
               "ccf19f72fc6e77600ecb971375f89e2132fc1ad253d426b37f7caac5baaf6b61");
    must_equal(key_of("", three, 3).bytes,
               "2696c6a790b1b6e8d899abfdcb157a0e3fd8426db211c6db72f2e51dd99d5735");
    must_equal(key_of("", thousand, 1000).bytes,
               "305687282e647280a92dee23d4ad30460a2ed24a6b35f1fa845c0dc7964e5b65");
}
END_TEST

START_TEST(salt_and_contents_cannot_run_into_each_other)
{
    const uint32_t digits[] = {'2', '3', '4', '5'};

    must_equal(key_of("org_1", digits, 4).bytes,
               "a9d176ad8a67024890798a85fb1318bf41889e4106758f751dfdf3547cf81ea7");
    must_equal(key_of("org_12345", NULL, 0).bytes,
               "fba0f7f17af20c45f15262dbc02dc5fbb380e9c4868a05a2bee9de3ac7d7aeb2");
}
END_TEST

START_TEST(a_place_and_what_stands_before_are_part_of_a_name)
{
    struct dockey document, before, key;

    fill(document.bytes, DOCKEY_BYTES, 0);
    fill(before.bytes, DOCKEY_BYTES, 100);
    ck_assert_int_eq(dockey_at(&document, 5000000000u, &key), ST_OK);
    must_equal(key.bytes, "4d8a1f529bce9fc34f5bbaf3481f344f4575e740da4679675fd20f138288d885");
    ck_assert_int_eq(dockey_behind(&document, &before, &key), ST_OK);
    must_equal(key.bytes, "62f2a703deb3aa06481c6b01f060bb22b16d5a27dd5662327ea374822ed30dcf");
}
END_TEST

static struct pool_identity
identity(void)
{
    struct pool_identity id = {.kv_type = 1, .kv_layout = 2, .block_tokens = 32};

    fill(id.checkpoint, sizeof(id.checkpoint), 0);
    fill(id.tokenizer, sizeof(id.tokenizer), 100);
    return id;
}

START_TEST(a_pool_fingerprint_equals_that_of_an_independent_implementation)
{
    struct pool_identity id = identity();
    uint8_t print[32];

    ck_assert_int_eq(pool_fingerprint(&id, print), ST_OK);
    must_equal(print, "b54eba4013cdd9247d6ff413e985b08d121e68501e8744a3ab9ae13de6efd6d5");
}
END_TEST

START_TEST(everything_that_the_bytes_depend_on_changes_the_fingerprint)
{
    struct pool_identity ids[6];
    uint8_t prints[6][32];

    for (size_t i = 0; i < 6; i++) {
        ids[i] = identity();
    }
    ids[1].checkpoint[31] ^= 1;
    ids[2].tokenizer[0] ^= 1;
    ids[3].kv_type = 0;
    ids[4].kv_layout = 1;
    ids[5].block_tokens = 16;
    for (size_t i = 0; i < 6; i++) {
        ck_assert_int_eq(pool_fingerprint(&ids[i], prints[i]), ST_OK);
        for (size_t j = 0; j < i; j++) {
            ck_assert(memcmp(prints[i], prints[j], 32) != 0);
        }
    }
}
END_TEST

START_TEST(the_fingerprint_is_part_of_the_key)
{
    const uint32_t ids[] = {1, 2, 3};
    struct dockey ours = key_of("", ids, 3);
    struct dockey theirs;

    fingerprint[0] ^= 1;
    ck_assert_int_eq(dockey_compute(fingerprint, NULL, 0, ids, 3, &theirs), ST_OK);
    ck_assert(memcmp(&ours, &theirs, sizeof(ours)) != 0);
}
END_TEST

START_TEST(a_key_may_be_shown_short)
{
    struct dockey key = {.bytes = {0x0a, 0xf1, 0x23}};
    char text[7];

    dockey_hex(&key, 3, text);
    ck_assert_str_eq(text, "0af123");
    dockey_hex(&key, 0, text);
    ck_assert_str_eq(text, "");
}
END_TEST

CHECK_MAIN("dockey", keys_equal_those_of_an_independent_implementation,
           salt_and_contents_cannot_run_into_each_other,
           a_place_and_what_stands_before_are_part_of_a_name,
           a_pool_fingerprint_equals_that_of_an_independent_implementation,
           everything_that_the_bytes_depend_on_changes_the_fingerprint,
           the_fingerprint_is_part_of_the_key, a_key_may_be_shown_short)
