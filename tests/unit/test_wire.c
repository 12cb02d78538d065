/* SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <string.h>

#include "common/mem.h"
#include "kvasir/v1/admin.pb-c.h"
#include "kvasir/v1/rag.pb-c.h"
#include "kvasir/v1/wire.pb-c.h"
#include "kvasir/v1/worker.pb-c.h"
#include "proto/methods.h"
#include "proto/wire.h"
#include "tests/support/check_main.h"
#include "tests/support/messages.h"

static enum status
parse(const ProtobufCMessageDescriptor *type, const void *bytes, size_t length)
{
    struct wire_arena *arena = NULL;
    const ProtobufCMessage *message;

    ck_assert_int_eq(wire_arena_new(&arena), ST_OK);
    enum status st = wire_unpack(arena, type, bytes, length, WIRE_CLIENT_BYTES_MAX, &message);

    wire_arena_destroy(&arena);
    ck_assert_ptr_null(arena);
    return st;
}

START_TEST(random_messages_of_every_type_come_back_equal)
{
    const ProtobufCMessageDescriptor *types[MESSAGES_MAX];
    size_t count = messages_all(types);
    uint64_t rng = test_seed();
    struct wire_arena *arena = NULL;
    struct wire_buffer sent = {0}, again = {0};

    ck_assert_uint_gt(count, 40);
    ck_assert_int_eq(wire_arena_new(&arena), ST_OK);
    for (size_t round = 0; round < 20 * count; round++) {
        ProtobufCMessage *message = message_random(types[round % count], &rng);
        const ProtobufCMessage *received;

        ck_assert_int_eq(wire_pack(&sent, message), ST_OK);
        ck_assert_msg(wire_unpack(arena, message->descriptor, sent.bytes, sent.length,
                                  WIRE_CLIENT_BYTES_MAX, &received)
                          == ST_OK,
                      "%s", status_detail());
        ck_assert_int_eq(wire_pack(&again, received), ST_OK);
        ck_assert_uint_eq(again.length, sent.length);
        ck_assert_mem_eq(again.bytes, sent.bytes, sent.length);
        wire_arena_reset(arena);
        protobuf_c_message_free_unpacked(message, NULL);
    }
    wire_buffer_deinit(&sent);
    wire_buffer_deinit(&again);
    wire_arena_destroy(&arena);
}
END_TEST

/* Each proper head of a message is either refused or a shorter message, and a stray byte after it
 * is refused: memory errors here are the sanitizers' to find. */
START_TEST(messages_cut_anywhere_or_with_junk_behind_do_no_harm)
{
    const ProtobufCMessageDescriptor *types[MESSAGES_MAX];
    size_t count = messages_all(types);
    uint64_t rng = test_seed();
    struct wire_buffer buffer = {0};

    for (size_t round = 0; round < 4 * count; round++) {
        ProtobufCMessage *message = message_random(types[round % count], &rng);

        ck_assert_int_eq(wire_pack(&buffer, message), ST_OK);
        for (size_t length = 0; length < buffer.length; length++) {
            void *head =
                mem_dup(buffer.bytes, length); /* its own storage: ASan sees a read beyond */

            (void)parse(message->descriptor, head, length);
            mem_free(head);
        }
        uint8_t *longer = mem_realloc(NULL, buffer.length + 1, 1);

        memcpy(longer, buffer.bytes, buffer.length);
        longer[buffer.length] = 0xff;
        ck_assert_int_eq(parse(message->descriptor, longer, buffer.length + 1), ST_INVALID);
        ck_assert_ptr_nonnull(strstr(status_detail(), "cut short"));
        mem_free(longer);
        protobuf_c_message_free_unpacked(message, NULL);
    }
    wire_buffer_deinit(&buffer);
}
END_TEST

START_TEST(two_megabytes_of_empty_entries_are_refused_by_the_budget)
{
    size_t length = 2u << 20;
    uint8_t *bytes = mem_zalloc(length, 1);

    for (size_t i = 0; i < length; i += 2) {
        bytes[i] = 0x0a; /* field 1, length-prefixed, of length 0 */
    }
    ck_assert_int_eq(parse(&kvasir__v1__stats_reply__descriptor, bytes, length), ST_INVALID);
    ck_assert_str_eq(status_detail(),
                     "StatsReply of 2097152 bytes: would need more than 16777216 bytes of memory");
    mem_free(bytes);
}
END_TEST

START_TEST(a_frame_longer_than_its_cap_is_refused_with_both_sizes)
{
    static const uint8_t bytes[200];
    struct wire_arena *arena = NULL;
    const ProtobufCMessage *message = NULL;

    ck_assert_int_eq(wire_arena_new(&arena), ST_OK);
    ck_assert_int_eq(
        wire_unpack(arena, &kvasir__v1__request_header__descriptor, bytes, 200, 199, &message),
        ST_INVALID);
    ck_assert_str_eq(status_detail(), "RequestHeader of 200 bytes: at most 199 are taken");
    ck_assert_ptr_null(message);
    wire_arena_destroy(&arena);
}
END_TEST

/* The floor of the budget is there for messages like this one. */
START_TEST(a_step_with_many_small_results_fits_the_budget)
{
    enum {
        RESULTS = 1024
    };
    static Kvasir__V1__StepResult results[RESULTS];
    static Kvasir__V1__StepResult *pointers[RESULTS];
    uint32_t token = 1;
    struct wire_buffer buffer = {0};
    Kvasir__V1__Step step = KVASIR__V1__STEP__INIT;

    for (int i = 0; i < RESULTS; i++) {
        kvasir__v1__step_result__init(&results[i]);
        results[i].token_ids = &token;
        results[i].n_token_ids = 1;
        pointers[i] = &results[i];
    }
    step.results = pointers;
    step.n_results = RESULTS;
    ck_assert_int_eq(wire_pack(&buffer, &step.base), ST_OK);
    ck_assert_int_eq(parse(&kvasir__v1__step__descriptor, buffer.bytes, buffer.length), ST_OK);
    wire_buffer_deinit(&buffer);
}
END_TEST

START_TEST(a_string_that_c_would_cut_or_that_is_not_utf8_is_refused)
{
    static const struct {
        const char *text;
        size_t length;
        bool is_text;
    } cases[] = {
        {"", 0, true},
        {"plain", 5, true},
        {"a\0b", 3, false},
        {"\xc3\xa9", 2, true},
        {"\xc3", 1, false},
        {"\xc0\x80", 2, false},     /* overlong NUL */
        {"\xe0\x9f\xbf", 3, false}, /* overlong */
        {"\xed\x9f\xbf", 3, true},  /* U+D7FF */
        {"\xed\xa0\x80", 3, false}, /* a surrogate */
        {"\xef\xbf\xbf", 3, true},
        {"\xf0\x8f\xbf\xbf", 4, false}, /* overlong */
        {"\xf4\x8f\xbf\xbf", 4, true},  /* U+10FFFF */
        {"\xf4\x90\x80\x80", 4, false},
        {"\xf5\x80\x80\x80", 4, false},
        {"\x80", 1, false},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint8_t inner[16] = {0x0a, (uint8_t)cases[i].length}; /* Segment.text */
        uint8_t outer[18] = {0x0a, (uint8_t)(cases[i].length + 2)};

        memcpy(inner + 2, cases[i].text, cases[i].length);
        memcpy(outer + 2, inner, cases[i].length + 2);
        ck_assert_int_eq(wire_is_text(cases[i].text, cases[i].length), cases[i].is_text);
        ck_assert_int_eq(parse(&kvasir__v1__probe_request__descriptor, outer, cases[i].length + 4),
                         cases[i].is_text ? ST_OK : ST_INVALID);
    }
    ck_assert_str_eq(status_detail(), "Segment.text: not UTF-8 text, or with a NUL in it");
}
END_TEST

/* Whether `length` bytes are text, as slowly and plainly as it can be said. */
static bool
is_text_naive(const uint8_t *bytes, size_t length)
{
    static const uint32_t smallest[] = {1, 0x80, 0x800, 0x10000};

    for (size_t at = 0; at < length;) {
        uint8_t lead = bytes[at++];
        size_t more = lead < 0x80             ? 0
                      : (lead & 0xe0) == 0xc0 ? 1
                      : (lead & 0xf0) == 0xe0 ? 2
                      : (lead & 0xf8) == 0xf0 ? 3
                                              : SIZE_MAX;
        uint32_t code_point = more == 0 ? lead : lead & (0x3fu >> (more & 3));

        if (more > length - at) {
            return false;
        }
        for (size_t i = 0; i < more; i++, at++) {
            if ((bytes[at] & 0xc0) != 0x80) {
                return false;
            }
            code_point = code_point << 6 | (bytes[at] & 0x3f);
        }
        if (code_point < smallest[more] || code_point > 0x10ffff
            || (code_point >= 0xd800 && code_point <= 0xdfff)) {
            return false;
        }
    }
    return true;
}

/* Asks with the text at an address of every remainder by 16, and nothing behind it. */
static bool
is_text_anywhere(const void *text, size_t length)
{
    bool is_text = is_text_naive(text, length);

    for (size_t shift = 0; shift < 16; shift++) {
        uint8_t *storage = mem_zalloc(shift + length, 1);

        memcpy(storage + shift, text, length);
        if (wire_is_text(storage + shift, length) != is_text) {
            ck_abort_msg("%zu bytes at remainder %zu: %s", length, shift,
                         is_text ? "text, and refused" : "no text, and taken");
        }
        mem_free(storage);
    }
    return is_text;
}

/* Long ASCII, as most text is, is looked at many bytes at once: a part of another kind inside it
 * must be seen wherever it lies. */
START_TEST(a_bad_part_inside_plain_text_is_refused_at_every_place)
{
    static const struct {
        const char *part;
        size_t length;
        bool is_text;
    } cases[] = {
        {"y", 1, true},
        {"\x01", 1, true},
        {"\x7f", 1, true},
        {"\0", 1, false},
        {"\xc2\x80", 2, true},
        {"\xc3\x80\xc3\xbf", 4, true},
        {"\xe0\xa0\x80", 3, true},
        {"\xed\x9f\xbf", 3, true}, /* U+D7FF */
        {"\xee\x80\x80", 3, true},
        {"\xf0\x90\x80\x80", 4, true},
        {"\xf4\x8f\xbf\xbf", 4, true}, /* U+10FFFF */
        {"\x80", 1, false},            /* the middle of a sequence, alone */
        {"\xbf", 1, false},
        {"\xc3\xa9\x80", 3, false},
        {"\xc0\x80", 2, false},         /* overlong NUL */
        {"\xc1\xbf", 2, false},         /* overlong */
        {"\xe0\x9f\xbf", 3, false},     /* overlong */
        {"\xf0\x8f\xbf\xbf", 4, false}, /* overlong */
        {"\xed\xa0\x80", 3, false},     /* surrogates */
        {"\xed\xbf\xbf", 3, false},
        {"\xed\xa0\x80\xed\xb0\x80", 6, false},
        {"\xf4\x90\x80\x80", 4, false}, /* beyond U+10FFFF */
        {"\xf5\x80\x80\x80", 4, false},
        {"\xf8\x88\x80\x80\x80", 5, false},
        {"\xfe", 1, false},
        {"\xff", 1, false},
        {"\xc3", 1, false}, /* cut short, by plain text or by the end */
        {"\xe2\x82", 2, false},
        {"\xf0\x9f\x98", 3, false},
    };
    char text[80];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (size_t at = 0; at + cases[i].length <= sizeof(text); at++) {
            memset(text, 'x', sizeof(text));
            memcpy(text + at, cases[i].part, cases[i].length);
            bool is_text = is_text_anywhere(text, sizeof(text));
            bool ends_so = is_text_anywhere(text, at + cases[i].length);

            ck_assert_msg(is_text == cases[i].is_text && ends_so == cases[i].is_text,
                          "case %zu at %zu", i, at);
        }
    }
}
END_TEST

START_TEST(every_cut_of_a_long_sequence_at_the_end_is_refused)
{
    static const char *const whole[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
    char text[80];

    for (size_t length = 1; length < 70; length++) {
        for (size_t i = 0; i < 3; i++) {
            memset(text, 'x', sizeof(text));
            memcpy(text + length, whole[i], i + 2);
            for (size_t cut = 0; cut <= i + 2; cut++) {
                ck_assert_int_eq(is_text_anywhere(text, length + cut), cut == 0 || cut == i + 2);
            }
        }
    }
}
END_TEST

/* Sequences of all lengths, few or many in ASCII, a byte or two of which are then anything. */
START_TEST(what_is_text_is_what_a_plain_reading_says_on_random_bytes)
{
    static const char *const parts[] = {"\xc3\xa9",     "\xe2\x82\xac", "\xf0\x9f\x98\x80",
                                        "\xed\x9f\xbf", "\xe0\xa0\x80", "\xf4\x8f\xbf\xbf"};
    uint64_t rng = test_seed();
    size_t texts = 0, count = SCENE(20000, 4000, 1000);

    for (size_t n = 0; n < count; n++) {
        uint8_t bytes[160];
        size_t length = 0, wanted = random_next(&rng) % (sizeof(bytes) - 4);
        uint64_t plain = random_next(&rng) % 2 == 0 ? 98 : 30;

        while (length < wanted) {
            const char *part = parts[random_next(&rng) % 6];

            if (random_next(&rng) % 100 < plain) {
                bytes[length++] = (uint8_t)(1 + random_next(&rng) % 127);
            } else {
                memcpy(bytes + length, part, strlen(part));
                length += strlen(part);
            }
        }
        for (uint64_t k = random_next(&rng) % 3; k > 0 && length > 0; k--) {
            bytes[random_next(&rng) % length] = (uint8_t)random_next(&rng);
        }
        texts += is_text_anywhere(bytes, length);
    }
    ck_assert(texts > count / 10 && texts < count - count / 10);
}
END_TEST

START_TEST(every_failed_allocation_is_a_status_and_leaks_nothing)
{
    static char text[200 << 10]; /* larger than the first chunk */
    Kvasir__V1__TokenizeRequest request = KVASIR__V1__TOKENIZE_REQUEST__INIT;
    enum status st = ST_NO_MEMORY;
    int failures = 0;

    memset(text, 'x', sizeof(text) - 1);
    request.text = text;
    while (st != ST_OK) {
        struct wire_buffer buffer = {0};
        struct wire_arena *arena = NULL;
        const ProtobufCMessage *message = NULL;

        mem_fail_at(++failures);
        st = wire_pack(&buffer, &request.base);
        st = st != ST_OK ? st : wire_arena_new(&arena);
        st = st != ST_OK ? st
                         : wire_unpack(arena, request.base.descriptor, buffer.bytes, buffer.length,
                                       WIRE_CLIENT_BYTES_MAX, &message);
        mem_fail_at(0);
        ck_assert(st == ST_OK || st == ST_NO_MEMORY);
        wire_arena_destroy(&arena);
        wire_buffer_deinit(&buffer);
    }
    ck_assert_int_eq(failures, 5); /* buffer, arena, two chunks; the fifth does not happen */
}
END_TEST

/* ---- the schema ------------------------------------------------------------------------------ */

static void
refuse_recursion(const ProtobufCMessageDescriptor **path, size_t depth)
{
    const ProtobufCMessageDescriptor *type = path[depth];

    for (size_t i = 0; i < depth; i++) {
        ck_assert_msg(path[i] != type, "%s contains itself", type->name);
    }
    ck_assert_uint_lt(depth + 1, 16);
    for (unsigned i = 0; i < type->n_fields; i++) {
        if (type->fields[i].type == PROTOBUF_C_TYPE_MESSAGE) {
            path[depth + 1] = type->fields[i].descriptor;
            refuse_recursion(path, depth + 1);
        }
    }
}

START_TEST(no_message_type_contains_itself)
{
    const ProtobufCMessageDescriptor *types[MESSAGES_MAX];
    size_t count = messages_all(types);

    for (size_t i = 0; i < count; i++) {
        const ProtobufCMessageDescriptor *path[16] = {types[i]};

        refuse_recursion(path, 0);
    }
}
END_TEST

static const char *
source_path(const char *name)
{
    static char path[4096];
    const char *srcdir = getenv("KVASIR_SRCDIR");

    (void)snprintf(path, sizeof(path), "%s/proto/kvasir/v1/%s", srcdir == NULL ? "." : srcdir,
                   name);
    return path;
}

static FILE *
open_source(const char *name)
{
    FILE *file = fopen(source_path(name), "r");

    ck_assert_msg(file != NULL, "cannot open %s", source_path(name));
    return file;
}

START_TEST(every_message_of_the_schema_is_tested_here)
{
    static const char *const files[] = {"admin.proto", "documents.proto", "health.proto",
                                        "rag.proto",   "wire.proto",      "worker.proto"};
    const ProtobufCMessageDescriptor *types[MESSAGES_MAX];
    size_t count = messages_all(types);
    size_t declared = 0;
    char line[256], name[64];

    for (size_t f = 0; f < sizeof(files) / sizeof(files[0]); f++) {
        FILE *file = open_source(files[f]);

        while (fgets(line, sizeof(line), file) != NULL) {
            declared += sscanf(line, "message %63[A-Za-z] {", name) == 1;
        }
        ck_assert_int_eq(fclose(file), 0);
    }
    ck_assert_uint_eq(declared, count);
}
END_TEST

/* "Drain" must not become a C keyword when a plugin lowers it. */
static bool
is_c_keyword(const char *name)
{
    static const char *const keywords[] = {
        "auto",   "break",    "case",   "char",     "const",  "continue", "default",
        "do",     "double",   "else",   "enum",     "extern", "float",    "for",
        "goto",   "if",       "inline", "int",      "long",   "return",   "short",
        "signed", "restrict", "sizeof", "static",   "struct", "switch",   "typedef",
        "union",  "unsigned", "void",   "volatile", "while",  "register",
    };

    for (size_t i = 0; i < sizeof(keywords) / sizeof(keywords[0]); i++) {
        if (strcmp(name, keywords[i]) == 0) {
            return true;
        }
    }
    return false;
}

START_TEST(no_field_is_named_like_a_c_keyword)
{
    const ProtobufCMessageDescriptor *types[MESSAGES_MAX];
    size_t count = messages_all(types);

    for (size_t i = 0; i < count; i++) {
        for (unsigned f = 0; f < types[i]->n_fields; f++) {
            ck_assert_msg(!is_c_keyword(types[i]->fields[f].name), "%s.%s", types[i]->name,
                          types[i]->fields[f].name);
        }
    }
    ck_assert(is_c_keyword("register"));
}
END_TEST

/* Compares one rpc line with the method table; returns false if the line declares none. */
static bool
check_rpc_line(const char *line, const char *service)
{
    char rpc[64], request[64], arrow[16], reply[64], path[160];
    const struct method *method;

    if (sscanf(line, " rpc %63[A-Za-z](%63[A-Za-z]) returns (%15[a-z ]%63[A-Za-z]);", rpc, request,
               arrow, reply)
        == 4) {
        ck_assert_str_eq(arrow, "stream ");
    } else if (sscanf(line, " rpc %63[A-Za-z](%63[A-Za-z]) returns (%63[A-Za-z]);", rpc, request,
                      reply)
               == 3) {
        arrow[0] = '\0';
    } else {
        return false;
    }
    (void)snprintf(path, sizeof(path), "/kvasir.v1.%s/%s", service, rpc);
    method = method_find(path);
    ck_assert_msg(method != NULL, "%s is not in proto/methods.h", path);
    ck_assert_str_eq(method->request->short_name, request);
    ck_assert_str_eq(method->reply->short_name, reply);
    ck_assert_int_eq(method->is_stream, arrow[0] != '\0');
    ck_assert_int_eq(method->is_admin, strcmp(service, "Admin") == 0);
    return true;
}

START_TEST(the_method_table_and_services_proto_say_the_same)
{
    FILE *file = open_source("services.proto");
    char line[256], service[64] = "";
    int declared = 0;

    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "service %63[A-Za-z] {", service) != 1) {
            declared += check_rpc_line(line, service);
        }
    }
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(declared, METHOD_COUNT);
    ck_assert_ptr_null(method_find("/kvasir.v1.Rag/generate"));
    ck_assert_ptr_null(method_find(""));
}
END_TEST

START_TEST(codes_have_their_grpc_names_and_kinds_their_codes)
{
    ck_assert_str_eq(rpc_code_name(RPC_OK), "OK");
    ck_assert_str_eq(rpc_code_name(8), "RESOURCE_EXHAUSTED");
    ck_assert_str_eq(rpc_code_name(16), "UNAUTHENTICATED");
    ck_assert_str_eq(rpc_code_name(17), "UNKNOWN");
    ck_assert_int_eq(rpc_code_of(ST_OK), RPC_OK);
    ck_assert_int_eq(rpc_code_of(ST_INVALID), RPC_INVALID_ARGUMENT);
    ck_assert_int_eq(rpc_code_of(ST_TIMEOUT), RPC_DEADLINE_EXCEEDED);
    ck_assert_int_eq(rpc_code_of((enum status)99), RPC_UNKNOWN);
}
END_TEST

CHECK_MAIN("wire", random_messages_of_every_type_come_back_equal,
           messages_cut_anywhere_or_with_junk_behind_do_no_harm,
           two_megabytes_of_empty_entries_are_refused_by_the_budget,
           a_frame_longer_than_its_cap_is_refused_with_both_sizes,
           a_step_with_many_small_results_fits_the_budget,
           a_string_that_c_would_cut_or_that_is_not_utf8_is_refused,
           a_bad_part_inside_plain_text_is_refused_at_every_place,
           every_cut_of_a_long_sequence_at_the_end_is_refused,
           what_is_text_is_what_a_plain_reading_says_on_random_bytes,
           every_failed_allocation_is_a_status_and_leaks_nothing, no_message_type_contains_itself,
           every_message_of_the_schema_is_tested_here, no_field_is_named_like_a_c_keyword,
           the_method_table_and_services_proto_say_the_same,
           codes_have_their_grpc_names_and_kinds_their_codes)
