/* SPDX-License-Identifier: Apache-2.0 */
/* Documents of shared corpora: who may register them, who may cite them, and that they are one and
 * the same for all of those. */
#include "tests/support/check_main.h"
#include "tests/support/read_rig.h"

#include "kvasir/v1/documents.pb-c.h"

static enum status
register_in(struct rig *rig, const char *corpus, struct dockey *key_out)
{
    Kvasir__V1__RegisterRequest request = KVASIR__V1__REGISTER_REQUEST__INIT;
    Kvasir__V1__Segment segment = KVASIR__V1__SEGMENT__INIT;
    char text[] = "what everybody knows", name[32], id[] = "one";

    (void)snprintf(name, sizeof(name), "%s", corpus);
    segment.text = text;
    segment.id = id;
    segment.corpus = name;
    request.document = &segment;
    enum status st = read_message(rig, METHOD_REGISTER, &request.base);

    if (st == ST_OK) {
        *key_out = rig->reading.prompt.documents[0].key;
    }
    return st;
}

static enum status
cite(struct rig *rig, const char *corpus, struct dockey *key_out)
{
    struct raw raw;
    char name[32], id[] = "one";

    raw_init(&raw, "");
    raw.segment.text = NULL;
    raw.segment.document_id = id;
    if (corpus != NULL) {
        (void)snprintf(name, sizeof(name), "%s", corpus);
        raw.segment.corpus = name;
    }
    enum status st = read_message(rig, METHOD_GENERATE, &raw.request.base);

    if (st == ST_OK) {
        *key_out = rig->reading.prompt.documents[0].key;
        ck_assert_int_eq(rig->reading.prompt.documents[0].is_shared, corpus != NULL);
    }
    return st;
}

START_TEST(a_shared_corpus_is_there_for_those_it_was_granted_to_and_for_nobody_else)
{
    static const struct tenant_grant curator = {.curates = ",law,"}, reader = {.corpora = ",law,"},
                                     other = {.corpora = ",lawn,claw,"}, nobody = {.is_all = true};
    struct dockey key, cited;
    char law[] = "law";
    struct rig rig;
    struct raw raw;

    rig_open(&rig);
    rig.tenant = "curator";
    rig.grant = &curator;
    ck_assert_int_eq(register_in(&rig, "law", &key), ST_OK);
    ck_assert_int_eq(register_in(&rig, "lawn", &key), ST_NOT_FOUND);
    ck_assert_int_eq(cite(&rig, "law", &cited), ST_NOT_FOUND); /* it may write, not read */
    ck_assert_int_eq(cite(&rig, NULL, &cited), ST_NOT_FOUND);  /* nor is it its own */
    rig.tenant = "a";
    rig.grant = &reader;
    ck_assert_int_eq(cite(&rig, "law", &cited), ST_OK);
    ck_assert_mem_eq(&cited, &key, sizeof(key));
    ck_assert_int_eq(cite(&rig, NULL, &cited), ST_NOT_FOUND);
    ck_assert_int_eq(register_in(&rig, "law", &key), ST_NOT_FOUND);
    rig.tenant = "b"; /* the same document for everybody */
    ck_assert_int_eq(cite(&rig, "law", &cited), ST_OK);
    ck_assert_mem_eq(&cited, &key, sizeof(key));
    rig.grant = &other;
    ck_assert_int_eq(cite(&rig, "law", &cited), ST_NOT_FOUND);
    rig.grant = NULL;
    ck_assert_int_eq(cite(&rig, "law", &cited), ST_NOT_FOUND);
    rig.tenant = "";
    rig.grant = &nobody;
    ck_assert_int_eq(cite(&rig, "law", &cited), ST_OK);
    raw_init(&raw, "what everybody knows");
    raw.segment.corpus = law;
    expect_refused(&rig, &raw, "segments[0]: corpus goes with document_key or document_id");
    rig_close(&rig);
}
END_TEST

CHECK_MAIN("read_corpus", a_shared_corpus_is_there_for_those_it_was_granted_to_and_for_nobody_else)
