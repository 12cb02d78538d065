/* SPDX-License-Identifier: Apache-2.0 */
/* The forward pass against HF transformers on the same weights (tests/goldens/make_goldens.py says
 * how the goldens came about and what their records mean).  Every case runs in one step, documents
 * and query together; greedy answers run through the engine.
 *
 * Tolerance: a golden's `noise` is the largest difference between that implementation in float32
 * and in float64.  Ours is another float32 implementation with sums in another order: its error is
 * of the same size and independent, so a few times the noise bounds it; a wrong angle, mask or
 * weight is off by hundreds of times. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/mem.h"
#include "model/gguf.h"
#include "tests/support/check_main.h"
#include "tests/support/engine_rig.h"
#include "worker/llama.h"

#define NOISE_FACTOR 4.0f
#define IDS_MAX      512
#define DOCS_MAX     8
#define LOGITS_MAX   8
#define GREEDY_MAX   64
#define VALUES_MAX   512
#define SMOLLM2_NAME "SmolLM2-135M-Instruct.Q4_1.gguf"

struct golden_logits {
    uint32_t position;
    uint32_t count;
    float values[VALUES_MAX];
    uint32_t top[8];
    uint32_t n_top;
};

struct golden_case {
    char name[64];
    uint32_t docs[DOCS_MAX];
    uint32_t n_docs;
    uint32_t ids[IDS_MAX];
    uint32_t n_ids;
    float noise;
    struct golden_logits logits[LOGITS_MAX];
    uint32_t n_logits;
    uint32_t greedy[GREEDY_MAX];
    uint32_t n_greedy;
};

struct goldens {
    FILE *file;
    struct rig *rig;
    uint32_t index[VALUES_MAX]; /* ids of the stored logits */
    uint32_t n_index;
    struct golden_case current;
    uint32_t n_cases, n_values;
    float worst; /* difference, in units of its case's noise */
};

/* --- reading ------------------------------------------------------------------------- */

static uint32_t
read_u32(char **at)
{
    char *end;
    unsigned long value;

    errno = 0;
    value = strtoul(*at, &end, 10);
    ck_assert_msg(end != *at && errno == 0 && value <= UINT32_MAX, "number at: %.20s", *at);
    *at = end;
    return (uint32_t)value;
}

/* A count, then that many numbers. */
static uint32_t
read_list(char **at, uint32_t *out, uint32_t max)
{
    uint32_t n = read_u32(at);

    ck_assert_uint_le(n, max);
    for (uint32_t i = 0; i < n; i++) {
        out[i] = read_u32(at);
    }
    return n;
}

static void
read_logits(char *at, struct golden_case *c)
{
    ck_assert_uint_lt(c->n_logits, LOGITS_MAX);
    struct golden_logits *logits = &c->logits[c->n_logits++];

    logits->position = read_u32(&at);
    logits->count = read_u32(&at);
    ck_assert_uint_le(logits->count, VALUES_MAX);
    for (uint32_t i = 0; i < logits->count; i++) {
        uint32_t bits = (uint32_t)strtoul(at, &at, 16);

        memcpy(&logits->values[i], &bits, sizeof(bits));
    }
}

static void
read_top(char *at, struct golden_case *c)
{
    struct golden_logits *logits = &c->logits[c->n_logits - 1];

    ck_assert_uint_eq(read_u32(&at), logits->position);
    logits->n_top = read_list(&at, logits->top, 8);
}

static void
set_tiny(struct tiny_model_config *tiny, const char *key, const char *value)
{
    uint32_t number = (uint32_t)strtoul(value, NULL, 10);
    const struct {
        const char *key;
        uint32_t *field;
    } fields[] = {{"width", &tiny->C},    {"ffn", &tiny->F},
                  {"vocab", &tiny->V},    {"layers", &tiny->L},
                  {"heads", &tiny->H},    {"kv_heads", &tiny->Hkv},
                  {"head_dim", &tiny->D}, {"context", &tiny->context_max}};

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (strcmp(key, fields[i].key) == 0) {
            *fields[i].field = number;
            return;
        }
    }
    if (strcmp(key, "seed") == 0) {
        tiny->seed = number;
    } else if (strcmp(key, "type") == 0) {
        ck_assert_int_eq(tiny_model_parse_type(value, &tiny->type), ST_OK);
    } else if (strcmp(key, "rope") == 0) {
        ck_assert_int_eq(tiny_model_parse_rope(value, &tiny->rope), ST_OK);
    } else if (strcmp(key, "untied") == 0) {
        tiny->has_tied_embeddings = number == 0;
    } else {
        ck_assert_msg(strcmp(key, "kind") == 0 || strcmp(key, "sha256") == 0, "unknown key %s",
                      key);
    }
}

static struct rig_config
golden_rig(void)
{
    return (struct rig_config){
        .block_tokens = 32, .block_count = 64, .step_tokens = 512, .seqs_max = 8};
}

static void
open_tiny(struct goldens *goldens, char *words)
{
    struct tiny_model_config tiny = tiny_model_defaults();
    struct rig_config config = golden_rig();
    char *state = NULL;

    for (char *word = strtok_r(words, " \n", &state); word != NULL;
         word = strtok_r(NULL, " \n", &state)) {
        char *value = strchr(word, '=');

        ck_assert_ptr_nonnull(value);
        *value++ = '\0';
        set_tiny(&tiny, word, value);
    }
    config.tiny = &tiny;
    goldens->rig = rig_new(&config);
}

/* Goldens are of one file's bytes and of no other's. */
static void
check_sha256(const struct goldens *goldens, const char *words)
{
    const char *given = strstr(words, "sha256=");
    uint8_t sum[32];
    char hex[65];

    ck_assert_ptr_nonnull(given);
    ck_assert_int_eq(gguf_fingerprint(goldens->rig->gguf, sum), ST_OK);
    for (size_t i = 0; i < sizeof(sum); i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    }
    ck_assert_msg(strncmp(given + strlen("sha256="), hex, 64) == 0,
                  "the model's SHA-256 is %s; the goldens are of: %s", hex, words);
}

/* --- checking ------------------------------------------------------------------------ */

/* The whole prompt as one step: documents, then the query over them. */
struct prompt {
    uint32_t lengths[DOCS_MAX + 1]; /* the query last */
    uint32_t offsets[DOCS_MAX + 1];
    uint32_t *blocks[DOCS_MAX + 1];
    uint32_t n_parts;
    struct llama_step step;
    uint32_t ids[IDS_MAX], row_block[IDS_MAX], row_slot[IDS_MAX], row_pos[IDS_MAX];
    uint32_t row_of[IDS_MAX]; /* row of a global position */
    struct attn_seq seqs[DOCS_MAX + 1];
    struct attn_segment segs[2 * DOCS_MAX + 1];
    uint32_t block_ids[4 * DOCS_MAX + IDS_MAX];
    uint32_t logit_rows[LOGITS_MAX];
};

static void
add_segment(struct prompt *p, uint32_t part, uint32_t offset)
{
    uint32_t n_blocks = (p->lengths[part] + 31) / 32;

    p->segs[p->step.n_segs++] = (struct attn_segment){
        .block_first = p->step.n_block_ids, .n_tokens = p->lengths[part], .offset = offset};
    for (uint32_t i = 0; i < n_blocks; i++) {
        p->block_ids[p->step.n_block_ids++] = p->blocks[part][i];
    }
}

static void
add_part(struct prompt *p, const struct golden_case *c, uint32_t part)
{
    struct llama_step *step = &p->step;
    bool is_query = part == c->n_docs;

    p->seqs[step->n_seqs++] = (struct attn_seq){.row_first = step->n_rows,
                                                .n_rows = p->lengths[part],
                                                .pos_first = is_query ? p->offsets[part] : 0,
                                                .seg_first = step->n_segs,
                                                .n_segs = is_query ? c->n_docs + 1 : 1};
    for (uint32_t d = 0; is_query && d < c->n_docs; d++) {
        add_segment(p, d, p->offsets[d]);
    }
    add_segment(p, part, is_query ? p->offsets[part] : 0);
    for (uint32_t i = 0; i < p->lengths[part]; i++) {
        uint32_t row = step->n_rows++;

        p->row_of[p->offsets[part] + i] = row;
        p->ids[row] = c->ids[p->offsets[part] + i];
        p->row_block[row] = p->blocks[part][i / 32];
        p->row_slot[row] = i % 32;
        p->row_pos[row] = i;
    }
}

static void
prepare(struct prompt *p, const struct golden_case *c, struct rig *rig)
{
    uint32_t offset = 0;

    *p = (struct prompt){.n_parts = c->n_docs + 1};
    p->step = (struct llama_step){.ids = p->ids,
                                  .row_block = p->row_block,
                                  .row_slot = p->row_slot,
                                  .row_pos = p->row_pos,
                                  .seqs = p->seqs,
                                  .segs = p->segs,
                                  .block_ids = p->block_ids,
                                  .logit_rows = p->logit_rows,
                                  .n_logits = c->n_logits};
    for (uint32_t part = 0; part < p->n_parts; part++) {
        p->lengths[part] = part < c->n_docs ? c->docs[part] : c->n_ids - offset;
        p->offsets[part] = offset;
        p->blocks[part] = rig_blocks(rig, p->lengths[part]);
        offset += p->lengths[part];
    }
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t part = 0; part < p->n_parts; part++) {
            if (p->lengths[part] > 0 && (p->lengths[part] == 1) == (pass == 0)) {
                add_part(p, c, part);
            }
        }
        p->step.n_single = pass == 0 ? p->step.n_seqs : p->step.n_single;
    }
    for (uint32_t i = 0; i < c->n_logits; i++) {
        p->logit_rows[i] = p->row_of[c->logits[i].position];
    }
}

static void
compare_logits(struct goldens *goldens, const struct golden_logits *golden, const float *ours,
               float noise)
{
    const struct golden_case *c = &goldens->current;
    uint32_t best = 0;

    for (uint32_t i = 0; i < golden->count; i++) {
        uint32_t id = goldens->n_index > 0 ? goldens->index[i] : i;
        float difference = fabsf(ours[id] - golden->values[i]);

        goldens->worst = fmaxf(goldens->worst, difference / noise);
        ck_assert_msg(difference <= NOISE_FACTOR * noise,
                      "%s position %u id %u: %.9g, golden %.9g, off by %.3g, noise %.3g", c->name,
                      golden->position, id, (double)ours[id], (double)golden->values[i],
                      (double)difference, (double)noise);
    }
    for (uint32_t id = 1; id < goldens->rig->model.V; id++) {
        best = ours[id] > ours[best] ? id : best;
    }
    ck_assert_uint_eq(best, golden->top[0]);
    goldens->n_values += golden->count;
}

static void
check_logits(struct goldens *goldens)
{
    const struct golden_case *c = &goldens->current;
    struct rig *rig = goldens->rig;
    struct rig_config config = golden_rig();
    struct llama *llama = NULL;
    static struct prompt prompt;

    rig_restart(rig, &config);
    prepare(&prompt, c, rig);
    ck_assert_int_eq(llama_new(&(struct llama_config){.model = &rig->model,
                                                      .plan = &rig->plan,
                                                      .weights = rig->weights,
                                                      .kv = rig->kv,
                                                      .layout = rig->layout,
                                                      .block_count = config.block_count,
                                                      .ops = rig->ops,
                                                      .rows_max = IDS_MAX,
                                                      .logits_max = LOGITS_MAX},
                               &llama),
                     ST_OK);
    ck_assert_int_eq(llama_reserve(llama, &(struct llama_room){.segs = prompt.step.n_segs,
                                                               .block_ids = prompt.step.n_block_ids,
                                                               .partials = DOCS_MAX + 1}),
                     ST_OK);
    float *logits = mem_zalloc(c->n_logits, rig->model.V * sizeof(float));

    ck_assert_ptr_nonnull(logits);
    ck_assert_int_eq(llama_forward(llama, &prompt.step), ST_OK);
    ck_assert_int_eq(llama_logits(llama, c->n_logits, logits), ST_OK);
    for (uint32_t i = 0; i < c->n_logits; i++) {
        compare_logits(goldens, &c->logits[i], logits + (size_t)i * rig->model.V, c->noise);
    }
    for (uint32_t part = 0; part < prompt.n_parts; part++) {
        mem_free(prompt.blocks[part]);
    }
    mem_free(logits);
    llama_destroy(&llama);
}

static void
check_greedy(struct goldens *goldens)
{
    const struct golden_case *c = &goldens->current;
    struct rig *rig = goldens->rig;
    struct rig_config config = golden_rig();
    struct rig_doc docs[DOCS_MAX];
    uint32_t offset = 0;

    config.step_tokens = 48; /* so that prompts are cut */
    rig_restart(rig, &config);
    for (uint32_t d = 0; d < c->n_docs; d++) {
        docs[d] = (struct rig_doc){c->ids + offset, c->docs[d], rig_blocks(rig, c->docs[d]),
                                   d + 1,           false,      0};
        offset += c->docs[d];
    }
    struct rig_request request = {.id = 1,
                                  .docs = docs,
                                  .n_docs = c->n_docs,
                                  .query = c->ids + offset,
                                  .n_query = c->n_ids - offset,
                                  .max_tokens = c->n_greedy,
                                  .ignores_end = true};

    rig_assign(rig, &request);
    rig_run(rig);
    ck_assert_str_eq(rig->heard[1].error, "");
    ck_assert_uint_eq(rig->heard[1].n_ids, c->n_greedy);
    for (uint32_t i = 0; i < c->n_greedy; i++) {
        ck_assert_msg(rig->heard[1].ids[i] == c->greedy[i], "%s: token %u is %u, golden %u",
                      c->name, i, rig->heard[1].ids[i], c->greedy[i]);
    }
    for (uint32_t d = 0; d < c->n_docs; d++) {
        mem_free(docs[d].blocks);
    }
}

static void
check_case(struct goldens *goldens)
{
    if (goldens->current.n_ids > 0) {
        goldens->n_cases++;
        check_logits(goldens);
        if (goldens->current.n_greedy > 0) {
            check_greedy(goldens);
        }
    }
    goldens->current = (struct golden_case){0};
}

static void
read_record(struct goldens *goldens, char *line)
{
    struct golden_case *c = &goldens->current;
    char *at = strchr(line, ' ');

    ck_assert_ptr_nonnull(at);
    *at++ = '\0';
    if (strcmp(line, "model") == 0) {
        char *words = mem_strdup(at);

        if (goldens->rig == NULL) {
            open_tiny(goldens, words);
        }
        check_sha256(goldens, at);
        mem_free(words);
    } else if (strcmp(line, "index") == 0) {
        goldens->n_index = read_list(&at, goldens->index, VALUES_MAX);
    } else if (strcmp(line, "case") == 0) {
        check_case(goldens);
        (void)snprintf(c->name, sizeof(c->name), "%.*s", (int)strcspn(at, "\n"), at);
    } else if (strcmp(line, "docs") == 0) {
        c->n_docs = read_list(&at, c->docs, DOCS_MAX);
    } else if (strcmp(line, "ids") == 0) {
        c->n_ids = read_list(&at, c->ids, IDS_MAX);
    } else if (strcmp(line, "noise") == 0) {
        c->noise = strtof(at, NULL);
    } else if (strcmp(line, "logits") == 0) {
        read_logits(at, c);
    } else if (strcmp(line, "top") == 0) {
        read_top(at, c);
    } else if (strcmp(line, "greedy") == 0) {
        (void)strtof(at, &at); /* the smallest lead of a chosen token */
        c->n_greedy = read_list(&at, c->greedy, GREEDY_MAX);
    } else {
        ck_abort_msg("unknown record %s", line);
    }
}

static void
check_file(const char *name, struct rig *rig)
{
    struct goldens *goldens = mem_zalloc(1, sizeof(*goldens));
    const char *srcdir = getenv("KVASIR_SRCDIR");
    char path[512];
    char *line = NULL;
    size_t size = 0;

    ck_assert_ptr_nonnull(goldens);
    (void)snprintf(path, sizeof(path), "%s/tests/goldens/%s.txt", srcdir != NULL ? srcdir : ".",
                   name);
    goldens->file = fopen(path, "r");
    ck_assert_msg(goldens->file != NULL, "%s: %s", path, strerror(errno));
    goldens->rig = rig;
    while (getline(&line, &size, goldens->file) > 0) {
        if (line[0] != '#' && line[0] != '\n') {
            read_record(goldens, line);
        }
    }
    check_case(goldens);
    printf("%s: %u cases, %u logits, worst difference %.2f of the noise\n", name, goldens->n_cases,
           goldens->n_values, (double)goldens->worst);
    ck_assert_uint_gt(goldens->n_cases, 0);
    (void)fclose(goldens->file);
    rig_destroy(&goldens->rig);
    mem_free(goldens);
    free(line);
}

START_TEST(logits_and_greedy_answers_of_gqa_1_equal_the_goldens)
{
    check_file("tiny_gqa1", NULL);
}
END_TEST

START_TEST(logits_and_greedy_answers_of_gqa_3_and_scaled_positions_equal_the_goldens)
{
    check_file("tiny_gqa3", NULL);
}
END_TEST

START_TEST(logits_and_greedy_answers_of_gqa_4_and_head_dim_128_equal_the_goldens)
{
    check_file("tiny_gqa4", NULL);
}
END_TEST

START_TEST(logits_and_greedy_answers_of_gqa_8_equal_the_goldens)
{
    check_file("tiny_gqa8", NULL);
}
END_TEST

/* Where the real model is, or "" if it is not there. */
static void
find_smollm2(char path[512])
{
    const char *given = getenv("KVASIR_TEST_MODEL");
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    struct stat info;

    if (given != NULL) {
        (void)snprintf(path, 512, "%s", given);
    } else if (cache != NULL) {
        (void)snprintf(path, 512, "%s/kvasir/" SMOLLM2_NAME, cache);
    } else {
        (void)snprintf(path, 512, "%s/.cache/kvasir/" SMOLLM2_NAME, home != NULL ? home : "");
    }
    if (stat(path, &info) != 0) {
        path[0] = '\0';
    }
}

START_TEST(logits_and_greedy_answers_of_smollm2_equal_the_goldens)
{
    struct rig_config config = golden_rig();
    char path[512];

    find_smollm2(path);
    if (path[0] == '\0') {
        printf("SKIP: no " SMOLLM2_NAME " (KVASIR_TEST_MODEL or the cache): goldens not run\n");
        return;
    }
    config.model_path = path;
    check_file("smollm2", rig_new(&config));
}
END_TEST

CHECK_MAIN("llama", logits_and_greedy_answers_of_gqa_1_equal_the_goldens,
           logits_and_greedy_answers_of_gqa_3_and_scaled_positions_equal_the_goldens,
           logits_and_greedy_answers_of_gqa_4_and_head_dim_128_equal_the_goldens,
           logits_and_greedy_answers_of_gqa_8_equal_the_goldens,
           logits_and_greedy_answers_of_smollm2_equal_the_goldens)
