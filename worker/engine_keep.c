/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that outlive their kvasird.
 *
 * Nothing stops here when kvasird is gone: what runs goes on as far as its blocks reach, and what
 * ends leaves its answer for a while (engine->done).  When the next kvasird comes (Reset), requests
 * that have a name and depend on nothing that only the earlier one knew are kept under a number of
 * ours and reported with all that it needs to answer for their blocks.  From then on nothing is
 * said of them, until an Assign takes one up or a Stop ends it.
 *
 * Not kept: what waits for a build, or began with blocks of an earlier turn (the next kvasird does
 * not know those); what gives log probabilities (they are not stored). */
#include "worker/engine.h"

#include <inttypes.h>
#include <string.h>

#include "common/log.h"
#include "common/mem.h"
#include "worker/engine_state.h"

/* What is said of one, with all that it points to. */
struct kept_message {
    Kvasir__V1__Kept kept;
    Kvasir__V1__KeptSegment **list; /* [n_segs] */
    Kvasir__V1__KeptSegment segments[];
};

static struct kept_message *
describe(struct sequence *seq)
{
    size_t segments = seq->n_segs * sizeof(Kvasir__V1__KeptSegment);
    struct kept_message *m =
        mem_zalloc(1, sizeof(*m) + segments + seq->n_segs * sizeof(Kvasir__V1__KeptSegment *));

    if (m == NULL) {
        return NULL;
    }
    m->list = (void *)((char *)m->segments + segments);
    for (uint32_t i = 0; i < seq->n_segs; i++) {
        struct sequence_segment *seg = &seq->segs[i];

        kvasir__v1__kept_segment__init(&m->segments[i]);
        m->segments[i].has_key = m->segments[i].has_generation = m->segments[i].has_n_tokens = true;
        m->segments[i].key = (ProtobufCBinaryData){sizeof(seg->key), seg->key};
        m->segments[i].generation = seg->generation;
        m->segments[i].n_tokens = seg->n_tokens;
        m->segments[i].n_block_ids = seg->n_blocks;
        m->segments[i].block_ids = seq->doc_blocks + seg->block_first;
        m->list[i] = &m->segments[i];
    }
    kvasir__v1__kept__init(&m->kept);
    m->kept.has_kept = m->kept.has_name = m->kept.has_query_tokens = true;
    m->kept.has_answer_tokens = m->kept.has_is_done = true;
    m->kept.kept = seq->id;
    m->kept.name = (ProtobufCBinaryData){seq->n_name, seq->name};
    m->kept.query_tokens = seq->n_prompt;
    m->kept.answer_tokens = seq->n_ids - seq->n_prompt;
    m->kept.is_done = seq->is_done;
    m->kept.n_own_block_ids = seq->is_done ? 0 : seq->n_blocks;
    m->kept.own_block_ids = seq->blocks;
    m->kept.n_segments = seq->n_segs;
    m->kept.segments = m->list;
    return m;
}

static bool
has_known_segments(const struct sequence *seq)
{
    for (uint32_t i = 0; i < seq->n_segs; i++) {
        bool is_empty = seq->segs[i].n_tokens == 0;

        if (seq->segs[i].build != 0 || (!is_empty && seq->segs[i].generation == 0)) {
            return false;
        }
    }
    return true;
}

static bool
may_be_kept(const struct sequence *seq)
{
    return !seq->is_build && seq->n_name > 0 && seq->n_reused == 0 && !seq->has_logprobs
           && !seq->is_behind && has_known_segments(seq);
}

/* --- answers that are whole ----------------------------------------------------------- */

/* The oldest; of all, or of those that no kvasird has been told of. */
static void
forget_oldest(struct engine *engine, bool of_all)
{
    LIST_FOR_EACH(n, &engine->done)
    {
        struct sequence *seq = LIST_ENTRY(n, struct sequence, link);

        if (seq->is_kept && !of_all) {
            continue;
        }
        if (seq->is_kept) {
            htab_remove(&engine->kept, &seq->node);
        }
        list_unlink(&seq->link);
        engine->n_done--;
        sequence_destroy(&seq);
        return;
    }
}

bool
engine_keep_done(struct engine *engine, struct sequence *seq)
{
    bool has_ended = seq->result.finish == KVASIR__V1__FINISH_REASON__FINISH_STOP
                     || seq->result.finish == KVASIR__V1__FINISH_REASON__FINISH_LENGTH;

    if (!has_ended || !may_be_kept(seq)) {
        return false;
    }
    seq->is_done = true;
    if (engine->n_done >= ENGINE_DONE_MAX) {
        forget_oldest(engine, false);
    }
    list_unlink(&seq->link);
    list_push_back(&engine->done, &seq->link);
    engine->n_done++;
    return true;
}

/* A kept one has come to its end: it needs no room any more, and waits for its Assign. */
static void
finish_kept(struct engine *engine, struct sequence *seq)
{
    if (engine_rows_ahead(engine, seq) > 0) {
        engine->is_next_ready = false;
    }
    engine_count_room(engine, seq, false);
    engine->n_kept_running--;
    (void)engine_keep_done(engine, seq);
}

void
engine_take_untold(struct engine *engine, struct sequence *seq)
{
    sequence_take_behind(seq, engine->config.tokenizer);
    if (seq->is_kept && seq->is_done) {
        finish_kept(engine, seq);
    }
}

/* --- a next kvasird ------------------------------------------------------------------- */

/* Under a number of ours: the next kvasird counts from the beginning. */
static enum status
keep(struct engine *engine, struct sequence *seq)
{
    if (!seq->is_kept) {
        if (!seq->is_done) {
            htab_remove(&engine->requests, &seq->node);
        }
        engine->n_kept_running += !seq->is_done;
        seq->id = ++engine->last_kept;
        TRY(htab_insert(&engine->kept, htab_mix(seq->id), &seq->node));
        seq->is_kept = true;
    }
    mem_free(seq->kept_message); /* of an earlier report, which is out */
    seq->kept_message = describe(seq);
    if (seq->kept_message == NULL) {
        return ERR(ST_NO_MEMORY, "a report of what is kept");
    }
    engine->kept_list[engine->report.message.n_kept++] = &seq->kept_message->kept;
    return ST_OK;
}

enum status
engine_keep_all(struct engine *engine)
{
    while (engine->n_done > ENGINE_DONE_MAX) {
        forget_oldest(engine, true); /* those of the last restart that nobody wanted */
    }
    size_t most = engine->requests.count + engine->kept.count + engine->n_done;
    Kvasir__V1__Kept **list = mem_realloc(engine->kept_list, most + 1, sizeof(Kvasir__V1__Kept *));

    if (list == NULL) {
        return ERR(ST_NO_MEMORY, "a report of what is kept");
    }
    engine->kept_list = list;
    LIST_FOR_EACH_SAFE(n, &engine->order)
    {
        struct sequence *seq = LIST_ENTRY(n, struct sequence, link);

        if (may_be_kept(seq)) {
            TRY(keep(engine, seq));
        } else {
            engine_retire(engine, seq);
        }
    }
    LIST_FOR_EACH(n, &engine->done)
    {
        TRY(keep(engine, LIST_ENTRY(n, struct sequence, link)));
    }
    engine->report.message.kept = engine->kept_list;
    return ST_OK;
}

void
engine_drop_kept(struct engine *engine, uint64_t kept)
{
    struct sequence *seq = engine_find(&engine->kept, kept);

    report_kept_released(&engine->report, kept);
    if (seq == NULL) {
        return;
    }
    seq->n_name = 0; /* nobody wants it any more */
    if (seq->is_done) {
        htab_remove(&engine->kept, &seq->node);
        list_unlink(&seq->link);
        engine->n_done--;
        list_push_back(&engine->gone, &seq->link);
    } else {
        engine->n_kept_running--;
        engine_retire(engine, seq);
    }
    seq->is_kept = false;
}

/* --- taken up ------------------------------------------------------------------------- */

static bool
is_same(const struct sequence *seq, const Kvasir__V1__Assign *assign)
{
    uint32_t n_drawn = seq->n_ids - seq->n_prompt;

    return assign->name.len == seq->n_name && memcmp(assign->name.data, seq->name, seq->n_name) == 0
           && assign->n_query_ids == seq->n_prompt && assign->n_segments == seq->n_segs
           && memcmp(assign->query_ids, seq->ids, seq->n_prompt * sizeof(seq->ids[0])) == 0
           && assign->n_sent_ids <= n_drawn
           && (assign->n_sent_ids == 0
               || memcmp(assign->sent_ids, seq->ids + seq->n_prompt,
                         assign->n_sent_ids * sizeof(seq->ids[0]))
                      == 0);
}

/* Out of what is kept, under the number that kvasird gives it. */
static enum status
rename_kept(struct engine *engine, struct sequence *seq, const Kvasir__V1__Assign *assign)
{
    htab_remove(&engine->kept, &seq->node);
    seq->is_kept = false;
    seq->id = assign->request;
    seq->order = assign->arrival_order;
    list_unlink(&seq->link);
    if (seq->is_done) {
        engine->n_done--;
        list_push_back(&engine->gone, &seq->link); /* told with the next report */
        return ST_OK;
    }
    engine->n_kept_running--;
    engine_link_in_order(engine, seq);
    engine->is_next_ready = false;
    return htab_insert(&engine->requests, htab_mix(seq->id), &seq->node);
}

enum status
engine_take_up(struct engine *engine, const Kvasir__V1__Assign *assign, bool *is_taken_out)
{
    struct sequence *seq = engine_find(&engine->kept, assign->kept);
    enum status st =
        seq == NULL ? ERR(ST_INVALID, "nothing is kept under that number")
        : !is_same(seq, assign)
            ? ERR(ST_INVALID, "another request was kept under that number")
            : sequence_fall_behind(seq, engine->config.tokenizer, (uint32_t)assign->n_sent_ids,
                                   assign->sent_text_bytes);

    *is_taken_out = st == ST_OK;
    if (st == ST_INVALID) {
        log_warn("kept_is_another", "request=%" PRIu64 " kept=%" PRIu64 " detail=\"%s\"",
                 assign->request, assign->kept, status_detail());
        if (seq != NULL) { /* its blocks are the new one's */
            engine_drop_kept(engine, assign->kept);
        }
        if (assign->n_own_block_ids == 0) { /* a whole answer was expected */
            engine_fail(engine, assign->request,
                        "the answer under this retry_key is of another "
                        "request");
            *is_taken_out = true;
        }
        return ST_OK;
    }
    TRY(st);
    TRY(rename_kept(engine, seq, assign));
    log_debug("request_taken_up", "request=%" PRIu64 " tokens=%u told=%zu done=%d", assign->request,
              seq->n_ids - seq->n_prompt, assign->n_sent_ids, seq->is_done);
    if (seq->is_done) { /* the rest is told by the next step, with what that draws */
        sequence_catch_up(seq);
        report_result(&engine->report, &seq->result);
        report_released(&engine->report, seq->id);
    }
    return ST_OK;
}

void
engine_catch_up(struct engine *engine)
{
    LIST_FOR_EACH_SAFE(n, &engine->order)
    {
        struct sequence *seq = LIST_ENTRY(n, struct sequence, link);

        if (!seq->is_behind) {
            continue;
        }
        sequence_catch_up(seq);
        report_result(&engine->report, &seq->result);
        if (seq->is_done) {
            report_released(&engine->report, seq->id);
            engine_retire(engine, seq);
        }
    }
}
