/* SPDX-License-Identifier: Apache-2.0 */
/* Schemas as masks: what may be written, what may not, and that random writing by the mask always
 * gives JSON of the schema. */
#include <stdio.h>
#include <string.h>

#include <json-c/json.h>

#include "common/htab.h"
#include "common/mem.h"
#include "model/gguf.h"
#include "model/grammar.h"
#include "tests/support/check_main.h"

#define BYTES_V   260 /* byte-level stand-in: 256 bytes, bos, eos */
#define WALK_MAX  4000
#define BYTES_EOS 257

static uint64_t
random_next(uint64_t *rng)
{
    return htab_mix((*rng)++);
}

struct rig {
    struct tokenizer *tokenizer;
    struct grammar_vocabulary *vocabulary;
    struct grammar *grammar;
    struct grammar_matcher *matcher;
};

static void
rig_open(struct rig *rig, const char *schema)
{
    *rig = (struct rig){0};
    ck_assert_int_eq(tokenizer_new_bytes(BYTES_V, &rig->tokenizer), ST_OK);
    ck_assert_int_eq(grammar_vocabulary_new(rig->tokenizer, &rig->vocabulary), ST_OK);
    ck_assert_msg(grammar_compile(schema, strlen(schema), &rig->grammar) == ST_OK, "%s: %s", schema,
                  status_detail());
    ck_assert_int_eq(grammar_matcher_new(rig->grammar, rig->vocabulary, &rig->matcher), ST_OK);
}

static void
rig_close(struct rig *rig)
{
    grammar_matcher_destroy(&rig->matcher);
    grammar_destroy(&rig->grammar);
    grammar_vocabulary_destroy(&rig->vocabulary);
    tokenizer_destroy(&rig->tokenizer);
}

/* How many bytes of a text are accepted; *is_whole_out: the answer may end there. */
static size_t
accepted(const char *schema, const char *text, bool *is_whole_out)
{
    struct rig rig;
    size_t i = 0;

    rig_open(&rig, schema);
    while (text[i] != '\0' && grammar_accept(rig.matcher, (uint8_t)text[i])) {
        i++;
    }
    *is_whole_out = grammar_is_whole(rig.matcher);
    rig_close(&rig);
    return i;
}

static void
expect(const char *schema, const char *text, bool is_good)
{
    bool is_whole;
    size_t taken = accepted(schema, text, &is_whole);

    ck_assert_msg((taken == strlen(text) && is_whole) == is_good,
                  "%s of %s: %zu of %zu bytes, whole %d", text, schema, taken, strlen(text),
                  is_whole);
}

START_TEST(values_of_every_type_are_taken_and_others_are_not)
{
    static const struct {
        const char *schema, *text;
        bool is_good;
    } rows[] = {
        {"{}", "{\"a\":[1,-2.5e+3,\"x\",true,null,{}]}", true},
        {"{}", "[]", true},
        {"{}", "nul", false},
        {"{\"type\":\"object\"}", "{}", true},
        {"{\"type\":\"object\"}", "[]", false},
        {"{\"type\":\"object\"}", "{\"a\": 1, \"b\":\n  [2]}", true},
        {"{\"type\":\"object\"}", "{\"a\" :1}", false},
        {"{\"type\":\"object\"}", "{\"a\":1,}", false},
        {"{\"type\":\"string\"}", "\"a\\n\\u00e9\\\"\"", true},
        {"{\"type\":\"string\"}", "\"\\ud800\"", false},
        {"{\"type\":\"string\"}", "\"gr\xc3\xbc\xc3\x9f\xe2\x82\xac\xf0\x9f\x98\x80\"", true},
        {"{\"type\":\"string\"}", "\"\xc3\"", false},
        {"{\"type\":\"string\"}", "\"\xed\xa0\x80\"", false},
        {"{\"type\":\"string\"}", "\"\n\"", false},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"a\"", false},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"\xc3\xbc\xc3\xbc\"", true},
        {"{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}", "\"abcd\"", false},
        {"{\"type\":\"integer\"}", "-10", true},
        {"{\"type\":\"integer\"}", "01", false},
        {"{\"type\":\"integer\"}", "1.5", false},
        {"{\"type\":\"number\"}", "0.25E-2", true},
        {"{\"type\":\"number\"}", ".5", false},
        {"{\"type\":\"boolean\"}", "true", true},
        {"{\"type\":\"boolean\"}", "false", true},
        {"{\"type\":\"null\"}", "null", true},
        {"{\"type\":[\"null\",\"integer\"]}", "7", true},
        {"{\"type\":[\"null\",\"integer\"]}", "null", true},
        {"{\"type\":[\"null\",\"integer\"]}", "\"7\"", false},
        {"{\"enum\":[\"red\",\"green\",1,null]}", "\"green\"", true},
        {"{\"enum\":[\"red\",\"green\",1,null]}", "\"grey\"", false},
        {"{\"enum\":[\"red\",\"green\",1,null]}", "1", true},
        {"{\"const\":{\"a\":1}}", "{\"a\":1}", true},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", "\"x\"", true},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}", "true", false},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}", "[1, 2]", true},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}", "[1,\"2\"]", false},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2}", "[1]", false},
        {"{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2}", "[1,2,3]", true},
        {"{\"type\":\"array\",\"minItems\":1,\"maxItems\":2}", "[]", false},
        {"{\"type\":\"array\",\"minItems\":1,\"maxItems\":2}", "[1,2]", true},
        {"{\"type\":\"array\",\"minItems\":1,\"maxItems\":2}", "[1,2,3]", false},
        {"{\"type\":\"array\",\"maxItems\":0}", "[]", true},
        {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}", "{\"x\":1}",
         true},
        {"{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}", "{\"x\":\"1\"}",
         false},
        {"{\"type\":\"object\",\"additionalProperties\":false}", "{\"x\":1}", false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        expect(rows[i].schema, rows[i].text, rows[i].is_good);
    }
}
END_TEST

START_TEST(properties_come_in_order_and_optional_ones_may_be_left_out)
{
    const char *schema = "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},"
                         "\"b\":{\"type\":\"integer\"},\"c\":{\"type\":\"integer\"}},"
                         "\"required\":[\"b\"],\"additionalProperties\":false}";
    const char *optional = "{\"properties\":{\"a\":{\"type\":\"null\"},\"b\":{\"type\":\"null\"}}}";

    expect(schema, "{\"a\":1,\"b\":2,\"c\":3}", true);
    expect(schema, "{\"b\":2}", true);
    expect(schema, "{\"b\":2, \"c\":3}", true);
    expect(schema, "{\"a\":1, \"b\":2}", true);
    expect(schema, "{\"a\":1}", false);
    expect(schema, "{}", false);
    expect(schema, "{\"b\":2,\"a\":1}", false);
    expect(schema, "{\"a\":1,\"c\":3}", false);
    expect(schema, "{\"b\":2,\"d\":3}", false);
    expect(optional, "{}", true);
    expect(optional, "{\"b\":null}", true);
    expect(optional, "{\"a\":null,\"b\":null}", true);
    expect(optional, "{,\"b\":null}", false);
}
END_TEST

START_TEST(references_may_lead_to_where_they_stand)
{
    const char *schema = "{\"$ref\":\"#/$defs/node\",\"$defs\":{\"node\":{\"type\":\"object\","
                         "\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{\"anyOf\":["
                         "{\"$ref\":\"#/$defs/node\"},{\"type\":\"null\"}]}},"
                         "\"required\":[\"v\",\"next\"]}}}";

    expect(schema, "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}", true);
    expect(schema, "{\"v\":1,\"next\":{\"v\":2,\"next\":3}}", false);
    expect(schema, "{\"v\":1}", false);
}
END_TEST

START_TEST(what_is_not_served_is_refused_by_name)
{
    static const char *const rows[][2] = {
        {"{", "offset"},
        {"{\"type\":\"string\",\"pattern\":\"a\"}", "pattern"},
        {"{\"type\":\"integer\",\"minimum\":3}", "minimum"},
        {"{\"properties\":{\"x\":{\"format\":\"date\"}}}", ".x: format"},
        {"{\"type\":\"colour\"}", "colour"},
        {"{\"$ref\":\"#/$defs/none\"}", "leads nowhere"},
        {"{\"$ref\":\"http://x\"}", "into the schema"},
        {"{\"type\":\"array\",\"maxItems\":5000}", "at most 1024"},
        {"{\"type\":\"array\",\"minItems\":3,\"maxItems\":2}", "minItems"},
        {"{\"type\":\"object\",\"required\":[\"x\"]}", "required"},
        {"{\"enum\":[]}", "enum"},
        {"{\"allOf\":[{},{}]}", "allOf"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct grammar *grammar = NULL;

        ck_assert_int_eq(grammar_compile(rows[i][0], strlen(rows[i][0]), &grammar), ST_INVALID);
        ck_assert_ptr_null(grammar);
        ck_assert_msg(strstr(status_detail(), rows[i][1]) != NULL, "%s: %s", rows[i][0],
                      status_detail());
    }
}
END_TEST

/* A schema that refers to itself before anything is written has endless readings. */
START_TEST(a_schema_that_never_begins_is_refused)
{
    const char *schema = "{\"anyOf\":[{\"$ref\":\"#\"}]}";
    struct rig rig = {0};

    ck_assert_int_eq(tokenizer_new_bytes(BYTES_V, &rig.tokenizer), ST_OK);
    ck_assert_int_eq(grammar_vocabulary_new(rig.tokenizer, &rig.vocabulary), ST_OK);
    ck_assert_int_eq(grammar_compile(schema, strlen(schema), &rig.grammar), ST_OK);
    ck_assert_int_eq(grammar_matcher_new(rig.grammar, rig.vocabulary, &rig.matcher), ST_INVALID);
    rig_close(&rig);
}
END_TEST

static bool
is_allowed(const uint32_t *mask, uint32_t id)
{
    return (mask[id / 32] >> (id % 32) & 1) != 0;
}

/* Whether a value is of the schema, as far as the schemas below go. */
static bool
is_person(struct json_object *value)
{
    struct json_object *name = NULL, *age = NULL, *tags = NULL;

    return json_object_is_type(value, json_type_object)
           && json_object_object_get_ex(value, "name", &name)
           && json_object_is_type(name, json_type_string)
           && (!json_object_object_get_ex(value, "age", &age)
               || json_object_is_type(age, json_type_int))
           && json_object_object_get_ex(value, "tags", &tags)
           && json_object_is_type(tags, json_type_array) && json_object_array_length(tags) <= 3;
}

static const char person[] =
    "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":20},"
    "\"age\":{\"type\":\"integer\"},\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"a\","
    "\"ab\",\"abc\"]},\"maxItems\":3}},\"required\":[\"name\",\"tags\"]}";

/* Writes at random whatever the mask allows, until the end token; long ways are cut by taking what
 * leads on soonest. */
static void
walk(struct rig *rig, uint64_t *rng, struct json_object **value_out)
{
    char text[WALK_MAX + 1];
    size_t length = 0;

    for (;;) {
        const uint32_t *mask = grammar_mask(rig->matcher);
        uint32_t ids[BYTES_V];
        uint32_t count = 0;

        ck_assert_ptr_nonnull(mask);
        ck_assert_int_eq(is_allowed(mask, BYTES_EOS), grammar_is_whole(rig->matcher));
        if (is_allowed(mask, BYTES_EOS)) {
            break;
        }
        for (uint32_t id = 0; id < BYTES_V; id++) {
            if (is_allowed(mask, id)) {
                ids[count++] = id;
            }
        }
        ck_assert_uint_gt(count, 0);
        uint32_t id = ids[random_next(rng) % count];
        static const char closing[] = "\"]},:";

        for (size_t i = 0; random_next(rng) % 3 == 0 && i < sizeof(closing) - 1; i++) {
            id = is_allowed(mask, (uint8_t)closing[i]) ? (uint8_t)closing[i] : id;
        }
        ck_assert(grammar_accept(rig->matcher, id));
        ck_assert_uint_lt(length, WALK_MAX);
        text[length++] = (char)id;
    }
    text[length] = '\0';
    *value_out = json_tokener_parse(text);
    ck_assert_msg(*value_out != NULL, "no JSON: %s", text);
}

START_TEST(random_writing_by_the_mask_gives_json_of_the_schema)
{
    uint64_t rng = test_seed();

    for (int round = 0; round < 200; round++) {
        struct rig rig;
        struct json_object *value;

        rig_open(&rig, person);
        walk(&rig, &rng, &value);
        ck_assert_msg(is_person(value), "%s", json_object_to_json_string(value));
        json_object_put(value);
        rig_close(&rig);
    }
}
END_TEST

/* What the mask says of each token is what accepting it says. */
START_TEST(the_mask_is_what_is_accepted)
{
    static const char text[] = "{\"name\":\"x\\u00e9\",\"age\":12,\"tags\":[\"ab\",\"a\"]}";
    struct rig rig;

    rig_open(&rig, person);
    for (size_t i = 0; i < sizeof(text) - 1; i++) {
        const uint32_t *mask = grammar_mask(rig.matcher);

        for (uint32_t id = 0; id < 256; id++) {
            struct rig other;

            rig_open(&other, person);
            for (size_t j = 0; j < i; j++) {
                ck_assert(grammar_accept(other.matcher, (uint8_t)text[j]));
            }
            ck_assert_int_eq(grammar_accept(other.matcher, id), is_allowed(mask, id));
            rig_close(&other);
            id += 6; /* all of them, over the positions */
        }
        ck_assert(grammar_accept(rig.matcher, (uint8_t)text[i]));
    }
    ck_assert(grammar_is_whole(rig.matcher));
    rig_close(&rig);
}
END_TEST

/* More states than are kept: they are forgotten and found again. */
START_TEST(deep_nesting_is_followed_though_states_are_forgotten)
{
    struct rig rig;

    rig_open(&rig, "{}");
    for (int i = 0; i < 1500; i++) {
        ck_assert_ptr_nonnull(grammar_mask(rig.matcher));
        ck_assert(grammar_accept(rig.matcher, '['));
    }
    for (int i = 0; i < 1500; i++) {
        ck_assert(!grammar_is_whole(rig.matcher));
        ck_assert_ptr_nonnull(grammar_mask(rig.matcher));
        ck_assert(grammar_accept(rig.matcher, ']'));
    }
    ck_assert(grammar_is_whole(rig.matcher));
    rig_close(&rig);
}
END_TEST

/* A real vocabulary, whose tokens are many bytes and cut through everything. */
START_TEST(a_real_vocabulary_writes_json_too)
{
    const char *data = getenv("KVASIR_SHARED_DATA");
    char path[512];
    struct gguf *gguf = NULL;
    struct rig rig = {0};
    uint64_t rng = test_seed();
    char text[8192];
    size_t length = 0;

    (void)snprintf(path, sizeof(path), "%s/ggml-vocab-gpt-2.gguf", data == NULL ? "." : data);
    if (gguf_open(path, &gguf) != ST_OK) {
        printf("SKIP: no %s\n", path);
        return;
    }
    ck_assert_int_eq(tokenizer_new(gguf, &rig.tokenizer), ST_OK);
    ck_assert_int_eq(grammar_vocabulary_new(rig.tokenizer, &rig.vocabulary), ST_OK);
    ck_assert_int_eq(grammar_compile(person, strlen(person), &rig.grammar), ST_OK);
    ck_assert_int_eq(grammar_matcher_new(rig.grammar, rig.vocabulary, &rig.matcher), ST_OK);
    while (!grammar_is_whole(rig.matcher)) {
        const uint32_t *mask = grammar_mask(rig.matcher);
        uint32_t id;
        size_t bytes;

        ck_assert_ptr_nonnull(mask);
        do {
            id = (uint32_t)(random_next(&rng) % tokenizer_vocab_size(rig.tokenizer));
        } while (!is_allowed(mask, id));
        const char *piece = tokenizer_text(rig.tokenizer, id, &bytes);

        ck_assert(length + bytes < sizeof(text));
        memcpy(text + length, piece, bytes);
        length += bytes;
        ck_assert(grammar_accept(rig.matcher, id));
    }
    text[length] = '\0';
    struct json_object *value = json_tokener_parse(text);

    ck_assert_msg(value != NULL && is_person(value), "%s", text);
    json_object_put(value);
    rig_close(&rig);
    gguf_close(&gguf);
}
END_TEST

START_TEST(every_allocation_of_a_grammar_may_fail)
{
    struct rig rig = {0};
    enum status st = ST_NO_MEMORY;

    ck_assert_int_eq(tokenizer_new_bytes(BYTES_V, &rig.tokenizer), ST_OK);
    for (uint64_t n = 1; st != ST_OK; n++) {
        ck_assert_uint_lt(n, 1000);
        mem_fail_at(n);
        st = grammar_vocabulary_new(rig.tokenizer, &rig.vocabulary);
        st = st != ST_OK ? st : grammar_compile(person, strlen(person), &rig.grammar);
        st = st != ST_OK ? st : grammar_matcher_new(rig.grammar, rig.vocabulary, &rig.matcher);
        ck_assert(st == ST_OK || st == ST_NO_MEMORY);
        mem_fail_at(0);
        grammar_matcher_destroy(&rig.matcher);
        grammar_destroy(&rig.grammar);
        grammar_vocabulary_destroy(&rig.vocabulary);
    }
    tokenizer_destroy(&rig.tokenizer);
}
END_TEST

CHECK_MAIN("grammar", values_of_every_type_are_taken_and_others_are_not,
           properties_come_in_order_and_optional_ones_may_be_left_out,
           references_may_lead_to_where_they_stand, what_is_not_served_is_refused_by_name,
           a_schema_that_never_begins_is_refused,
           random_writing_by_the_mask_gives_json_of_the_schema, the_mask_is_what_is_accepted,
           deep_nesting_is_followed_though_states_are_forgotten, a_real_vocabulary_writes_json_too,
           every_allocation_of_a_grammar_may_fail)
