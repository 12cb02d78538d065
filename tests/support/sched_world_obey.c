/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include <check.h>

#include "common/htab.h"
#include "common/mem.h"
#include "tests/support/sched_world_state.h"

/* --- who may touch which block ---------------------------------------------------------------- */

static void
use_blocks(struct world *world, uint32_t worker, const struct fake_blocks *blocks, bool is_write)
{
    struct fake_worker *w = &world->workers[worker];

    for (uint32_t i = 0; i < blocks->count; i++) {
        uint32_t block = blocks->ids[i];

        ck_assert_uint_lt(block, world->config.block_count);
        for (uint32_t v = 0; v < WORLD_WORKERS_MAX; v++) {
            const struct fake_worker *other = &world->workers[v];

            if (is_write) {
                /* What a silent worker reads does not matter: its results are dropped. */
                ck_assert_msg(other->writes[block] == 0
                                  && (!other->is_heard || !other->uses[block]),
                              "block %u given out while in use", block);
            } else {
                ck_assert_msg(v == worker || other->writes[block] == 0,
                              "block %u read while another worker writes it", block);
            }
        }
        w->uses[block]++;
        w->writes[block] += is_write;
    }
}

static void
use_places(struct world *world, uint32_t worker, const struct fake_blocks *places, bool is_write)
{
    for (uint32_t i = 0; i < places->count; i++) {
        uint32_t place = places->ids[i];

        ck_assert_uint_lt(place, world->config.host_places);
        for (uint32_t v = 0; v < WORLD_WORKERS_MAX; v++) {
            const struct fake_worker *other = &world->workers[v];

            ck_assert_msg(other->place_writes[place] == 0
                              && (!is_write || !other->is_heard || other->place_uses[place] == 0),
                          "place %u given out while in use", place);
        }
        world->workers[worker].place_uses[place]++;
        world->workers[worker].place_writes[place] += is_write;
    }
}

/* --- actions ---------------------------------------------------------------------------------- */

/* A copy reads its source; with full attention a document reads those before it. */
static void
copy_reads(const struct session *session, const struct sched_build *from, struct fake_build *build)
{
    fake_blocks_add(&build->read, from->source_blocks, from->source_count);
    if (from->source_build != 0) {
        build->waits_for[build->wait_count++] = from->source_build;
    }
    for (uint32_t i = 0; i < from->context_segments; i++) {
        const struct sched_segment *segment = &session->segments[i];

        fake_blocks_add(&build->read, segment->blocks, segment->block_count);
        if (segment->build != 0) {
            build->waits_for[build->wait_count++] = segment->build;
        }
    }
}

static uint64_t
name_of_build(const struct session *session, uint64_t build)
{
    if (session->id >= WORLD_REQUESTS_MAX) { /* the scheduler's own: a second copy */
        return dockey_hash(&session->prompt.documents[0].key);
    }
    for (uint32_t i = 0; i < session->want_count; i++) {
        const struct kvpool_want *want = &session->wants[i];

        if (want->doc != NULL && kvpool_doc_generation(want->doc) == build) {
            return dockey_hash(kvpool_doc_key(want->doc));
        }
    }
    ck_abort_msg("a build that its session does not want");
    return 0;
}

static struct brought *
find_brought(struct world *world, uint64_t name)
{
    uint32_t i = 0;

    while (i < world->brought_count && world->brought[i].name != name) {
        i++;
    }
    ck_assert_uint_lt(i, WORLD_NAMES_MAX);
    if (i == world->brought_count) {
        world->brought[world->brought_count++].name = name;
    }
    return &world->brought[i];
}

static bool
is_of(const struct brought *brought, uint64_t document)
{
    uint32_t i = 0;

    while (i < brought->of_count && brought->of[i] != document) {
        i++;
    }
    return i < brought->of_count;
}

/* It is written for the session, out of documents [first, first + count) of its prompt. */
static void
bring(struct world *world, uint64_t name, const struct session *session, uint32_t first,
      uint32_t count, uint32_t blocks)
{
    struct brought *brought = find_brought(world, name);

    brought->blocks = blocks > brought->blocks ? blocks : brought->blocks;

    if (session->arrival_us > brought->arrival_us) {
        brought->arrival_us = session->arrival_us;
    }
    for (uint32_t i = first; i < first + count; i++) {
        uint64_t document = dockey_hash(&session->prompt.documents[i].key);

        if (!is_of(brought, document) && tokens_count(session->prompt.documents[i].tokens) > 0) {
            ck_assert_uint_lt(brought->of_count, WORLD_OF_MAX);
            brought->of[brought->of_count++] = document;
        }
    }
}

/* With full attention it has something of all before it. */
static void
bring_build(struct world *world, uint64_t name, const struct session *session,
            const struct sched_build *from)
{
    const struct prompt *prompt = &session->prompt;
    uint32_t document = from->context_segments;

    if (prompt->reuse == REUSE_PREFIX) {
        bring(world, name, session, 0, document + 1, from->block_count);
        return;
    }
    while (tokens_ids(prompt->documents[document].tokens) != from->ids) {
        document++;
        ck_assert_uint_lt(document, prompt->document_count);
    }
    bring(world, name, session, document, 1, from->block_count);
}

static void
copy_load(struct world *world, uint32_t worker, const struct kvpool_load *load,
          struct fake_build *build)
{
    if (load != NULL) {
        fake_blocks_add(&build->places, load->places, load->count);
        memcpy(build->sums, load->sums, load->count * sizeof(build->sums[0]));
        ck_assert_uint_le(load->count, build->blocks.count);
        use_places(world, worker, &build->places, false);
    }
}

static void
copy_builds(struct world *world, const struct sched_action *action, struct letter *letter)
{
    const struct session *session = action->session;

    for (uint32_t i = 0; i < action->build_count; i++) {
        const struct sched_build *from = &session->builds[i];
        struct fake_build *build = mem_zalloc(1, sizeof(*build));
        uint32_t first = from->start / world->config.block_tokens;

        ck_assert_uint_eq(from->start % world->config.block_tokens, 0);
        ck_assert_uint_lt(from->start, from->n_tokens);
        build->id = from->build;
        build->done = build->start = from->start;
        build->first = first;
        build->name = name_of_build(session, from->build);
        bring_build(world, build->name, session, from);
        build->n_tokens = from->n_tokens;
        fake_blocks_add(&build->blocks, from->blocks + first, from->block_count - first);
        copy_reads(session, from, build);
        copy_load(world, action->worker, from->load, build);
        use_blocks(world, action->worker, &build->blocks, true);
        use_blocks(world, action->worker, &build->read, false);
        world->builds_started[from->ids[0]] += from->source_count == 0;
        letter->builds[letter->build_count++] = build;
    }
}

static struct fake_run *
copy_run(struct world *world, const struct sched_action *action)
{
    const struct session *session = action->session;
    struct world_request *request = &world->requests[session->id];
    struct fake_run *run = mem_zalloc(1, sizeof(*run));
    uint32_t offset = 0;

    run->request = session->id;
    run->query = tokens_count(session->prompt.query);
    run->max_tokens = session->prompt.sampling.max_tokens;
    run->sent = session->sent_count;
    ck_assert_uint_eq(run->sent, request->tokens);
    ck_assert_uint_eq(run->sent, session->sent_text_bytes);
    for (uint32_t i = 0; i < run->sent; i++) {
        ck_assert_uint_eq(session->sent_ids[i], fake_token(run->request, i));
    }
    for (uint32_t i = 0; i < session->segment_count; i++) {
        const struct sched_segment *segment = &session->segments[i];

        ck_assert_uint_eq(segment->offset, session->prompt.reuse == REUSE_REENCODE ? 0 : offset);
        offset += segment->n_tokens;
        for (uint32_t b = 0; b < segment->block_count; b++) {
            run->expected[run->read.count + b] =
                fake_content(dockey_hash(&session->wants[i].key), b);
        }
        fake_blocks_add(&run->read, segment->blocks, segment->block_count);
        if (segment->build != 0) {
            run->waits_for[run->wait_count++] = segment->build;
        }
    }
    run->doc_tokens = offset;
    fake_blocks_add(&run->own, action->blocks, action->block_count);
    if (session->prompt.document_count > 0) { /* an answer has something of its documents */
        run->name = htab_mix(~session->id);
        bring(world, run->name, session, 0, (uint32_t)session->prompt.document_count,
              action->block_count);
    }
    run->turn_tokens = session->turn_tokens;
    ck_assert_uint_eq(run->turn_tokens, session->turn_block_count * world->config.block_tokens);
    ck_assert_uint_lt(run->turn_tokens, run->query + run->sent);
    fake_blocks_add(&run->read, session->turn_blocks, session->turn_block_count);
    ck_assert_uint_ge(run->own.count * world->config.block_tokens + run->turn_tokens,
                      run->query + run->sent);
    use_blocks(world, action->worker, &run->own, true);
    use_blocks(world, action->worker, &run->read, false);
    request->assigns++;
    request->last_worker = action->worker;
    return run;
}

static void
check_not_oldest(struct world *world, const struct session *stopped)
{
    bool has_older = false;

    if (stopped->state != SESSION_PREEMPTING || world->has_damage) {
        return;
    }
    for (const struct session *s = sched_next_session(world->sched, NULL); s != NULL;
         s = sched_next_session(world->sched, s)) {
        has_older |= s->state == SESSION_RUNNING && s->order < stopped->order;
    }
    ck_assert_msg(has_older, "the oldest running request %llu was preempted",
                  (unsigned long long)stopped->id);
}

/* Not if its end crosses this message: a worker drops a Grant for what it has finished. */
static bool
still_runs(const struct fake_worker *w, uint64_t request)
{
    for (uint32_t i = 0; i < w->inbox_count; i++) {
        if (w->inbox[i]->run != NULL && w->inbox[i]->request == request) {
            return true;
        }
    }
    return fake_worker_find_run(w, request) < w->run_count;
}

static void
send_letter(struct world *world, const struct sched_action *action)
{
    struct fake_worker *w = &world->workers[action->worker];
    struct letter *letter = mem_zalloc(1, sizeof(*letter));

    ck_assert(w->is_heard && w->incarnation == action->incarnation);
    ck_assert_uint_lt(w->inbox_count, WORKER_ITEMS_MAX);
    letter->kind = action->kind;
    letter->request = action->request;
    letter->build = action->build;
    if (action->kind == SCHED_SEND_SPILL) {
        letter->spill = mem_zalloc(1, sizeof(*letter->spill));
        letter->spill->id = action->spill;
        fake_blocks_add(&letter->spill->blocks, action->blocks, action->block_count);
        fake_blocks_add(&letter->spill->places, action->places, action->block_count);
        use_places(world, action->worker, &letter->spill->places, true);
    } else if (action->kind == SCHED_SEND_CHECK) {
        fake_blocks_add(&letter->blocks, action->blocks, action->block_count);
        if (action->twins != NULL) {
            fake_blocks_add(&letter->twins, action->twins, action->block_count);
        }
    } else if (action->kind == SCHED_SEND_ERASE && action->places != NULL) {
        fake_blocks_add(&letter->places, action->places, action->block_count);
        use_places(world, action->worker, &letter->places, true);
    } else if (action->kind == SCHED_SEND_ERASE) {
        fake_blocks_add(&letter->blocks, action->blocks, action->block_count);
        use_blocks(world, action->worker, &letter->blocks, true);
    } else if (action->kind == SCHED_SEND_ASSIGN) {
        copy_builds(world, action, letter);
        if (action->request < WORLD_REQUESTS_MAX) {
            world->requests[action->request].last_worker = action->worker;
        }
        letter->run = action->is_builds_only ? NULL : copy_run(world, action);
    } else if (action->kind == SCHED_SEND_GRANT) {
        if (still_runs(w, action->request)) {
            fake_blocks_add(&letter->blocks, action->blocks, action->block_count);
            use_blocks(world, action->worker, &letter->blocks, true);
        }
    } else if (action->kind == SCHED_SEND_STOP) {
        world->requests[action->request].stops_seen++;
        check_not_oldest(world, action->session);
    }
    w->inbox[w->inbox_count++] = letter;
}

static void
receive_tokens(struct world *world, uint64_t id, const struct sched_result *result)
{
    struct world_request *request = &world->requests[id];

    ck_assert(!request->is_ended);
    if (request->tokens == 0 && result->id_count > 0) {
        request->first_us = world->now_us;
    }
    for (size_t i = 0; i < result->id_count; i++) {
        ck_assert_uint_eq(result->ids[i], fake_token(id, request->tokens));
        request->tokens++;
    }
}

static void
check_gone(const struct world *world, const struct brought *brought)
{
    for (uint32_t i = 0; i < brought->blocks; i++) {
        uint64_t content = fake_content(brought->name, i);

        for (uint32_t block = 0; block < world->config.block_count; block++) {
            ck_assert_msg(world->contents[block] != content,
                          "block %u still holds block %u of what was erased", block, i);
        }
        for (uint32_t place = 0; place < world->config.host_places; place++) {
            ck_assert_msg(world->host[place] != content,
                          "place %u still holds block %u of what was erased", place, i);
        }
    }
}

/* Nothing holds anything of a document that was erased, in any form, unless a request that came
 * after the Forget has brought it back. */
void
world_check_erased(struct world *world, const struct sched_forgotten *forgotten)
{
    uint64_t document = dockey_hash(&forgotten->key);

    for (uint32_t i = 0; i < world->brought_count; i++) {
        const struct brought *brought = &world->brought[i];
        bool is_back = brought->arrival_us >= world->now_us - forgotten->elapsed_us;

        if (is_of(brought, document) && !is_back) {
            check_gone(world, brought);
        }
        world->brought_back += is_back && brought->name == document;
    }
}

void
world_obey(struct world *world)
{
    size_t count;
    const struct sched_action *action = sched_take_actions(world->sched, &count);

    world->has_damage = false;

    for (const struct sched_action *end = action + count; action < end; action++) {
        bool is_ours = action->request < WORLD_REQUESTS_MAX; /* not one that the scheduler makes */
        struct world_request *request = &world->requests[is_ours ? action->request : 0];

        switch (action->kind) {
        case SCHED_REPLY_CHUNK: receive_tokens(world, action->request, action->result); break;
        case SCHED_REPLY_END:
            if (!is_ours) {
                break;
            }
            if (action->result != NULL) {
                receive_tokens(world, action->request, action->result);
            }
            ck_assert_msg(!request->is_ended, "request %llu ended twice",
                          (unsigned long long)action->request);
            request->is_ended = true;
            world->open_count--;
            request->end = action->end;
            request->usage = action->usage;
            (void)snprintf(request->message, sizeof(request->message), "%s", action->message);
            break;
        case SCHED_TELL_DAMAGED:
            world->damaged++;
            world->has_damage = true;
            break;
        case SCHED_REPLY_FORGOTTEN:
            world_check_erased(world, &action->forgotten);
            world->forgotten = action->forgotten;
            world->erased++;
            break;
        default: send_letter(world, action); break;
        }
    }
}
