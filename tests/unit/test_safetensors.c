/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "common/mem.h"
#include "model/safetensors.h"
#include "tests/support/check_main.h"
#include "tests/support/hf_dir.h"

#define NAME      "test.safetensors"
#define FILE_ROOM 4096

/* Puts a file together: length, header, data; returns its bytes. */
static size_t
make(const char *header, size_t data_bytes, uint8_t file[FILE_ROOM])
{
    uint64_t length = strlen(header);

    ck_assert_uint_le(8 + length + data_bytes, FILE_ROOM);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    for (size_t i = 0; i < data_bytes; i++) {
        file[8 + length + i] = (uint8_t)i;
    }
    return 8 + length + data_bytes;
}

static const char good[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                           "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[8,32]},"
                           "\"a\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]},"
                           "\"s\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[32,34]}}   ";

START_TEST(a_file_gives_back_its_tensors)
{
    uint8_t file[FILE_ROOM];
    size_t length = make(good, 34, file);
    struct safetensors *st = NULL;

    ck_assert_msg(safetensors_open_bytes(NAME, file, length, &st) == ST_OK, "%s", status_detail());
    ck_assert_uint_eq(safetensors_count(st), 3);
    const struct safetensors_tensor *b = safetensors_find(st, "b");
    ck_assert_ptr_nonnull(b);
    ck_assert_int_eq(b->type, GGUF_TENSOR_F32);
    ck_assert(b->n_dims == 2 && b->shape[0] == 2 && b->shape[1] == 3 && b->bytes == 24);
    ck_assert_ptr_eq(b->data, file + length - 34 + 8);
    const struct safetensors_tensor *s = safetensors_find(st, "s");
    ck_assert(s != NULL && s->n_dims == 0 && s->bytes == 2);
    ck_assert_ptr_eq(safetensors_at(st, 0), safetensors_find(st, "a")); /* in order of data */
    ck_assert_ptr_null(safetensors_find(st, "c"));
    ck_assert_str_eq(safetensors_path(st), NAME);
    safetensors_close(&st);
    ck_assert_ptr_null(st);
    safetensors_close(&st);
}
END_TEST

START_TEST(a_file_without_tensors_is_a_file)
{
    uint8_t file[FILE_ROOM];
    size_t length = make("{}", 0, file);
    struct safetensors *st = NULL;

    ck_assert_int_eq(safetensors_open_bytes(NAME, file, length, &st), ST_OK);
    ck_assert_uint_eq(safetensors_count(st), 0);
    safetensors_close(&st);
}
END_TEST

#define TENSOR(dtype, shape, offsets)                                                              \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"
#define TWO(first, second)                                                                         \
    "{\"t\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" first                              \
    "},\"u\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" second "}}"

static const struct bad {
    const char *header;
    size_t data_bytes;
    const char *reason;
} bads[] = {
    {"", 8, "offset 8: the header is not a JSON object"},
    {"[]", 0, "offset 8: the header is not a JSON object"},
    {" {}", 0, "offset 8: the header is not a JSON object"},
    {"{\"t\":1}", 0, "tensor t: not described by an object"},
    {"{\"t\":null}", 0, "tensor t: not described by an object"},
    {"{\"\":{}}", 0, "a tensor without a name"},
    {"{\"a b\":{}}", 0, "a tensor's name has the character 0x20"},
    {"{\"a\\nb\":{}}", 0, "a tensor's name has the character 0x0a"},
    {"{\"t\":{}}", 0, "tensor t: no dtype"},
    {TENSOR("7", "[1]", "[0,4]"), 4, "tensor t: no dtype"},
    {TENSOR("\"F8_E4M3\"", "[4]", "[0,4]"), 4, "tensor t: dtype F8_E4M3 is not served"},
    {TENSOR("\"F64\"", "[1]", "[0,8]"), 8, "tensor t: dtype F64 is not served"},
    {TENSOR("\"F32\"", "1", "[0,4]"), 4, "tensor t: no shape of at most 4 dimensions"},
    {TENSOR("\"F32\"", "[1,1,1,1,1]", "[0,4]"), 4, "tensor t: no shape of at most 4"},
    {TENSOR("\"F32\"", "[0]", "[0,0]"), 0, "tensor t: dimension 0 is not a positive integer"},
    {TENSOR("\"F32\"", "[1,-1]", "[0,4]"), 4, "tensor t: dimension 1 is not a positive"},
    {TENSOR("\"F32\"", "[1.0]", "[0,4]"), 4, "tensor t: dimension 0 is not a positive"},
    {TENSOR("\"F32\"", "[4294967296,4294967296]", "[0,4]"), 4, "tensor t: dimension 1 is not a"},
    {TENSOR("\"F32\"", "[1]", "[0]"), 4, "tensor t: data_offsets are not two offsets"},
    {TENSOR("\"F32\"", "[1]", "[0,4,8]"), 4, "tensor t: data_offsets are not two offsets"},
    {TENSOR("\"F32\"", "[1]", "[-4,0]"), 4, "tensor t: data_offsets are not two offsets"},
    {TENSOR("\"F32\"", "[1]", "[4,0]"), 4, "tensor t: data from 4 to 0 does not lie in the"},
    {TENSOR("\"F32\"", "[2]", "[0,8]"), 4, "tensor t: data from 0 to 8 does not lie in the file"},
    {TENSOR("\"F32\"", "[1]", "[18446744073709551612,18446744073709551615]"), 4,
     "tensor t: data from 18446744073709551612 to 18446744073709551615 does not lie"},
    {TENSOR("\"F32\"", "[1]", "[0,8]"), 8, "tensor t: 8 bytes of data, but its shape takes 4"},
    {TENSOR("\"F32\"", "[1]", "[2,6]"), 6, "tensor t: data at 2 is not aligned to its elements"},
    {"{\"t\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4,
     "tensor t: unknown property x"},
    {TENSOR("\"F32\"", "[1]", "[4,8]"), 8, "tensor t: 4 bytes before its data are no tensor's"},
    {TENSOR("\"F32\"", "[1]", "[0,4]"), 8, "the last 4 bytes are no tensor's"},
    {TWO("[0,8]", "[4,12]"), 12, "tensor u: overlaps tensor t"},
    {TWO("[0,8]", "[0,8]"), 8, "tensor "},
    {TWO("[0,8]", "[12,20]"), 20, "tensor u: 4 bytes before its data are no tensor's"},
    {"{\"t\":{},\"t\":{}}", 0, "an object has one key twice"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__.a is not a string"},
};

START_TEST(a_bad_file_is_refused_with_file_tensor_and_reason)
{
    const struct bad *bad = &bads[_i];
    uint8_t file[FILE_ROOM];
    size_t length = make(bad->header, bad->data_bytes, file);
    struct safetensors *st = NULL;
    char expected[200];

    ck_assert_int_eq(safetensors_open_bytes(NAME, file, length, &st), ST_INVALID);
    ck_assert_ptr_null(st);
    (void)snprintf(expected, sizeof(expected), NAME ": %s", bad->reason);
    ck_assert_msg(strncmp(status_detail(), expected, strlen(expected)) == 0,
                  "got \"%s\", not \"%s\"", status_detail(), expected);
}
END_TEST

START_TEST(every_cut_of_a_file_is_refused)
{
    uint8_t file[FILE_ROOM];
    size_t length = make(good, 34, file);

    for (size_t cut = 0; cut < length; cut++) {
        struct safetensors *st = NULL;
        uint8_t *copy = malloc(cut + 1); /* an exact copy, for sanitizers */

        memcpy(copy, file, cut);
        ck_assert_int_eq(safetensors_open_bytes(NAME, copy, cut, &st), ST_INVALID);
        free(copy);
    }
    memset(file, 0xFF, 8);
    struct safetensors *st = NULL;
    ck_assert_int_eq(safetensors_open_bytes(NAME, file, length, &st), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "offset 0: a header of 18446744073709551615"));
}
END_TEST

START_TEST(a_mapped_file_of_the_safetensors_package_is_read)
{
    static const char source[] = "hf_sharded/model-00001-of-00004.safetensors";
    struct hf_dir dir = hf_dir_new();
    struct safetensors *mapped = NULL, *in_memory = NULL;
    uint8_t digests[2][32];
    char path[256];
    size_t length;
    char *bytes = hf_golden_bytes(source, &length);

    hf_dir_copy(&dir, "m.safetensors", source);
    (void)snprintf(path, sizeof(path), "%s/m.safetensors", dir.path);
    ck_assert_msg(safetensors_open(path, &mapped) == ST_OK, "%s", status_detail());
    ck_assert_int_eq(safetensors_open_bytes(NAME, bytes, length, &in_memory), ST_OK);
    ck_assert_int_eq(safetensors_fingerprint(mapped, digests[0]), ST_OK);
    ck_assert_int_eq(safetensors_fingerprint(in_memory, digests[1]), ST_OK);
    ck_assert_mem_eq(digests[0], digests[1], 32);
    const struct safetensors_tensor *q =
        safetensors_find(mapped, "model.layers.0.self_attn.q_proj.weight");
    ck_assert_ptr_nonnull(q);
    for (uint64_t i = 0; i < 64 * 8; i++) {
        float value = hf_matrix_value("model.layers.0.self_attn.q_proj.weight", i);

        ck_assert_int_eq(memcmp((const char *)q->data + 2 * i, (const char *)&value + 2, 2), 0);
    }
    safetensors_close(&mapped);
    safetensors_close(&in_memory);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(safetensors_open(path, &mapped), ST_NOT_FOUND);
    ck_assert_int_eq(safetensors_open(dir.path, &mapped), ST_INVALID);
    hf_dir_remove(&dir);
    free(bytes);
}
END_TEST

START_TEST(every_failing_allocation_is_survived)
{
    uint8_t file[FILE_ROOM];
    size_t length = make(good, 34, file);
    struct safetensors *st = NULL;
    uint64_t before = mem_allocations();

    ck_assert_int_eq(safetensors_open_bytes(NAME, file, length, &st), ST_OK);
    safetensors_close(&st);
    uint64_t needed = mem_allocations() - before;
    for (uint64_t n = 1; n <= needed; n++) {
        mem_fail_at(n);
        ck_assert_int_eq(safetensors_open_bytes(NAME, file, length, &st), ST_NO_MEMORY);
        mem_fail_at(0);
        ck_assert_ptr_null(st);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("safetensors");
    TCase *tcase = tcase_create("safetensors");
    SRunner *runner = srunner_create(suite);

    tcase_add_test(tcase, a_file_gives_back_its_tensors);
    tcase_add_test(tcase, a_file_without_tensors_is_a_file);
    tcase_add_loop_test(tcase, a_bad_file_is_refused_with_file_tensor_and_reason, 0,
                        (int)(sizeof(bads) / sizeof(bads[0])));
    tcase_add_test(tcase, every_cut_of_a_file_is_refused);
    tcase_add_test(tcase, a_mapped_file_of_the_safetensors_package_is_read);
    tcase_add_test(tcase, every_failing_allocation_is_survived);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
