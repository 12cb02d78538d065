/* SPDX-License-Identifier: Apache-2.0 */
/* Malformed files are made two ways: a good file with one field changed, and raw bytes. */
#include <string.h>
#include <unistd.h>

#include "common/mem.h"
#include "model/gguf.h"
#include "model/gguf_write.h"
#include "model/tiny_model.h"
#include "tests/support/check_main.h"

#define NAME "test.gguf"

static void
put(struct gguf_writer *w, const void *bytes, size_t length)
{
    gguf_write_bytes(w, bytes, length);
}

static void
put_u32(struct gguf_writer *w, uint32_t value)
{
    put(w, &value, sizeof(value));
}

static void
put_u64(struct gguf_writer *w, uint64_t value)
{
    put(w, &value, sizeof(value));
}

static void
put_string(struct gguf_writer *w, const char *text)
{
    put_u64(w, strlen(text));
    put(w, text, strlen(text));
}

static void
put_header(struct gguf_writer *w, uint64_t n_tensors, uint64_t n_keys)
{
    put(w, "GGUF\3\0\0\0", 8);
    put_u64(w, n_tensors);
    put_u64(w, n_keys);
}

/* Opens what the writer holds, expects the refusal "test.gguf: offset OFFSET: REASON...". */
static void
expect_refusal(struct gguf_writer *w, size_t offset, const char *reason)
{
    struct gguf *gguf = NULL;
    char expected[256];

    (void)snprintf(expected, sizeof(expected), NAME ": offset %zu: %s", offset, reason);
    ck_assert_int_eq(gguf_open_bytes(NAME, w->bytes, w->length, &gguf), ST_INVALID);
    ck_assert_ptr_null(gguf);
    ck_assert_msg(strncmp(status_detail(), expected, strlen(expected)) == 0,
                  "got \"%s\", not \"%s\"", status_detail(), expected);
    gguf_write_deinit(w);
}

static struct gguf *
open_writer(struct gguf_writer *w)
{
    struct gguf *gguf = NULL;

    ck_assert_int_eq(gguf_write_finish(w), ST_OK);
    ck_assert_msg(gguf_open_bytes(NAME, w->bytes, w->length, &gguf) == ST_OK, "%s",
                  status_detail());
    return gguf;
}

START_TEST(a_file_gives_back_what_was_written)
{
    static const char *const texts[] = {"a", "", "cde"};
    static const int32_t numbers[] = {-1, 7};
    static const float data[4] = {1, 2, 3, 4};
    const uint64_t dims[2] = {2, 2};
    struct gguf_writer w = {0};
    struct gguf_string strings[3];
    int32_t integers[2];
    uint64_t u = 0;
    double f = 0;
    bool b = false;
    size_t n = 0;

    gguf_write_key_u32(&w, "u", 42);
    gguf_write_key_f32(&w, "f", 0.5f);
    gguf_write_key_bool(&w, "b", true);
    gguf_write_key_string(&w, "s", "text");
    gguf_write_key_strings(&w, "ss", texts, 3);
    gguf_write_key_i32s(&w, "is", numbers, 2);
    gguf_write_tensor(&w, "t", GGUF_TENSOR_F32, 2, dims, sizeof(data));
    gguf_write_data(&w, data, sizeof(data));
    struct gguf *gguf = open_writer(&w);
    ck_assert_int_eq(gguf_u64(gguf, "u", &u), ST_OK);
    ck_assert_uint_eq(u, 42);
    ck_assert_int_eq(gguf_f64(gguf, "f", &f), ST_OK);
    ck_assert_double_eq(f, 0.5);
    ck_assert_int_eq(gguf_bool(gguf, "b", &b), ST_OK);
    ck_assert(b);
    ck_assert_int_eq(gguf_str(gguf, "s", &strings[0]), ST_OK);
    ck_assert_mem_eq(strings[0].bytes, "text", 4);
    ck_assert_mem_eq((const char *)w.bytes + gguf_offset(gguf, strings[0].bytes), "text", 4);
    ck_assert_int_eq(gguf_array_count(gguf, "ss", &n), ST_OK);
    ck_assert_uint_eq(n, 3);
    ck_assert_int_eq(gguf_array_strings(gguf, "ss", strings, 3), ST_OK);
    ck_assert_uint_eq(strings[1].length, 0);
    ck_assert_mem_eq(strings[2].bytes, "cde", 3);
    ck_assert_int_eq(gguf_array_i32(gguf, "is", integers, 2), ST_OK);
    ck_assert_mem_eq(integers, numbers, sizeof(numbers));
    const struct gguf_tensor *tensor = gguf_tensor_find(gguf, "t");
    ck_assert_ptr_nonnull(tensor);
    ck_assert_ptr_eq(tensor, gguf_tensor_at(gguf, 0));
    ck_assert_uint_eq(tensor->dims[2], 1);
    ck_assert_mem_eq(tensor->data, data, sizeof(data));
    ck_assert_ptr_null(gguf_tensor_find(gguf, "T"));
    ck_assert_str_eq(gguf_path(gguf), NAME);
    gguf_close(&gguf);
    ck_assert_ptr_null(gguf);
    gguf_write_deinit(&w);
}
END_TEST

START_TEST(a_look_up_that_cannot_succeed_names_file_and_key)
{
    struct gguf_writer w = {0};
    struct gguf_string s;
    float floats[2];
    int32_t integers[3];
    uint64_t u;
    bool b;

    gguf_write_key_f32(&w, "f", 0.5f);
    gguf_write_key_i32s(&w, "is", (int32_t[]){-1, 7}, 2);
    struct gguf *gguf = open_writer(&w);
    ck_assert_int_eq(gguf_u64(gguf, "absent", &u), ST_NOT_FOUND);
    ck_assert_str_eq(status_detail(), NAME ": key absent is missing");
    ck_assert_int_eq(gguf_u64(gguf, "f", &u), ST_INVALID);
    ck_assert_str_eq(status_detail(), NAME ": offset 37: key f has value type 6, not an integer");
    ck_assert_int_eq(gguf_bool(gguf, "f", &b), ST_INVALID);
    ck_assert_int_eq(gguf_str(gguf, "f", &s), ST_INVALID);
    ck_assert_int_eq(gguf_str(gguf, "is", &s), ST_INVALID);
    ck_assert_int_eq(gguf_array_i32(gguf, "f", integers, 1), ST_INVALID);
    ck_assert_int_eq(gguf_array_i32(gguf, "is", integers, 3), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "key is has 2 elements, not 3"));
    ck_assert_int_eq(gguf_array_f32(gguf, "is", floats, 2), ST_INVALID);
    gguf_close(&gguf);
    gguf_write_deinit(&w);
}
END_TEST

START_TEST(integers_of_any_width_are_accepted_where_they_fit)
{
    static const struct {
        uint32_t type;
        uint32_t bytes;
        uint64_t value;
        enum status expected;
    } cases[] = {
        {0, 1, 0xff, ST_OK},
        {1, 1, 0x7f, ST_OK},
        {1, 1, 0xff, ST_INVALID} /* -1 */,
        {2, 2, 0xffff, ST_OK},
        {3, 2, 0x8000, ST_INVALID},
        {5, 4, 5, ST_OK},
        {5, 4, 0x80000000, ST_INVALID},
        {10, 8, UINT64_MAX, ST_OK},
        {11, 8, UINT64_MAX, ST_INVALID},
        {11, 8, INT64_MAX, ST_OK},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gguf_writer w = {0};
        uint64_t value = 0;

        put_header(&w, 0, 1);
        put_string(&w, "k");
        put_u32(&w, cases[i].type);
        put(&w, &cases[i].value, cases[i].bytes);
        struct gguf *gguf = NULL;
        ck_assert_int_eq(gguf_open_bytes(NAME, w.bytes, w.length, &gguf), ST_OK);
        ck_assert_int_eq(gguf_u64(gguf, "k", &value), cases[i].expected);
        ck_assert_uint_eq(value, cases[i].expected == ST_OK ? cases[i].value : 0);
        gguf_close(&gguf);
        gguf_write_deinit(&w);
    }
}
END_TEST

START_TEST(a_file_of_another_kind_or_version_is_refused)
{
    struct gguf_writer w = {0};

    put(&w, "GGML\3\0\0\0", 8);
    expect_refusal(&w, 0, "not a GGUF file: it starts with 47 47 4d 4c");
    put(&w, "GGUF\2\0\0\0", 8);
    expect_refusal(&w, 4, "GGUF version 2 is not served, only 3 is");
    put(&w, "GGUF\0\0\0\3", 8);
    expect_refusal(&w, 4, "GGUF version 50331648 is not served, only 3 is (a big-endian file?)");
    put(&w, "GG", 2);
    expect_refusal(&w, 0, "magic of 4 bytes, but the file ends after 2");
}
END_TEST

START_TEST(absurd_counts_and_lengths_are_refused)
{
    struct gguf_writer w = {0};

    put_header(&w, UINT64_MAX, 0);
    expect_refusal(&w, 8, "18446744073709551615 tensors; at most 65536 are allowed");
    put_header(&w, 0, 65537);
    expect_refusal(&w, 16, "65537 keys; at most 65536 are allowed");
    put_header(&w, 0, 65536);
    expect_refusal(&w, 16, "65536 keys cannot fit in 0 bytes");
    put_header(&w, 0, 1);
    put_u64(&w, UINT64_MAX);
    put(&w, "0123456789", 10);
    expect_refusal(&w, 24, "key of 18446744073709551615 bytes; at most 65535 are allowed");
    put_header(&w, 0, 1);
    put_string(&w, "k");
    put_u32(&w, 8);
    put_u64(&w, 100);
    expect_refusal(&w, 45, "string of 100 bytes, but the file ends after 0");
    put_header(&w, 0, 1);
    put_string(&w, "k");
    put_u32(&w, 9);
    put_u32(&w, 12);
    put_u64(&w, 1ull << 61);
    expect_refusal(&w, 49, "key \"k\": an array of 2305843009213693952 elements");
    put_header(&w, 0, 1);
    put_string(&w, "k");
    put_u32(&w, 9);
    put_u32(&w, 12);
    put_u64(&w, 1000);
    expect_refusal(&w, 49, "array of 8000 bytes, but the file ends after 0");
}
END_TEST

START_TEST(bad_keys_and_values_are_refused)
{
    static const struct {
        const char *key;
        uint32_t type;
        size_t offset;
        const char *reason;
    } cases[] = {
        {"", 4, 24, "key is empty"},
        {"a\xff", 4, 33, "key is not UTF-8"},
        {"a\xc3", 4, 33, "key is not UTF-8"},
        {"a\nb", 4, 33, "key has the control character 0x0a"},
        {"k", 13, 33, "key \"k\": unknown value type 13"},
        {"k", 0xffffffff, 33, "key \"k\": unknown value type 4294967295"},
        {"k", 7, 37, "key \"k\": 9 is no truth value"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gguf_writer w = {0};

        put_header(&w, 0, 1);
        put_string(&w, cases[i].key);
        put_u32(&w, cases[i].type);
        put_u64(&w, 9);
        expect_refusal(&w, cases[i].offset, cases[i].reason);
    }
}
END_TEST

START_TEST(arrays_of_arrays_and_keys_that_occur_twice_are_refused)
{
    struct gguf_writer w = {0};

    put_header(&w, 0, 1);
    put_string(&w, "k");
    put_u32(&w, 9);
    put_u32(&w, 9);
    put_u64(&w, 1);
    expect_refusal(&w, 37, "key \"k\": arrays of arrays are not served");
    gguf_write_key_u32(&w, "k", 1);
    gguf_write_key_u32(&w, "k", 1);
    ck_assert_int_eq(gguf_write_finish(&w), ST_OK);
    expect_refusal(&w, 41, "key \"k\" occurs twice");
}
END_TEST

struct tensor_case {
    const char *name;
    uint64_t n_dims;
    uint64_t dims[4];
    uint64_t type;
    uint64_t offset;
    const char *reason; /* at offset 24 */
};

START_TEST(bad_tensors_are_refused)
{
    static const char long_name[] =
        "an_awfully_long_name_of_a_tensor_which_has_more_than_sixty_four_bytes";
    static const struct tensor_case cases[] = {
        {"", 1, {1}, 0, 0, "tensor name is empty"},
        {long_name, 1, {1}, 0, 0, "tensor name of 69 bytes; at most 64 are allowed"},
        {"t", 0, {1}, 0, 0, "tensor \"t\": 0 dimensions, not 1 to 4"},
        {"t", 5, {1}, 0, 0, "tensor \"t\": 5 dimensions, not 1 to 4"},
        {"t", 2, {4, 0}, 0, 0, "tensor \"t\": dimension 1 is 0"},
        {"t", 2, {1ull << 40, 1ull << 40}, 0, 0, "tensor \"t\": dimension 1 is 1099511627776"},
        {"t", 1, {1ull << 62}, 0, 0, "tensor \"t\": 4611686018427387904 elements"},
        {"t",
         1,
         {256},
         12,
         0,
         "tensor \"t\": type 12 is not served; F32 F16 BF16 Q8_0 Q4_0 Q4_1 are"},
        {"t", 1, {33}, 8, 0, "tensor \"t\": rows of 33 are no multiple of the type's 32"},
        {"t", 1, {4}, 0, 16, "tensor \"t\": data at 16 is not aligned to 32"},
        {"t",
         1,
         {4},
         0,
         1ull << 63,
         "tensor \"t\": 16 bytes of data at 9223372036854775808 do not lie"},
        {"t", 1, {1000}, 0, 0, "tensor \"t\": 4000 bytes of data at 0 do not lie in the file's"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct tensor_case *c = &cases[i];
        struct gguf_writer w = {0};

        put_header(&w, 1, 0);
        put_string(&w, c->name);
        put_u32(&w, (uint32_t)c->n_dims);
        put(&w, c->dims, (c->n_dims < 4 ? c->n_dims : 4) * sizeof(c->dims[0]));
        put_u32(&w, (uint32_t)c->type);
        put_u64(&w, c->offset);
        gguf_write_data(&w, "0123456789abcdef0123456789abcdef", 32);
        expect_refusal(&w, 24, c->reason);
    }
}
END_TEST

START_TEST(tensors_that_overlap_or_share_a_name_are_refused)
{
    const uint64_t dims[1] = {16};
    struct gguf_writer w = {0};
    char data[128] = {0};

    gguf_write_tensor(&w, "a", GGUF_TENSOR_F32, 1, dims, 64);
    gguf_write_tensor(&w, "a", GGUF_TENSOR_F32, 1, dims, 64);
    gguf_write_data(&w, data, sizeof(data));
    ck_assert_int_eq(gguf_write_finish(&w), ST_OK);
    expect_refusal(&w, 57, "tensor \"a\" occurs twice");
    gguf_write_tensor(&w, "a", GGUF_TENSOR_F32, 1, dims, 64);
    gguf_write_tensor(&w, "b", GGUF_TENSOR_F32, 1, dims, 64);
    w.data_bytes = 96; /* lies inside b */
    gguf_write_tensor(&w, "c", GGUF_TENSOR_F32, 1, dims, 64);
    gguf_write_data(&w, data, sizeof(data));
    gguf_write_data(&w, data, 32);
    ck_assert_int_eq(gguf_write_finish(&w), ST_OK);
    expect_refusal(&w, 90, "tensor \"c\" overlaps tensor \"b\"");
}
END_TEST

START_TEST(an_odd_alignment_is_refused_and_another_one_obeyed)
{
    static const uint32_t odd[] = {0, 1, 4, 24, 48, 1u << 21, UINT32_MAX};
    const uint64_t dims[1] = {1};
    struct gguf_writer w = {0};
    float data = 5;

    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        gguf_write_key_u32(&w, "general.alignment", odd[i]);
        ck_assert_int_eq(gguf_write_finish(&w), ST_OK);
        expect_refusal(&w, 53, "general.alignment is ");
    }
    gguf_write_key_u32(&w, "general.alignment", 8);
    gguf_write_tensor(&w, "t", GGUF_TENSOR_F32, 1, dims, 4);
    put(&w, "\0\0\0\0\0\0\0", (8 - w.length % 8) % 8);
    put(&w, &data, sizeof(data));
    struct gguf *gguf = open_writer(&w);
    ck_assert_mem_eq(gguf_tensor_find(gguf, "t")->data, &data, sizeof(data));
    gguf_close(&gguf);
    gguf_write_deinit(&w);
}
END_TEST

/* A small complete file: every record of the format is in it. */
static void
make_file(void **bytes, size_t *length)
{
    struct tiny_model_config config = tiny_model_defaults();

    config.L = 1;
    config.C = 32;
    config.H = 1;
    config.Hkv = 1;
    config.D = 32;
    config.F = 32;
    config.V = TINY_MODEL_VOCAB_MIN + 4;
    config.type = GGUF_TENSOR_Q4_0;
    ck_assert_int_eq(tiny_model_make(&config, bytes, length), ST_OK);
}

START_TEST(a_file_cut_anywhere_is_refused)
{
    struct gguf *gguf = NULL;
    size_t length;
    void *bytes;

    make_file(&bytes, &length);
    for (size_t cut = 0; cut < length; cut++) {
        /* An exact copy, so that a sanitizer sees a read past the end. */
        void *copy = mem_dup(bytes, cut);

        enum status st = gguf_open_bytes(NAME, copy, cut, &gguf);
        if (length - cut > 31) { /* less may be the padding of the last tensor */
            ck_assert_msg(st == ST_INVALID, "cut at %zu", cut);
            ck_assert_ptr_nonnull(strstr(status_detail(), NAME ": offset "));
        }
        gguf_close(&gguf);
        mem_free(copy);
    }
    mem_free(bytes);
}
END_TEST

START_TEST(a_file_with_any_byte_changed_never_crashes)
{
    struct gguf *gguf = NULL;
    size_t length;
    void *bytes;

    make_file(&bytes, &length);
    for (size_t i = 0; i < length && i < 12000; i++) {
        uint8_t *byte = (uint8_t *)bytes + i;

        *byte ^= 0x81;
        (void)gguf_open_bytes(NAME, bytes, length, &gguf);
        gguf_close(&gguf);
        *byte ^= 0x81;
    }
    mem_free(bytes);
}
END_TEST

START_TEST(a_lack_of_memory_at_any_point_is_reported)
{
    struct gguf *gguf = NULL;
    enum status st = ST_NO_MEMORY;
    size_t length;
    void *bytes;

    make_file(&bytes, &length);
    for (uint64_t n = 1; st != ST_OK; n++) {
        mem_fail_at(n);
        st = gguf_open_bytes(NAME, bytes, length, &gguf);
        mem_fail_at(0);
        ck_assert(st == ST_OK || (st == ST_NO_MEMORY && gguf == NULL));
        ck_assert_uint_lt(n, 1000);
    }
    gguf_close(&gguf);
    mem_free(bytes);
}
END_TEST

/* A path in the working folder that no other test has: each runs in a process of its own. */
static void
own_path(char path_out[64])
{
    (void)snprintf(path_out, 64, "test_gguf_%ld.gguf", (long)getpid());
}

START_TEST(what_is_no_regular_file_is_refused)
{
    struct gguf *gguf = NULL;
    char path[64];
    FILE *file;

    own_path(path);
    file = fopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(gguf_open(path, &gguf), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "offset 0: the file is empty"));
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(gguf_open(path, &gguf), ST_SYSTEM);
    ck_assert_ptr_nonnull(strstr(status_detail(), "No such file"));
    ck_assert_int_eq(gguf_open(".", &gguf), ST_INVALID);
    ck_assert_str_eq(status_detail(), ".: offset 0: not a regular file");
}
END_TEST

START_TEST(a_mapped_file_is_the_same_as_its_bytes)
{
    struct tiny_model_config config = tiny_model_defaults();
    uint8_t mapped[32], in_memory[32];
    struct gguf *gguf = NULL;
    char path[64];
    size_t length;
    void *bytes;

    own_path(path);
    ck_assert_int_eq(tiny_model_write(&config, path), ST_OK);
    ck_assert_int_eq(gguf_open(path, &gguf), ST_OK);
    ck_assert_int_eq(gguf_fingerprint(gguf, mapped), ST_OK);
    gguf_close(&gguf);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(tiny_model_make(&config, &bytes, &length), ST_OK);
    ck_assert_int_eq(gguf_open_bytes(NAME, bytes, length, &gguf), ST_OK);
    ck_assert_int_eq(gguf_fingerprint(gguf, in_memory), ST_OK);
    ck_assert_mem_eq(mapped, in_memory, 32);
    gguf_close(&gguf);
    mem_free(bytes);
}
END_TEST

START_TEST(the_real_vocabularies_open)
{
    static const char *const names[] = {"deepseek-coder", "deepseek-llm", "falcon",   "gpt-2",
                                        "llama-spm",      "phi-3",        "starcoder"};
    const char *folder = getenv("KVASIR_SHARED_DATA");
    size_t count;

    if (folder == NULL || access(folder, R_OK) != 0) {
        printf("SKIP: no shared data at $KVASIR_SHARED_DATA: real vocabularies not opened\n");
        return;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct gguf *gguf = NULL;
        char path[4096];

        (void)snprintf(path, sizeof(path), "%s/ggml-vocab-%s.gguf", folder, names[i]);
        ck_assert_msg(gguf_open(path, &gguf) == ST_OK, "%s", status_detail());
        ck_assert_int_eq(gguf_array_count(gguf, "tokenizer.ggml.tokens", &count), ST_OK);
        ck_assert_uint_gt(count, 30000);
        gguf_close(&gguf);
    }
}
END_TEST

CHECK_MAIN("gguf", a_file_gives_back_what_was_written,
           a_look_up_that_cannot_succeed_names_file_and_key,
           integers_of_any_width_are_accepted_where_they_fit,
           a_file_of_another_kind_or_version_is_refused, absurd_counts_and_lengths_are_refused,
           bad_keys_and_values_are_refused, arrays_of_arrays_and_keys_that_occur_twice_are_refused,
           bad_tensors_are_refused, tensors_that_overlap_or_share_a_name_are_refused,
           an_odd_alignment_is_refused_and_another_one_obeyed, a_file_cut_anywhere_is_refused,
           a_file_with_any_byte_changed_never_crashes, a_lack_of_memory_at_any_point_is_reported,
           what_is_no_regular_file_is_refused, a_mapped_file_is_the_same_as_its_bytes,
           the_real_vocabularies_open)
