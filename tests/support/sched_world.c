/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/sched_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "common/htab.h"
#include "common/mem.h"
#include "kvpool/tier.h"
#include "tests/support/sched_world_state.h"

uint32_t
world_doc_tokens(uint32_t doc)
{
    return doc / 1000;
}

struct dockey
world_doc_key(uint32_t doc)
{
    struct dockey key;

    for (size_t i = 0; i < DOCKEY_BYTES / sizeof(uint64_t); i++) {
        uint64_t word = htab_mix(doc * 4u + i);

        memcpy(key.bytes + i * sizeof(word), &word, sizeof(word));
    }
    return key;
}

/* --- the world -------------------------------------------------------------------------------- */

struct world *
world_new(struct world_config config)
{
    struct world *world = mem_zalloc(1, sizeof(*world));
    struct sched_config sched_config = {
        .block_tokens = config.block_tokens,
        .reserve_tokens = config.reserve_tokens,
        .waiting_max = config.waiting_max == 0 ? WORLD_REQUESTS_MAX : config.waiting_max,
        .context_max = config.context_max,
        .policy = config.policy == NULL ? &evict_lru : config.policy,
        .quadratic_tokens = 1000,
        .pin_share_max = 0.5,
        .verify_share = config.verify_share,
        .is_bitwise = config.rounding == 0,
        .scrub_interval_us = config.scrub_us,
        .check_pool = !config.is_quiet,
        .is_constant_time = config.is_constant_time,
    };

    ck_assert_uint_le(config.workers, WORLD_WORKERS_MAX);
    world->config = config;
    world->now_us = 1;
    world->contents = mem_zalloc(config.block_count, sizeof(uint64_t));
    world->host = mem_zalloc(config.host_places, sizeof(uint64_t));
    for (uint32_t i = 0; i < WORLD_WORKERS_MAX; i++) {
        world->workers[i].uses = mem_zalloc(config.block_count, sizeof(uint16_t));
        world->workers[i].writes = mem_zalloc(config.block_count, sizeof(uint16_t));
        world->workers[i].place_uses = mem_zalloc(config.host_places, sizeof(uint16_t));
        world->workers[i].place_writes = mem_zalloc(config.host_places, sizeof(uint16_t));
        world->workers[i].contents = world->contents;
        world->workers[i].host = world->host;
        world->workers[i].rounding = config.rounding;
    }
    ck_assert_int_eq(sched_new(&sched_config, &world->sched), ST_OK);
    sched_use_host_tier(world->sched, config.host_places, NULL);
    ck_assert_int_eq(sched_set_pool(world->sched, config.block_count), ST_OK);
    for (uint32_t i = 0; i < config.workers; i++) {
        world_start(world, i);
    }
    return world;
}

void
world_destroy(struct world *world)
{
    if (world_open(world) == 0) {
        world_check_clean(world);
    }
    sched_destroy(&world->sched);
    for (uint32_t i = 0; i < WORLD_WORKERS_MAX; i++) {
        fake_worker_forget(&world->workers[i]);
        mem_free(world->workers[i].uses);
        mem_free(world->workers[i].writes);
        mem_free(world->workers[i].place_uses);
        mem_free(world->workers[i].place_writes);
    }
    mem_free(world->contents);
    mem_free(world->host);
    mem_free(world);
}

struct sched *
world_sched(struct world *world)
{
    return world->sched;
}

uint64_t
world_now(const struct world *world)
{
    return world->now_us;
}

void
world_pass(struct world *world, uint64_t us)
{
    world->now_us += us;
    sched_tick(world->sched, world->now_us);
    world_obey(world);
}

static struct tokens *
make_tokens(uint32_t id, uint32_t count)
{
    uint32_t *ids = mem_zalloc(count, sizeof(*ids));
    struct tokens *tokens;

    for (uint32_t i = 0; i < count; i++) {
        ids[i] = id;
    }
    ck_assert_int_eq(tokens_new(ids, count, &tokens), ST_OK);
    mem_free(ids);
    return tokens;
}

static struct tokens *
make_query(const struct world_ask *ask)
{
    struct tokens *tokens;

    if (ask->query_ids == NULL) {
        return make_tokens(0, ask->query);
    }
    ck_assert_int_eq(tokens_new(ask->query_ids, ask->query, &tokens), ST_OK);
    return tokens;
}

uint64_t
world_submit(struct world *world, struct world_ask ask)
{
    uint64_t id = ++world->next_id;
    struct sched_submit submit = {
        .id = id,
        .arrival_us = world->now_us,
        .deadline_us = ask.timeout_us == 0 ? WORLD_NEVER_US : world->now_us + ask.timeout_us,
        .priority = ask.priority,
        .tenant = ask.tenant,
        .weight = ask.weight,
        .prompt =
            {
                .documents = mem_zalloc(ask.doc_count, sizeof(struct prompt_document)),
                .document_count = ask.doc_count,
                .query = ask.is_warm ? NULL : make_query(&ask),
                .sampling = {.max_tokens = ask.max_tokens, .has_max_tokens = true},
            },
    };

    ck_assert_uint_lt(id, WORLD_REQUESTS_MAX);
    for (uint32_t i = 0; i < ask.doc_count; i++) {
        submit.prompt.documents[i] = (struct prompt_document){
            .key = world_doc_key(ask.docs[i]),
            .is_shared = ask.is_shared,
            .tokens = make_tokens(ask.docs[i] & 0xffffu, world_doc_tokens(ask.docs[i])),
        };
    }
    ck_assert_int_eq(reuse_apply(&submit.prompt, ask.is_warm ? REUSE_LAZY : ask.reuse), ST_OK);
    if (ask.keep_turn) {
        struct dockey tenant = {.bytes = {0}};

        ck_assert_int_eq(reuse_name_turn(&submit.prompt, &tenant, world->config.block_tokens),
                         ST_OK);
    }
    world->now_us++;
    world->open_count++;
    sched_submit(world->sched, world->now_us, &submit);
    world_obey(world);
    return id;
}

uint64_t
world_ask_about(struct world *world, uint32_t doc, uint32_t query, uint32_t max_tokens)
{
    return world_submit(
        world,
        (struct world_ask){.docs = &doc, .doc_count = 1, .query = query, .max_tokens = max_tokens});
}

uint64_t
world_warm(struct world *world, uint32_t doc, bool may_evict)
{
    uint64_t id = ++world->next_id;
    struct sched_submit submit = {
        .id = id,
        .arrival_us = world->now_us,
        .deadline_us = WORLD_NEVER_US,
        .prompt = {.documents = mem_zalloc(1, sizeof(struct prompt_document)), .document_count = 1},
    };

    ck_assert_uint_lt(id, WORLD_REQUESTS_MAX);
    submit.prompt.documents[0] = (struct prompt_document){
        .key = world_doc_key(doc),
        .kv_key = world_doc_key(doc),
        .tokens = make_tokens(doc & 0xffffu, world_doc_tokens(doc)),
    };
    world->open_count++;
    sched_submit_background(world->sched, ++world->now_us, &submit, may_evict);
    world_obey(world);
    return id;
}

bool
world_cancel(struct world *world, uint64_t id, bool is_client_gone)
{
    bool was_open = sched_cancel(world->sched, ++world->now_us, id, is_client_gone);

    world_obey(world);
    return was_open;
}

const struct world_request *
world_get(const struct world *world, uint64_t id)
{
    return &world->requests[id];
}

void
world_work(struct world *world, uint32_t worker)
{
    struct fake_worker *w = &world->workers[worker];
    struct report *report =
        w->is_alive ? fake_worker_step(w, world->config.block_tokens, world->config.build_tokens)
                    : NULL;

    if (report == NULL) {
        return;
    }
    if (w->outbox_count == WORKER_ITEMS_MAX) {
        ck_assert(!w->is_heard); /* nobody listens to a silent one */
        mem_free(report);
        return;
    }
    w->outbox[w->outbox_count++] = report;
}
void
world_deliver(struct world *world, uint32_t worker)
{
    struct fake_worker *w = &world->workers[worker];

    for (uint32_t i = 0; i < w->outbox_count; i++) {
        bool is_whole = sched_worker_step(world->sched, ++world->now_us, worker, w->incarnation,
                                          &w->outbox[i]->step);

        world_obey(world);
        if (!is_whole) {
            ck_assert(w->is_missing_one);
            world_silence(world, worker);
        }
        mem_free(w->outbox[i]);
    }
    w->outbox_count = 0;
}

void
world_repeat(struct world *world, uint32_t worker)
{
    struct fake_worker *w = &world->workers[worker];

    if (w->outbox_count > 0 && !w->is_missing_one) {
        ck_assert(sched_worker_step(world->sched, ++world->now_us, worker, w->incarnation,
                                    &w->outbox[0]->step));
        world_obey(world);
    }
}

void
world_lose(struct world *world, uint32_t worker)
{
    struct fake_worker *w = &world->workers[worker];

    if (w->outbox_count > 0 && w->outbox[0]->step.step > 1) { /* of a first one nobody knows */
        mem_free(w->outbox[0]);
        w->outbox_count--;
        memmove(w->outbox, w->outbox + 1, w->outbox_count * sizeof(struct report *));
        w->is_missing_one = true;
    }
}

void
world_reorder(struct world *world, uint32_t worker)
{
    struct fake_worker *w = &world->workers[worker];

    if (w->outbox_count > 1 && w->outbox[0]->step.step > 1) {
        struct report *first = w->outbox[0];

        w->outbox[0] = w->outbox[1];
        w->outbox[1] = first;
        w->is_missing_one = true;
    }
}

bool
world_step(struct world *world, uint32_t worker)
{
    world_work(world, worker);
    if (world->workers[worker].outbox_count == 0) {
        return false;
    }
    world_deliver(world, worker);
    return true;
}

uint32_t
world_run(struct world *world, uint32_t steps_max)
{
    uint32_t steps = 0;
    bool is_busy = true;

    while (is_busy && steps < steps_max) {
        is_busy = false;
        for (uint32_t i = 0; i < WORLD_WORKERS_MAX; i++) {
            is_busy |= world->workers[i].is_heard && world_step(world, i);
        }
        steps += is_busy;
    }
    return steps;
}

void
world_evict(struct world *world, uint32_t blocks)
{
    (void)sched_evict(world->sched, ++world->now_us, blocks);
    world_obey(world);
}

void
world_spoil(struct world *world, uint32_t place)
{
    world->host[place] += 2;
}

void
world_starve(struct world *world, uint32_t worker)
{
    world->workers[worker].is_starved = true;
}

void
world_refuse(struct world *world, uint32_t worker, bool is_refusing)
{
    world->workers[worker].is_refusing = is_refusing;
}

void
world_damage(struct world *world, uint32_t block)
{
    world->contents[block] ^= 2;
}

uint32_t
world_damaged(const struct world *world)
{
    return world->damaged;
}

uint32_t
world_erased(const struct world *world)
{
    return world->erased;
}

uint32_t
world_brought_back(const struct world *world)
{
    return world->brought_back;
}

struct sched_forgotten
world_forgotten(const struct world *world)
{
    return world->forgotten;
}

enum status
world_forget_as(struct world *world, uint64_t id, uint32_t doc, bool abort)
{
    struct dockey key = world_doc_key(doc);
    enum status st = sched_forget(world->sched, ++world->now_us, id, &key, abort);

    world_obey(world);
    return st;
}

enum status
world_forget(struct world *world, uint32_t doc, bool abort)
{
    return world_forget_as(world, 0, doc, abort);
}

void
world_read_until(struct world *world, uint64_t oldest)
{
    sched_read_until(world->sched, ++world->now_us, oldest);
    world_obey(world);
}

enum status
world_steer(struct world *world, enum world_wish wish, uint32_t doc, uint32_t number)
{
    struct dockey key = world_doc_key(doc);
    enum status st = ST_OK;

    world->now_us++;
    switch (wish) {
    case WORLD_PIN: st = sched_pin(world->sched, world->now_us, &key, number); break;
    case WORLD_UNPIN: st = sched_unpin(world->sched, world->now_us, &key); break;
    case WORLD_FORGET:
        st = sched_forget(world->sched, world->now_us, 0, &key, number % 3 == 0);
        break;
    default: st = sched_prioritize(world->sched, &key, number % 101); break;
    }
    world_obey(world);
    if (wish == WORLD_FORGET && st == ST_NOT_FOUND) {
        world_check_erased(world, &(struct sched_forgotten){.key = key});
    }
    return st;
}

/* --- life and death --------------------------------------------------------------------------- */

void
world_start(struct world *world, uint32_t worker)
{
    struct fake_worker *w = &world->workers[worker];

    ck_assert(!w->is_alive);
    w->is_alive = true;
    w->is_heard = true;
    w->steps = 0;
    w->is_missing_one = false;
    w->incarnation = ++world->next_incarnation;
    if (world->config.host_places > 0) {
        sched_worker_use_tier(world->sched, worker);
    }
    sched_worker_ready(world->sched, ++world->now_us, worker, w->incarnation,
                       world->config.seqs_max);
    world_obey(world);
}

void
world_silence(struct world *world, uint32_t worker)
{
    struct fake_worker *w = &world->workers[worker];

    w->is_heard = false;
    sched_worker_lost(world->sched, ++world->now_us, worker, w->incarnation);
    world_obey(world);
}

void
world_farewell(struct world *world, uint32_t worker)
{
    struct fake_worker *w = &world->workers[worker];

    w->is_heard = false;
    sched_worker_left(world->sched, ++world->now_us, worker, w->incarnation);
    world_obey(world);
    world_kill(world, worker);
}

void
world_kill(struct world *world, uint32_t worker)
{
    struct fake_worker *w = &world->workers[worker];

    w->is_alive = false;
    w->is_heard = false;
    memset(w->uses, 0, world->config.block_count * sizeof(w->uses[0]));
    memset(w->writes, 0, world->config.block_count * sizeof(w->writes[0]));
    memset(w->place_uses, 0, world->config.host_places * sizeof(w->place_uses[0]));
    memset(w->place_writes, 0, world->config.host_places * sizeof(w->place_writes[0]));
    fake_worker_forget(w);
    sched_worker_gone(world->sched, ++world->now_us, worker, w->incarnation);
    world_obey(world);
}

bool
world_is_alive(const struct world *world, uint32_t worker)
{
    return world->workers[worker].is_alive;
}

uint32_t
world_builds_started(const struct world *world, uint32_t doc)
{
    return world->builds_started[doc & 0xffffu];
}

uint32_t
world_open(const struct world *world)
{
    return world->open_count;
}

struct kvpool_stats
world_pool(struct world *world)
{
    struct kvpool_stats stats;

    kvpool_stats(sched_pool(world->sched), &stats);
    return stats;
}

void
world_check_clean(struct world *world)
{
    uint32_t cursor = KVPOOL_WALK;
    struct kvpool_doc_info info;
    struct kvpool_stats stats = world_pool(world);

    kvpool_check(sched_pool(world->sched));
    ck_assert_uint_eq(stats.blocks_own, 0);
    ck_assert_uint_eq(stats.blocks_quarantined, 0);
    while (kvpool_next_doc(sched_pool(world->sched), &cursor, &info)) {
        ck_assert_uint_eq(info.references, 0);
        ck_assert(!info.is_building);
    }
    if (kvpool_tier(sched_pool(world->sched)) != NULL) {
        struct tier *tier = kvpool_tier(sched_pool(world->sched));
        struct tier_stats tier_stats;

        tier->ops->check(tier);
        tier->ops->stat(tier, &tier_stats);
        ck_assert_uint_eq(tier_stats.places_quarantined + tier_stats.places_writing, 0);
    }
}
