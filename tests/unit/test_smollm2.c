/* SPDX-License-Identifier: Apache-2.0 */
/* What a real checkpoint says, beside those who made it.  Skipped as a whole where it is not: it is
 * at $KVASIR_TEST_MODEL, or where deploy/fetch-model puts it. */
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "model/template.h"
#include "tests/support/check_main.h"
#include "tests/support/golden_check.h"

#define NAME "SmolLM2-135M-Instruct.Q4_1.gguf"

static char model_path[512];

START_TEST(logits_and_greedy_answers_equal_the_goldens)
{
    /* Ten times slower there, and the others take the same paths. */
    static const char *const short_ones[] = {"prompt_31", "docs_in_order", NULL};

    golden_check_some("smollm2", model_path, SCENE(true, false, false) ? NULL : short_ones);
}
END_TEST

struct prompt {
    uint32_t ids[256];
    size_t count;
};

static enum status
keep_segment(void *arg, enum template_segment_kind kind, size_t document_index, const uint32_t *ids,
             size_t count)
{
    struct prompt *prompt = arg;

    (void)kind;
    (void)document_index;
    ck_assert_uint_le(prompt->count + count, sizeof(prompt->ids) / sizeof(prompt->ids[0]));
    memcpy(prompt->ids + prompt->count, ids, count * sizeof(ids[0]));
    prompt->count += count;
    return ST_OK;
}

/* Ids from the checkpoint's Jinja and PyPI's tokenizers; see tests/oracle/compare_tokenizers.py. */
START_TEST(it_reads_a_chat_as_its_own_template_has_it)
{
    static const uint32_t wanted[] = {
        1,     9690,  198,  2683, 359,   253,  5356, 5646, 11173, 3365, 3511, 308,   34519,
        28,    7018,  411,  407,  19712, 8182, 2,    198,  1,     4093, 198,  10576, 4150,
        357,   281,   216,  33,   41,    40,   36,   47,   2,     198,  1,    520,   9531,
        198,   46844, 5443, 30,   2,     198,  1,    4093, 198,   3528, 1209, 42,    37366,
        15107, 116,   243,  47,   198,   2,    198,  1,    520,   9531, 198,
    };
    static const char last[] = "And now: caf\xC3\xA9 \xF0\x9F\xA6\x99?\n";
    const struct template_message chat[] = {{"user", "Who wrote it in 1984?", 21},
                                            {"assistant", "Nobody knows.", 13},
                                            {"user", last, sizeof(last) - 1}};
    struct gguf *gguf = NULL;
    struct tokenizer *tokenizer = NULL;
    struct tokenizer_scratch *scratch = NULL;
    struct prompt prompt = {.count = 0};
    size_t length;

    ck_assert_msg(gguf_open(model_path, &gguf) == ST_OK, "%s", status_detail());
    ck_assert_msg(tokenizer_new(gguf, &tokenizer) == ST_OK, "%s", status_detail());
    ck_assert_int_eq(tokenizer_scratch_new(&scratch), ST_OK);
    const char *jinja = tokenizer_chat_template(tokenizer, &length);
    ck_assert_int_eq(template_detect(jinja, length), TEMPLATE_CHATML);
    ck_assert_int_eq(template_render_chat(TEMPLATE_CHATML, tokenizer, scratch, chat, 3, NULL, 0,
                                          keep_segment, &prompt),
                     ST_OK);
    ck_assert_uint_eq(prompt.count, sizeof(wanted) / sizeof(wanted[0]));
    ck_assert_mem_eq(prompt.ids, wanted, sizeof(wanted));
    ck_assert(tokenizer_is_end(tokenizer, 2) && !tokenizer_adds_bos(tokenizer));
    tokenizer_scratch_destroy(&scratch);
    tokenizer_destroy(&tokenizer);
    gguf_close(&gguf);
}
END_TEST

static void
find_model(void)
{
    const char *given = getenv("KVASIR_TEST_MODEL");
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");

    if (given != NULL) {
        (void)snprintf(model_path, sizeof(model_path), "%s", given);
    } else if (cache != NULL) {
        (void)snprintf(model_path, sizeof(model_path), "%s/kvasir/" NAME, cache);
    } else {
        (void)snprintf(model_path, sizeof(model_path), "%s/.cache/kvasir/" NAME,
                       home != NULL ? home : "");
    }
    if (access(model_path, R_OK) != 0) {
        CHECK_SKIP_PROGRAM("no " NAME
                           " at $KVASIR_TEST_MODEL or in the cache of deploy/fetch-model");
    }
}

int
main(void)
{
    const TTest *const tests[] = {logits_and_greedy_answers_equal_the_goldens,
                                  it_reads_a_chat_as_its_own_template_has_it};

    find_model();
    return check_run("smollm2", tests, sizeof(tests) / sizeof(tests[0]), CHECK_TIMEOUT_SECONDS);
}
