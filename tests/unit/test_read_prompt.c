/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of clients become prompts: what is refused, what a document's key depends on, where a
 * BOS goes. */
#include <math.h>
#include <string.h>

#include "common/mem.h"
#include "daemon/read_prompt.h"
#include "daemon/registry.h"
#include "model/gguf.h"
#include "model/tiny_model.h"
#include "tests/support/check_main.h"
#include "tests/support/read_rig.h"

#include "kvasir/v1/documents.pb-c.h"
#include "kvasir/v1/rag.pb-c.h"

START_TEST(absent_sampling_fields_get_their_defaults_and_a_seed_is_chosen)
{
    struct rig rig;
    struct raw raw;
    const struct sampling *sampling = &rig.reading.prompt.sampling;

    rig_open(&rig);
    raw_init(&raw, "a text");
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_OK);
    ck_assert_uint_eq(sampling->max_tokens, SAMPLING_MAX_TOKENS_DEFAULT);
    ck_assert(!sampling->has_max_tokens && !sampling->has_logprobs);
    ck_assert(sampling->temperature == 0 && sampling->top_p == 1 && sampling->min_p == 0);
    ck_assert(sampling->repetition_penalty == 1 && sampling->top_k == 0);
    ck_assert_uint_eq(rig.reading.priority, PROMPT_PRIORITY_DEFAULT);
    uint64_t seed = sampling->seed;

    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_OK);
    ck_assert(sampling->seed != seed); /* one in 2^64 it is not */
    raw.sampling.has_seed = true;
    raw.sampling.seed = 7;
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_OK);
    ck_assert_uint_eq(sampling->seed, 7);
    rig_close(&rig);
}
END_TEST

START_TEST(a_value_out_of_its_range_is_refused_by_name_with_the_range)
{
    struct rig rig;
    struct raw raw;

    rig_open(&rig);
    raw_init(&raw, "a text");
    raw.sampling.has_temperature = true;
    raw.sampling.temperature = -1;
    expect_refused(&rig, &raw, "sampling.temperature is -1: it must be in [0, 100]");
    raw.sampling.temperature = NAN;
    expect_refused(&rig, &raw, "sampling.temperature is nan: it must be in [0, 100]");
    raw.sampling.temperature = 1;
    raw.sampling.has_top_p = true;
    raw.sampling.top_p = 0;
    expect_refused(&rig, &raw, "sampling.top_p is 0: it must be in (0, 1]");
    raw.sampling.top_p = 1;
    raw.sampling.has_max_tokens = true;
    expect_refused(&rig, &raw, "sampling.max_tokens is 0: it must be in [1, 1048576]");
    raw.sampling.max_tokens = UINT32_MAX;
    expect_refused(&rig, &raw, "sampling.max_tokens is 4294967295: it must be in [1, 1048576]");
    raw.sampling.max_tokens = 1;
    raw.sampling.has_logprobs = true;
    raw.sampling.logprobs = 21;
    expect_refused(&rig, &raw, "sampling.logprobs is 21: it must be in [0, 20]");
    raw.sampling.logprobs = 20;
    raw.request.has_priority = true;
    raw.request.priority = 101;
    expect_refused(&rig, &raw, "priority is 101: the limit is 100");
    raw.request.priority = 100;

    char empty[] = "";
    char *stops[] = {empty};

    raw.sampling.n_stop = 1;
    raw.sampling.stop = stops;
    expect_refused(&rig, &raw, "sampling.stop[0] has 0 bytes: it must be 1 to 256");
    rig_close(&rig);
}
END_TEST

START_TEST(a_retry_brings_what_came_and_the_seed_that_it_was_drawn_with)
{
    struct rig rig;
    struct raw raw;
    Kvasir__V1__Resume resume = KVASIR__V1__RESUME__INIT;
    uint32_t ids[] = {5, 6, 511};

    rig_open(&rig);
    raw_init(&raw, "a text");
    raw.request.resume = &resume;
    resume.token_ids = ids;
    resume.n_token_ids = 3;
    resume.has_text_bytes = true;
    resume.text_bytes = 9;
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_OK);
    ck_assert_uint_eq(rig.reading.prompt.resume_count, 3);
    ck_assert_mem_eq(rig.reading.prompt.resume_ids, ids, sizeof(ids));
    ck_assert_uint_eq(rig.reading.prompt.resume_text_bytes, 9);
    raw.sampling.has_temperature = true;
    raw.sampling.temperature = 1;
    expect_refused(&rig, &raw, "resume of a drawn answer needs the seed that it was drawn with");
    raw.sampling.has_seed = true;
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_OK);
    raw.sampling.has_max_tokens = true;
    raw.sampling.max_tokens = 3;
    expect_refused(&rig, &raw, "resume with 3 tokens: max_tokens is 3");
    raw.sampling.max_tokens = 4;
    ids[1] = 512;
    expect_refused(&rig, &raw, "token_ids[1] is 512: the vocabulary has 512");
    rig_close(&rig);
}
END_TEST

START_TEST(contradictions_between_raw_and_chat_are_refused)
{
    struct rig rig;
    struct raw raw;
    uint32_t ids[] = {5, 600};

    rig_open(&rig);
    raw_init(&raw, "a text");
    raw.segment.n_token_ids = 1;
    raw.segment.token_ids = ids;
    expect_refused(&rig, &raw,
                   "segments[0]: more than one of text, token_ids, document_key and document_id");
    raw.segment.text = NULL;
    raw.segment.n_token_ids = 2;
    expect_refused(&rig, &raw, "segments[0]: token_ids[1] is 600: the vocabulary has 512");
    raw.segment.n_token_ids = 1;
    raw.request.query = NULL;
    expect_refused(&rig, &raw, "exactly one of messages, query and query_ids must be given");
    raw.request.query = raw.query;
    raw.query[0] = '\0';
    expect_refused(&rig, &raw, "the query is empty: an answer needs a token to start from");
    rig_close(&rig);
}
END_TEST

START_TEST(ids_are_the_same_document_as_numbers_and_as_bytes)
{
    struct rig rig;
    struct raw raw;
    uint32_t ids[] = {5, 300, 511};
    struct dockey as_numbers;

    rig_open(&rig);
    raw_init(&raw, "a text");
    raw.segment.text = NULL;
    raw.segment.n_token_ids = 3;
    raw.segment.token_ids = ids;
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_OK);
    as_numbers = rig.reading.prompt.documents[0].key;
    raw.segment.has_token_ids_le = true;
    raw.segment.token_ids_le = (ProtobufCBinaryData){.len = 12, .data = (uint8_t *)ids};
    expect_refused(&rig, &raw, "segments[0]: more than one of token_ids and token_ids_le");
    raw.segment.n_token_ids = 0;
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_OK);
    ck_assert_uint_eq(tokens_count(rig.reading.prompt.documents[0].tokens), 3);
    ck_assert_mem_eq(&as_numbers, &rig.reading.prompt.documents[0].key, sizeof(as_numbers));
    raw.segment.token_ids_le.len = 11;
    expect_refused(&rig, &raw, "segments[0]: token_ids_le has 11 bytes: four an id");
    ids[1] = 512;
    raw.segment.token_ids_le.len = 12;
    expect_refused(&rig, &raw, "segments[0]: token_ids[1] is 512: the vocabulary has 512");
    rig_close(&rig);
}
END_TEST

#define KNOWN_IDS 300

static const struct tokens *
read_known(struct rig *rig, struct raw *raw)
{
    ck_assert_int_eq(read_message(rig, METHOD_GENERATE, &raw->request.base), ST_OK);
    return rig->reading.prompt.documents[0].tokens;
}

START_TEST(ids_that_come_again_are_known_and_never_under_another_salt)
{
    struct rig rig;
    struct raw raw;
    uint32_t ids[KNOWN_IDS];
    uint8_t salt[] = "tenant";

    for (uint32_t i = 0; i < KNOWN_IDS; i++) {
        ids[i] = 3 + i % 200;
    }
    rig_open(&rig);
    raw_init(&raw, "a text");
    raw.segment.text = NULL;
    raw.segment.has_token_ids_le = true;
    raw.segment.token_ids_le = (ProtobufCBinaryData){.len = sizeof(ids), .data = (uint8_t *)ids};
    const struct tokens *first = read_known(&rig, &raw);
    struct dockey key = rig.reading.prompt.documents[0].key;

    ck_assert_ptr_eq(read_known(&rig, &raw), first);
    ck_assert_mem_eq(&rig.reading.prompt.documents[0].key, &key, sizeof(key));
    raw.request.has_salt = true;
    raw.request.salt = (ProtobufCBinaryData){.data = salt, .len = sizeof(salt)};
    ck_assert_ptr_ne(read_known(&rig, &raw), first);
    ck_assert_mem_ne(&rig.reading.prompt.documents[0].key, &key, sizeof(key));
    raw.request.has_salt = false;
    ids[KNOWN_IDS - 1] ^= 1;
    ck_assert_ptr_ne(read_known(&rig, &raw), first);
    ck_assert_mem_ne(&rig.reading.prompt.documents[0].key, &key, sizeof(key));
    ids[7] = 512;
    expect_refused(&rig, &raw, "segments[0]: token_ids[7] is 512: the vocabulary has 512");
    rig_close(&rig);
}
END_TEST

START_TEST(a_document_has_the_same_key_in_any_place_and_another_one_under_another_salt)
{
    struct rig rig;
    struct raw raw;
    struct dockey first;
    uint8_t salt[] = "tenant";

    rig_open(&rig);
    raw_init(&raw, "a text");
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_OK);
    first = rig.reading.prompt.documents[0].key;

    Kvasir__V1__Segment other = KVASIR__V1__SEGMENT__INIT;
    Kvasir__V1__Segment *both[] = {&other, &raw.segment};
    char text[] = "something in front";

    other.text = text;
    raw.request.n_segments = 2;
    raw.request.segments = both;
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_OK);
    ck_assert_mem_eq(rig.reading.prompt.documents[1].key.bytes, first.bytes, DOCKEY_BYTES);
    ck_assert_uint_ge(memo_stats(rig.reader.memo).hits, 1);

    raw.request.has_salt = true;
    raw.request.salt = (ProtobufCBinaryData){.data = salt, .len = sizeof(salt)};
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_OK);
    ck_assert_mem_ne(rig.reading.prompt.documents[1].key.bytes, first.bytes, DOCKEY_BYTES);
    raw.request.salt.len = 65;
    raw.request.salt.data = (uint8_t *)rig.bytes;
    expect_refused(&rig, &raw, "salt has 65 bytes: the limit is 64");
    rig_close(&rig);
}
END_TEST

static const struct prompt_document *
read_in_mode(struct rig *rig, struct raw *raw, Kvasir__V1__ReuseMode mode)
{
    raw->request.has_reuse = true;
    raw->request.reuse = mode;
    ck_assert_int_eq(read_message(rig, METHOD_GENERATE, &raw->request.base), ST_OK);
    return rig->reading.prompt.documents;
}

static bool
is_same(const struct dockey *a, const struct dockey *b)
{
    return memcmp(a->bytes, b->bytes, DOCKEY_BYTES) == 0;
}

START_TEST(a_mode_says_under_which_name_a_document_is_looked_for)
{
    const struct prompt_document *docs;
    struct dockey at;
    struct rig rig;
    struct raw raw;

    rig_open(&rig);
    raw_init(&raw, "a text");
    Kvasir__V1__Segment *twice[] = {&raw.segment, &raw.segment};

    raw.request.n_segments = 2;
    raw.request.segments = twice;
    docs = read_in_mode(&rig, &raw, KVASIR__V1__REUSE_MODE__REUSE_LAZY);
    uint32_t length = tokens_count(docs[0].tokens);
    uint32_t query = tokens_count(rig.reading.prompt.query);

    ck_assert(is_same(&docs[0].kv_key, &docs[0].key) && is_same(&docs[1].kv_key, &docs[0].key));
    docs = read_in_mode(&rig, &raw, KVASIR__V1__REUSE_MODE__REUSE_REENCODE);
    ck_assert_int_eq(dockey_at(&docs[1].key, length, &at), ST_OK);
    ck_assert(is_same(&docs[0].kv_key, &docs[0].key) && is_same(&docs[1].kv_key, &at));
    docs = read_in_mode(&rig, &raw, KVASIR__V1__REUSE_MODE__REUSE_PREFIX);
    ck_assert_int_eq(dockey_behind(&docs[0].key, &docs[1].key, &at), ST_OK);
    ck_assert(is_same(&docs[0].kv_key, &docs[0].key) && is_same(&docs[1].kv_key, &at));
    (void)read_in_mode(&rig, &raw, KVASIR__V1__REUSE_MODE__REUSE_NONE);
    ck_assert_uint_eq(rig.reading.prompt.query_documents, 2 * length);
    ck_assert_uint_eq(tokens_count(rig.reading.prompt.query), 2 * length + query);
    rig.reader.reuse = REUSE_PREFIX;
    (void)read_in_mode(&rig, &raw, KVASIR__V1__REUSE_MODE__REUSE_DEFAULT);
    ck_assert_int_eq(rig.reading.prompt.reuse, REUSE_PREFIX);
    raw.request.reuse = (Kvasir__V1__ReuseMode)5;
    expect_refused(&rig, &raw, "reuse is 5: it must be lazy, reencode, prefix or none");
    rig_close(&rig);
}
END_TEST

START_TEST(add_bos_puts_a_segment_of_its_own_in_front_unless_one_is_there)
{
    struct rig rig;
    struct raw raw;
    uint32_t bos;

    rig_open(&rig);
    bos = tokenizer_bos(rig.tokenizer);
    ck_assert_uint_ne(bos, TOKENIZER_NONE);
    raw_init(&raw, "a text");
    raw.request.add_bos = raw.request.has_add_bos = true;
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_OK);
    ck_assert_uint_eq(rig.reading.prompt.document_count, 2);
    ck_assert_uint_eq(tokens_count(rig.reading.prompt.documents[0].tokens), 1);
    ck_assert_uint_eq(tokens_ids(rig.reading.prompt.documents[0].tokens)[0], bos);

    uint32_t ids[] = {bos, 5};

    raw.segment.text = NULL;
    raw.segment.n_token_ids = 2;
    raw.segment.token_ids = ids;
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_OK);
    ck_assert_uint_eq(rig.reading.prompt.document_count, 1);
    rig_close(&rig);
}
END_TEST

START_TEST(a_chat_becomes_preamble_documents_and_query)
{
    struct rig rig;
    Kvasir__V1__GenerateRequest request = KVASIR__V1__GENERATE_REQUEST__INIT;
    Kvasir__V1__Message message = KVASIR__V1__MESSAGE__INIT;
    Kvasir__V1__Message *messages[] = {&message};
    Kvasir__V1__Segment a = KVASIR__V1__SEGMENT__INIT, b = KVASIR__V1__SEGMENT__INIT;
    Kvasir__V1__Segment *documents[] = {&a, &b};
    char role[] = "user", content[] = "why?", title[] = "T", text_a[] = "first",
         text_b[] = "second", name[] = "doc-b";
    struct dockey key_b;

    rig_open(&rig);
    message.role = role;
    message.content = content;
    a.text = text_a;
    b.text = text_b;
    b.title = title;
    b.id = name;
    request.n_messages = 1;
    request.messages = messages;
    request.n_documents = 2;
    request.documents = documents;
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &request.base), ST_OK);
    ck_assert_uint_eq(rig.reading.prompt.document_count, 3);
    ck_assert_str_eq(rig.reading.prompt.documents[2].name, "doc-b");
    ck_assert_uint_gt(tokens_count(rig.reading.prompt.query), 0);
    key_b = rig.reading.prompt.documents[2].key;

    /* Alone and in front, it is the same document. */
    request.documents = documents + 1;
    request.n_documents = 1;
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &request.base), ST_OK);
    ck_assert_mem_eq(rig.reading.prompt.documents[1].key.bytes, key_b.bytes, DOCKEY_BYTES);

    /* And it is the one that Register makes, when it is asked for a chat's. */
    Kvasir__V1__RegisterRequest registration = KVASIR__V1__REGISTER_REQUEST__INIT;

    registration.document = &b;
    registration.is_chat = registration.has_is_chat = true;
    ck_assert_int_eq(read_message(&rig, METHOD_REGISTER, &registration.base), ST_OK);
    ck_assert_mem_eq(rig.reading.prompt.documents[0].key.bytes, key_b.bytes, DOCKEY_BYTES);
    request.query = content;
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &request.base), ST_INVALID);
    rig_close(&rig);
}
END_TEST

static void
expect_not_found(struct rig *rig, struct raw *raw)
{
    ck_assert_int_eq(read_message(rig, METHOD_GENERATE, &raw->request.base), ST_NOT_FOUND);
}

START_TEST(a_registered_document_is_found_by_its_key_and_an_unknown_one_is_not)
{
    struct rig rig;
    struct raw raw;
    struct dockey key;
    Kvasir__V1__RegisterRequest registration = KVASIR__V1__REGISTER_REQUEST__INIT;

    rig_open(&rig);
    raw_init(&raw, "a text to remember");
    registration.document = &raw.segment;
    ck_assert_int_eq(read_message(&rig, METHOD_REGISTER, &registration.base), ST_OK);
    key = rig.reading.prompt.documents[0].key;
    raw.segment.text = NULL;
    raw.segment.has_document_key = true;
    raw.segment.document_key = (ProtobufCBinaryData){.data = key.bytes, .len = DOCKEY_BYTES};
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_OK);
    ck_assert_mem_eq(rig.reading.prompt.documents[0].key.bytes, key.bytes, DOCKEY_BYTES);
    key.bytes[0] ^= 1;
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_NOT_FOUND);
    raw.segment.document_key.len = 31;
    expect_refused(&rig, &raw, "segments[0]: document_key has 31 bytes: it must be 32");
    rig_close(&rig);
}
END_TEST

START_TEST(a_registered_document_is_found_by_its_name_within_its_salt_only)
{
    struct rig rig;
    struct raw raw;
    struct dockey key;
    char name[] = "handbook";
    uint8_t salt[] = "acme";
    Kvasir__V1__RegisterRequest registration = KVASIR__V1__REGISTER_REQUEST__INIT;

    rig_open(&rig);
    raw_init(&raw, "a text to remember");
    raw.segment.id = name;
    registration.document = &raw.segment;
    registration.has_salt = true;
    registration.salt = (ProtobufCBinaryData){.data = salt, .len = 4};
    ck_assert_int_eq(read_message(&rig, METHOD_REGISTER, &registration.base), ST_OK);
    key = rig.reading.prompt.documents[0].key;
    raw.segment.text = NULL;
    raw.segment.document_id = name;
    expect_not_found(&rig, &raw);
    raw.request.has_salt = true;
    raw.request.salt = registration.salt;
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_OK);
    ck_assert_mem_eq(rig.reading.prompt.documents[0].key.bytes, key.bytes, DOCKEY_BYTES);
    /* The key is no way around the salt. */
    raw.segment.document_id = NULL;
    raw.segment.has_document_key = true;
    raw.segment.document_key = (ProtobufCBinaryData){.data = key.bytes, .len = DOCKEY_BYTES};
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_OK);
    raw.request.salt.len = 3;
    expect_not_found(&rig, &raw);
    /* What was forgotten by its key is not found by its name. */
    ck_assert(memo_forget(rig.reader.registered, MEMO_DOCUMENT, &key));
    raw.segment.has_document_key = false;
    raw.segment.document_id = name;
    raw.request.salt.len = 4;
    expect_not_found(&rig, &raw);
    rig_close(&rig);
}
END_TEST

/* The key of the text registered under this salt and the name "the name". */
static struct dockey
register_under(struct rig *rig, struct raw *raw, uint8_t *salt)
{
    static char name[] = "the name";
    Kvasir__V1__RegisterRequest registration = KVASIR__V1__REGISTER_REQUEST__INIT;

    raw->segment.id = name;
    registration.document = &raw->segment;
    registration.has_salt = true;
    registration.salt = (ProtobufCBinaryData){.data = salt, .len = 1};
    ck_assert_int_eq(read_message(rig, METHOD_REGISTER, &registration.base), ST_OK);
    return rig->reading.prompt.documents[0].key;
}

START_TEST(forgetting_a_document_leaves_the_same_text_of_other_salts)
{
    struct rig rig;
    struct raw raw;
    uint8_t salts[2] = {'a', 'b'};
    struct dockey a, b;

    rig_open(&rig);
    raw_init(&raw, "a text that two have");
    a = register_under(&rig, &raw, &salts[0]);
    b = register_under(&rig, &raw, &salts[1]);
    ck_assert_int_ne(memcmp(a.bytes, b.bytes, DOCKEY_BYTES), 0);
    ck_assert_uint_eq(memo_stats(rig.reader.registered).entries, 4);
    ck_assert_uint_eq(registry_forget(rig.reader.registered, &a), 2); /* its key and its name */
    ck_assert_uint_eq(memo_stats(rig.reader.registered).entries, 2);
    ck_assert_uint_eq(registry_forget(rig.reader.registered, &a), 0);
    raw.segment.text = NULL;
    raw.segment.document_id = raw.segment.id;
    raw.segment.id = NULL;
    raw.request.has_salt = true;
    raw.request.salt = (ProtobufCBinaryData){.data = &salts[0], .len = 1};
    expect_not_found(&rig, &raw);
    raw.request.salt.data = &salts[1];
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_OK);
    ck_assert_mem_eq(rig.reading.prompt.documents[0].key.bytes, b.bytes, DOCKEY_BYTES);
    rig_close(&rig);
}
END_TEST

START_TEST(a_name_means_the_document_that_was_registered_last)
{
    struct rig rig;
    struct raw raw;
    struct dockey key;
    char name[] = "handbook", text[] = "its second edition";
    Kvasir__V1__RegisterRequest registration = KVASIR__V1__REGISTER_REQUEST__INIT;

    rig_open(&rig);
    raw_init(&raw, "its first edition");
    raw.segment.id = name;
    registration.document = &raw.segment;
    ck_assert_int_eq(read_message(&rig, METHOD_REGISTER, &registration.base), ST_OK);
    raw.segment.text = text;
    ck_assert_int_eq(read_message(&rig, METHOD_REGISTER, &registration.base), ST_OK);
    key = rig.reading.prompt.documents[0].key;
    raw.segment.text = NULL;
    raw.segment.document_id = name;
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &raw.request.base), ST_OK);
    ck_assert_mem_eq(rig.reading.prompt.documents[0].key.bytes, key.bytes, DOCKEY_BYTES);
    rig_close(&rig);
}
END_TEST

START_TEST(a_chat_is_tokenised_to_what_it_would_be_answered_from)
{
    struct rig rig;
    char role[] = "user", content[] = "which port?", text[] = "port 22";
    Kvasir__V1__Message message = KVASIR__V1__MESSAGE__INIT;
    Kvasir__V1__Message *messages[] = {&message};
    Kvasir__V1__Segment document = KVASIR__V1__SEGMENT__INIT;
    Kvasir__V1__Segment *documents[] = {&document};
    Kvasir__V1__GenerateRequest request = KVASIR__V1__GENERATE_REQUEST__INIT;
    Kvasir__V1__TokenizeRequest tokenize = KVASIR__V1__TOKENIZE_REQUEST__INIT;
    size_t count;

    rig_open(&rig);
    message.role = role;
    message.content = content;
    document.text = text;
    request.messages = tokenize.messages = messages;
    request.n_messages = tokenize.n_messages = 1;
    request.documents = tokenize.documents = documents;
    request.n_documents = tokenize.n_documents = 1;
    ck_assert_int_eq(read_message(&rig, METHOD_GENERATE, &request.base), ST_OK);
    count = tokens_count(rig.reading.prompt.query);
    for (size_t i = 0; i < rig.reading.prompt.document_count; i++) {
        count += tokens_count(rig.reading.prompt.documents[i].tokens);
    }
    ck_assert_int_eq(read_message(&rig, METHOD_TOKENIZE, &tokenize.base), ST_OK);
    ck_assert_uint_eq(tokens_count(rig.reading.prompt.query), count);
    tokenize.text = text;
    ck_assert_int_eq(read_message(&rig, METHOD_TOKENIZE, &tokenize.base), ST_INVALID);
    rig_close(&rig);
}
END_TEST

START_TEST(bytes_that_are_no_message_are_refused_and_nothing_leaks)
{
    struct rig rig;
    uint8_t junk[64];

    rig_open(&rig);
    memset(junk, 0xff, sizeof(junk));
    ck_assert_int_eq(
        read_prompt(&rig.reader, rig.arena, rig.scratch,
                    &(struct client_message){METHOD_GENERATE, "", junk, sizeof(junk), NULL},
                    &rig.reading),
        ST_INVALID);
    rig_close(&rig);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
    struct rig rig;
    struct raw raw;
    char stop[] = "end";
    char *stops[] = {stop};
    char name[] = "name";
    enum status st = ST_NO_MEMORY;

    rig_open(&rig);
    raw_init(&raw, "a text that nobody knows yet");
    raw.segment.id = name;
    raw.sampling.n_stop = 1;
    raw.sampling.stop = stops;

    struct wire_buffer buffer = {0};

    ck_assert_int_eq(wire_pack(&buffer, &raw.request.base), ST_OK);
    for (uint64_t n = 1; st != ST_OK; n++) {
        ck_assert_uint_lt(n, 1000);
        mem_fail_at(n);
        st = read_prompt(
            &rig.reader, rig.arena, rig.scratch,
            &(struct client_message){METHOD_GENERATE, "", buffer.bytes, buffer.length, NULL},
            &rig.reading);
        ck_assert(st == ST_OK || st == ST_NO_MEMORY);
    }
    mem_fail_at(0);
    wire_buffer_deinit(&buffer);
    rig_close(&rig);
}
END_TEST

CHECK_MAIN("read_prompt", absent_sampling_fields_get_their_defaults_and_a_seed_is_chosen,
           a_value_out_of_its_range_is_refused_by_name_with_the_range,
           a_retry_brings_what_came_and_the_seed_that_it_was_drawn_with,
           contradictions_between_raw_and_chat_are_refused,
           ids_are_the_same_document_as_numbers_and_as_bytes,
           ids_that_come_again_are_known_and_never_under_another_salt,
           a_document_has_the_same_key_in_any_place_and_another_one_under_another_salt,
           a_mode_says_under_which_name_a_document_is_looked_for,
           add_bos_puts_a_segment_of_its_own_in_front_unless_one_is_there,
           a_chat_becomes_preamble_documents_and_query,
           a_registered_document_is_found_by_its_key_and_an_unknown_one_is_not,
           a_registered_document_is_found_by_its_name_within_its_salt_only,
           forgetting_a_document_leaves_the_same_text_of_other_salts,
           a_name_means_the_document_that_was_registered_last,
           a_chat_is_tokenised_to_what_it_would_be_answered_from,
           bytes_that_are_no_message_are_refused_and_nothing_leaks, every_allocation_may_fail)
