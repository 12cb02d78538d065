/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/golden_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <check.h>

#include "common/mem.h"
#include "tests/support/engine_rig.h"
#include "tests/support/golden.h"
#include "worker/llama.h"

#define NOISE_FACTOR 8.0 /* golden_check.h derives it */
#define GREEDY_SHORT 4
#define IDS_MAX      512
#define DOCS_MAX     8

struct goldens {
    struct golden *golden;
    struct rig *rig;
    const char *const *only; /* names of cases; NULL: all */
    uint32_t n_values;
    double worst; /* difference, in units of its case's noise */
};

static struct rig_config
golden_rig(void)
{
    return (struct rig_config){
        .block_tokens = 32, .block_count = 64, .step_tokens = IDS_MAX, .seqs_max = 8};
}

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
    uint32_t logit_rows[GOLDEN_ROWS_MAX];
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
    bool is_query = part == c->docs.count;

    p->seqs[step->n_seqs++] = (struct attn_seq){.row_first = step->n_rows,
                                                .n_rows = p->lengths[part],
                                                .pos_first = is_query ? p->offsets[part] : 0,
                                                .seg_first = step->n_segs,
                                                .n_segs = is_query ? c->docs.count + 1 : 1};
    for (uint32_t d = 0; is_query && d < c->docs.count; d++) {
        add_segment(p, d, p->offsets[d]);
    }
    add_segment(p, part, is_query ? p->offsets[part] : 0);
    for (uint32_t i = 0; i < p->lengths[part]; i++) {
        uint32_t row = step->n_rows++;

        p->row_of[p->offsets[part] + i] = row;
        p->ids[row] = c->prompt.ids[p->offsets[part] + i];
        p->row_block[row] = p->blocks[part][i / 32];
        p->row_slot[row] = i % 32;
        p->row_pos[row] = i;
    }
}

static void
prepare(struct prompt *p, const struct golden_case *c, struct rig *rig)
{
    uint32_t offset = 0;

    *p = (struct prompt){.n_parts = c->docs.count + 1};
    p->step = (struct llama_step){.ids = p->ids,
                                  .row_block = p->row_block,
                                  .row_slot = p->row_slot,
                                  .row_pos = p->row_pos,
                                  .seqs = p->seqs,
                                  .segs = p->segs,
                                  .block_ids = p->block_ids,
                                  .logit_rows = p->logit_rows,
                                  .n_logits = c->n_rows};
    for (uint32_t part = 0; part < p->n_parts; part++) {
        p->lengths[part] = part < c->docs.count ? c->docs.ids[part] : c->prompt.count - offset;
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
    for (uint32_t i = 0; i < c->n_rows; i++) {
        p->logit_rows[i] = p->row_of[c->rows[i].position];
    }
}

/* Goldens are of one file's bytes and of no other's. */
static void
check_sha256(const struct goldens *goldens)
{
    uint8_t sum[32];
    char hex[65];

    ck_assert_int_eq(checkpoint_fingerprint(goldens->rig->checkpoint, sum), ST_OK);
    for (size_t i = 0; i < sizeof(sum); i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", sum[i]);
    }
    ck_assert_msg(strstr(goldens->golden->model, hex) != NULL, "SHA-256 %s is not in \"%s\"", hex,
                  goldens->golden->model);
}

static void
compare_logits(struct goldens *goldens, const struct golden_case *c, const struct golden_row *row,
               const float *ours)
{
    const struct golden_ids *index = &goldens->golden->index;
    uint32_t best = 0;

    for (uint32_t i = 0; i < row->n_logits; i++) {
        uint32_t id = index->count > 0 ? index->ids[i] : i;
        double difference = fabs((double)ours[id] - (double)row->logits[i]);

        goldens->worst = fmax(goldens->worst, difference / c->noise);
        ck_assert_msg(difference <= NOISE_FACTOR * c->noise,
                      "%s position %u id %u: %.9g, golden %.9g, off by %.3g, noise %.3g", c->name,
                      row->position, id, (double)ours[id], (double)row->logits[i], difference,
                      c->noise);
    }
    for (uint32_t id = 1; id < goldens->rig->model.V; id++) {
        best = ours[id] > ours[best] ? id : best;
    }
    ck_assert_uint_eq(best, row->top.ids[0]);
    goldens->n_values += row->n_logits;
}

static void
check_logits(struct goldens *goldens, const struct golden_case *c)
{
    struct rig *rig = goldens->rig;
    struct rig_config config = golden_rig();
    struct llama *llama = NULL;
    static struct prompt prompt;

    ck_assert_uint_le(c->docs.count, DOCS_MAX);
    ck_assert_uint_le(c->prompt.count, IDS_MAX);
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
                                                      .logits_max = GOLDEN_ROWS_MAX},
                               &llama),
                     ST_OK);
    ck_assert_int_eq(llama_reserve(llama, &(struct llama_room){.segs = prompt.step.n_segs,
                                                               .block_ids = prompt.step.n_block_ids,
                                                               .partials = DOCS_MAX + 1}),
                     ST_OK);
    float *logits = mem_zalloc(c->n_rows, rig->model.V * sizeof(float));

    ck_assert_ptr_nonnull(logits);
    ck_assert_int_eq(llama_forward(llama, &prompt.step), ST_OK);
    ck_assert_int_eq(llama_logits(llama, c->n_rows, logits), ST_OK);
    for (uint32_t i = 0; i < c->n_rows; i++) {
        compare_logits(goldens, c, &c->rows[i], logits + (size_t)i * rig->model.V);
    }
    for (uint32_t part = 0; part < prompt.n_parts; part++) {
        mem_free(prompt.blocks[part]);
    }
    mem_free(logits);
    llama_destroy(&llama);
}

static void
check_greedy(struct goldens *goldens, const struct golden_case *c)
{
    struct rig *rig = goldens->rig;
    struct rig_config config = golden_rig();
    struct rig_doc docs[DOCS_MAX];
    uint32_t offset = 0, n_tokens = c->greedy.count;

    if (goldens->only != NULL && n_tokens > GREEDY_SHORT) {
        n_tokens = GREEDY_SHORT;
    }
    config.step_tokens = 48; /* so that prompts are cut */
    rig_restart(rig, &config);
    for (uint32_t d = 0; d < c->docs.count; d++) {
        docs[d] = (struct rig_doc){c->prompt.ids + offset,
                                   c->docs.ids[d],
                                   rig_blocks(rig, c->docs.ids[d]),
                                   d + 1,
                                   false,
                                   0,
                                   {0}};
        offset += c->docs.ids[d];
    }
    struct rig_request request = {.id = 1,
                                  .docs = docs,
                                  .n_docs = c->docs.count,
                                  .query = c->prompt.ids + offset,
                                  .n_query = c->prompt.count - offset,
                                  .max_tokens = n_tokens,
                                  .ignores_end = true};

    rig_assign(rig, &request);
    rig_run(rig);
    ck_assert_str_eq(rig->heard[1].error, "");
    ck_assert_uint_eq(rig->heard[1].n_ids, n_tokens);
    for (uint32_t i = 0; i < n_tokens; i++) {
        ck_assert_msg(rig->heard[1].ids[i] == c->greedy.ids[i], "%s: token %u is %u, golden %u",
                      c->name, i, rig->heard[1].ids[i], c->greedy.ids[i]);
    }
    for (uint32_t d = 0; d < c->docs.count; d++) {
        mem_free(docs[d].blocks);
    }
}

static bool
is_wanted(const struct goldens *goldens, const char *name)
{
    const char *const *only = goldens->only;

    while (only != NULL && *only != NULL && strcmp(*only, name) != 0) {
        only++;
    }
    return only == NULL || *only != NULL;
}

void
golden_check(const char *name, const char *path)
{
    golden_check_some(name, path, NULL);
}

void
golden_check_some(const char *name, const char *path, const char *const *cases)
{
    struct goldens goldens = {.golden = golden_load(name), .only = cases};
    uint32_t n_cases = 0;
    struct tiny_model_config tiny;
    struct rig_config config = golden_rig();

    if (path == NULL) {
        tiny = golden_tiny_config(goldens.golden);
        config.tiny = &tiny;
    }
    config.model_path = path;
    goldens.rig = rig_new(&config);
    if (strstr(goldens.golden->model, "sha256=") != NULL) {
        check_sha256(&goldens);
    }
    for (uint32_t i = 0; i < goldens.golden->n_cases; i++) {
        if (!is_wanted(&goldens, goldens.golden->cases[i].name)) {
            continue;
        }
        n_cases++;
        check_logits(&goldens, &goldens.golden->cases[i]);
        if (goldens.golden->cases[i].greedy.count > 0) {
            check_greedy(&goldens, &goldens.golden->cases[i]);
        }
    }
    printf("%s: %u cases, %u logits, worst difference %.2f of the noise\n", name, n_cases,
           goldens.n_values, goldens.worst);
    ck_assert_uint_gt(n_cases, 0);
    rig_destroy(&goldens.rig);
    golden_destroy(&goldens.golden);
}
