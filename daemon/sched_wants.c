/* SPDX-License-Identifier: Apache-2.0 */
/* What a request wants of the pool, and what the worker is told of it, by its mode (reuse.h).
 *
 * With `reencode` the attention reads copies.  A copy that is not there is made from the document
 * itself, the source, which is then wanted too; also while somebody else makes the copy, so that
 * its source is still held if that one goes. */
#include "daemon/sched_state.h"

#include <assert.h>
#include <string.h>

static bool
is_copy_of_itself(const struct session *session, uint32_t segment)
{
    return memcmp(session->wants[segment].key.bytes, session->prompt.documents[segment].key.bytes,
                  DOCKEY_BYTES)
           == 0;
}

void
sched_list_sources(const struct sched *sched, struct session *session, bool all)
{
    session->want_count = session->segment_count;
    if (session->prompt.reuse != REUSE_REENCODE) {
        return;
    }
    for (uint32_t i = 0; i < session->segment_count; i++) {
        struct kvpool_want *want = &session->wants[i];
        const struct kvpool_doc *copy = kvpool_find(sched->pool, &want->key);

        session->sources[i] = SESSION_SOURCE_NONE;
        want->is_uncounted = false;
        if (want->n_tokens == 0 || is_copy_of_itself(session, i)
            || (!all && copy != NULL && kvpool_doc_is_ready(copy))) {
            continue;
        }
        want->is_uncounted = true;
        session->sources[i] = session->want_count;
        session->wants[session->want_count++] = (struct kvpool_want){
            .key = session->prompt.documents[i].key,
            .n_tokens = want->n_tokens,
            .ids = want->ids,
        };
        assert(session->want_count <= session->wants_max);
    }
}

/* The document of the prompt that a want is about. */
static uint32_t
document_of(const struct session *session, uint32_t want)
{
    uint32_t segment = 0;

    if (want < session->segment_count) {
        return want;
    }
    while (session->sources[segment] != want) {
        segment++;
    }
    return segment;
}

static uint32_t
offset_of(const struct session *session, uint32_t segment)
{
    uint32_t offset = 0;

    for (uint32_t i = 0; i < segment; i++) {
        offset += session->wants[i].n_tokens;
    }
    return offset;
}

void
sched_describe_segments(struct session *session)
{
    uint32_t offset = 0;

    for (uint32_t i = 0; i < session->segment_count; i++) {
        const struct kvpool_want *want = &session->wants[i];
        struct sched_segment *segment = &session->segments[i];

        /* The keys of a copy are at positions of the prompt already. */
        *segment = (struct sched_segment){
            .n_tokens = want->n_tokens,
            .offset = session->prompt.reuse == REUSE_REENCODE ? 0 : offset,
        };
        offset += want->n_tokens;
        if (want->doc == NULL) {
            continue;
        }
        segment->blocks = kvpool_doc_blocks(want->doc, &segment->block_count);
        if (!kvpool_doc_is_ready(want->doc)) {
            segment->build = kvpool_doc_generation(want->doc);
        }
    }
}

static uint32_t
want_of(const struct session *session, const struct kvpool_doc *doc)
{
    uint32_t want = 0;

    while (session->wants[want].doc != doc) {
        want++;
    }
    return want;
}

void
sched_announce(struct sched *sched, const struct build *build)
{
    uint32_t want = want_of(build->owner, build->doc);
    const struct prompt_document *document =
        &build->owner->prompt.documents[document_of(build->owner, want)];

    /* A copy, or a document behind others, is not what its tokens alone say. */
    if (memcmp(kvpool_doc_key(build->doc)->bytes, document->key.bytes, DOCKEY_BYTES) == 0) {
        kvpool_announce(sched->pool, build->doc, tokens_ids(document->tokens));
    }
}

static void
describe_build(const struct session *session, const struct build *build, struct sched_build *out)
{
    uint32_t want = want_of(session, build->doc);
    uint32_t document = document_of(session, want);

    *out = (struct sched_build){
        .build = build->id,
        .ids = tokens_ids(session->prompt.documents[document].tokens),
        .n_tokens = session->wants[want].n_tokens,
        .start = build->start,
    };
    out->blocks = kvpool_doc_blocks(build->doc, &out->block_count);
    out->load = build->load;
    if (build->is_copy) {
        const struct kvpool_doc *source = session->wants[session->sources[want]].doc;

        out->position = offset_of(session, want);
        out->source_blocks = kvpool_doc_blocks(source, &out->source_count);
        out->source_build = kvpool_doc_is_ready(source) ? 0 : kvpool_doc_generation(source);
    } else if (session->prompt.reuse == REUSE_PREFIX) {
        out->position = offset_of(session, want);
        out->context_segments = want;
    }
}

uint32_t
sched_describe_builds(struct sched *sched, struct session *session)
{
    uint32_t count = 0;

    LIST_FOR_EACH(node, &session->owned_builds)
    {
        describe_build(session, LIST_ENTRY(node, struct build, owner_link),
                       &session->builds[count++]);
        sched->counters.builds_started++;
        if (session->is_alone) {
            break; /* the next one when this is sealed: a death in between has one cause */
        }
    }
    return count;
}
