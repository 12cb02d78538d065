/* SPDX-License-Identifier: Apache-2.0 */
/* Reuse, verified: a sample of the documents that requests found is computed again in idle time,
 * and compared with what was found.
 *
 * A checksum says that memory is as it was written; this says that what was written is what the
 * document's tokens give: it finds a build that went wrong, KV under a wrong name, a row that was
 * never written.  The second copy is a document in the background like any other, under a name of
 * its own, which nobody asks for (twin_of).  When it is sealed, a worker compares the two, bit for
 * bit where a token's result never depends on its company, else to within rounding.  One at a time;
 * samples that find no idle worker within VERIFY_SAMPLES_MAX later ones are dropped. */
#include "daemon/sched_state.h"

#include <string.h>

#include "common/mem.h"

#define VERIFY_BIT (UINT64_C(1) << 62) /* of session ids that nobody outside has */

/* --- sampling --------------------------------------------------------------------------------- */

static void
drop_sample(struct verify_sample *sample)
{
    tokens_release(&sample->tokens);
    *sample = (struct verify_sample){0};
}

/* The oldest one goes. */
static void
add_sample(struct sched *sched, const struct prompt_document *document, uint64_t generation)
{
    struct verify *verify = &sched->verify;
    struct verify_sample *sample =
        &verify->samples[(verify->first + verify->count) % VERIFY_SAMPLES_MAX];

    if (verify->count == VERIFY_SAMPLES_MAX) {
        drop_sample(sample);
        verify->first = (verify->first + 1) % VERIFY_SAMPLES_MAX;
        verify->count--;
        sched->counters.verify_skipped++;
    }
    *sample = (struct verify_sample){
        .key = document->key, .generation = generation, .tokens = tokens_acquire(document->tokens)};
    verify->count++;
}

/* The same ones for the same seed and order of requests. */
static bool
is_drawn(struct sched *sched)
{
    uint64_t draw = htab_mix(sched->config.seed ^ htab_mix(++sched->verify.drawn));

    return (double)(draw >> 11) * 0x1p-53 < sched->config.verify_share;
}

void
sched_sample_reuse(struct sched *sched, const struct session *session)
{
    if (sched->config.verify_share == 0 || session->prompt.reuse != REUSE_LAZY) {
        return;
    }
    for (uint32_t i = 0; i < session->segment_count; i++) {
        const struct kvpool_doc *doc = session->wants[i].doc;

        if (doc != NULL && session->documents[i].reason == KVPOOL_HIT && is_drawn(sched)) {
            add_sample(sched, &session->prompt.documents[i], kvpool_doc_generation(doc));
        }
    }
}

/* --- the second copy -------------------------------------------------------------------------- */

static struct dockey
twin_of(const struct dockey *key)
{
    struct dockey twin = *key;

    for (size_t i = 0; i < DOCKEY_BYTES; i++) {
        twin.bytes[i] ^= 0x5a;
    }
    return twin;
}

static bool
is_unchanged(const struct kvpool_doc *doc, uint64_t generation)
{
    return doc != NULL && kvpool_doc_is_ready(doc) && kvpool_doc_builder(doc) == 0
           && kvpool_doc_generation(doc) == generation;
}

static void
begin_build(struct sched *sched, uint64_t now_us, struct verify_sample *sample)
{
    struct sched_submit submit = {
        .id = VERIFY_BIT | ++sched->verify.builds,
        .arrival_us = now_us,
        .deadline_us = UINT64_MAX,
        .prompt = {.documents = mem_zalloc(1, sizeof(submit.prompt.documents[0])),
                   .document_count = 1}};
    struct session *session;

    if (submit.prompt.documents == NULL) {
        return;
    }
    submit.prompt.documents[0] = (struct prompt_document){.key = sample->key,
                                                          .kv_key = twin_of(&sample->key),
                                                          .tokens = tokens_acquire(sample->tokens)};
    if (sched_take_in(sched, &submit, &session) != ST_OK) {
        return;
    }
    sched->verify.session = submit.id;
    sched->verify.key = sample->key;
    sched->verify.generation = sample->generation;
    sched_start_background(sched, session, now_us, false);
}

/* The next sample whose document is still the one that was read. */
static void
begin(struct sched *sched, uint64_t now_us)
{
    struct verify *verify = &sched->verify;

    while (verify->count > 0 && verify->session == 0) {
        struct verify_sample *sample = &verify->samples[verify->first];

        if (is_unchanged(kvpool_find(sched->pool, &sample->key), sample->generation)) {
            begin_build(sched, now_us, sample);
        } else {
            sched->counters.verify_skipped++;
        }
        drop_sample(sample);
        verify->first = (verify->first + 1) % VERIFY_SAMPLES_MAX;
        verify->count--;
    }
}

static void
end(struct sched *sched)
{
    struct dockey twin = twin_of(&sched->verify.key);

    (void)kvpool_forget(sched->pool, &twin);
    sched->verify.session = 0;
    sched->verify.is_comparing = false;
    sched->has_news = true; /* blocks are free */
}

void
sched_verify(struct sched *sched, uint64_t now_us)
{
    struct verify *verify = &sched->verify;

    if (sched->pool == NULL || verify->is_comparing) {
        return;
    }
    if (verify->session == 0) {
        if (verify->count > 0 && sched_background_room(sched) > 0) {
            begin(sched, now_us);
        }
        return;
    }
    if (sched_has_session(sched, verify->session)) {
        return; /* it is being computed */
    }
    struct dockey key = twin_of(&verify->key);
    struct kvpool_doc *doc = kvpool_find(sched->pool, &verify->key);
    struct kvpool_doc *twin = kvpool_find(sched->pool, &key);

    if (twin == NULL || !kvpool_doc_is_ready(twin) || !is_unchanged(doc, verify->generation)) {
        sched->counters.verify_skipped++; /* it gave way, or there is nothing to compare with */
        end(sched);
        return;
    }
    verify->twin_generation = kvpool_doc_generation(twin);
    verify->is_comparing = sched_compare(sched, twin, doc);
}

void
sched_take_compared(struct sched *sched, uint64_t now_us, uint32_t worker,
                    const struct sched_checked *checked)
{
    struct verify *verify = &sched->verify;
    struct dockey key = twin_of(&verify->key);
    struct kvpool_doc *doc = kvpool_find(sched->pool, &verify->key);
    const struct kvpool_doc *twin = kvpool_find(sched->pool, &key);
    bool is_equal = sched->config.is_bitwise ? checked->differing == 0
                                             : checked->relative <= SCHED_VERIFY_ROUNDING;

    if (!is_unchanged(doc, verify->generation) || !is_unchanged(twin, verify->twin_generation)) {
        sched->counters.verify_skipped++;
    } else {
        sched->counters.docs_verified++;
        if (!is_equal) {
            sched->counters.docs_verify_failed++;
            sched_drop_damaged(sched, now_us, doc, worker, 0);
        }
    }
    end(sched);
}

void
sched_lose_comparison(struct sched *sched)
{
    if (sched->verify.is_comparing) {
        sched->counters.verify_skipped++;
        end(sched);
    }
}

void
sched_forget_samples(struct sched *sched)
{
    for (uint32_t i = 0; i < VERIFY_SAMPLES_MAX; i++) {
        drop_sample(&sched->verify.samples[i]);
    }
    sched->verify.count = 0;
    sched->verify.session = 0;
    sched->verify.is_comparing = false;
}
