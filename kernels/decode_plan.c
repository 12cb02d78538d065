/* SPDX-License-Identifier: Apache-2.0 */
/* All streams end to end are dealt out in equal runs.  Little work: one CTA a multiprocessor, and
 * that is all, so that one wave does it; one or a few requests: each stream in equal pieces.  More:
 * two CTAs, and the last part of each stream is left in short units that CTAs take when they are
 * done: it evens out what no plan can know.  Besides its tiles a run pays for each of its cuts. */
#include "kernels/decode_plan.h"

#include <assert.h>
#include <string.h>

#include "common/mem.h"
#include "kernels/decode_group.h"

/* Work counts as little up to so many tiles a multiprocessor, in no more than a stream for so many
 * of them. */
#define LITTLE_TILES   40
#define LITTLE_STREAMS 4
#define STATIC_PERCENT 90
#define TAIL_TILES     8
/* What writing the partials of a cut and starting the next costs, in tiles. */
#define CUT_TILES 2
/* A tile, by the time of a multiprocessor. */
static const uint32_t tile_cost[DECODE_KINDS] = {10, 10, 13};
/* Shares of multiprocessors that tiles of 128 rows may have beside others. */
#define SM_SHARES 11
/* CTAs for a stream from which on each has only pieces of one stream. */
#define EVEN_CTAS 4
/* Of a fixed cut: units of 1024 keys, longer ones where a sequence would have more units. */
#define FIXED_TILES     16
#define FIXED_UNITS_MAX 32

/* A run of a stream that ends in partials. */
struct cut {
    uint32_t group;
    uint32_t head;
    uint32_t from; /* tiles */
    uint32_t to;
    uint32_t unit;
};

struct decode_planner {
    struct decode_grouper *grouper;
    const struct decode_groups *groups;
    struct cut *cuts;
    uint32_t cuts_max;
    uint32_t cut_first[DECODE_KINDS + 1]; /* a kind's cuts */
    uint32_t n_cuts;
    uint32_t n_slots;
    uint32_t slots_max;
    bool is_full; /* a cut found no room */
};

uint32_t
decode_plan_slots_min(uint32_t seqs_max, uint32_t Hkv, uint32_t sm_count)
{
    return seqs_max * Hkv + 2 * sm_count;
}

uint32_t
decode_plan_items_max(uint32_t seqs_max, uint32_t segs_max, uint32_t Hkv, uint32_t sm_count)
{
    /* An item a segment and head, one more for each cut; half as many again for tails. */
    return segs_max * Hkv + decode_plan_slots_min(seqs_max, Hkv, sm_count) * 3 / 2 + 8192;
}

enum status
decode_planner_new(uint32_t seqs_max, uint32_t segs_max, uint32_t Hkv,
                   struct decode_planner **planner_out)
{
    struct decode_planner *p = mem_zalloc(1, sizeof(*p));
    enum status st = p == NULL ? ST_NO_MEMORY : decode_grouper_new(seqs_max, segs_max, &p->grouper);

    if (st == ST_OK) {
        p->cuts_max = DECODE_KINDS * (seqs_max * Hkv + 8192);
        p->cuts = mem_zalloc(p->cuts_max, sizeof(p->cuts[0]));
        st = p->cuts == NULL ? ST_NO_MEMORY : ST_OK;
    }
    if (st != ST_OK) {
        decode_planner_destroy(&p);
        return ERR(ST_NO_MEMORY, "decode planner for %u sequences", seqs_max);
    }
    *planner_out = p;
    return ST_OK;
}

void
decode_planner_destroy(struct decode_planner **planner)
{
    if (*planner == NULL) {
        return;
    }
    decode_grouper_destroy(&(*planner)->grouper);
    mem_free((*planner)->cuts);
    MEM_FREE(*planner);
}

/* --- cutting --------------------------------------------------------------------------------- */

static uint32_t
or_else(uint32_t value, uint32_t otherwise)
{
    return value > 0 ? value : otherwise;
}

static void
push_cut(struct decode_planner *p, struct cut cut)
{
    uint32_t slots = p->groups->groups[cut.group].n_members;

    if (p->n_cuts == p->cuts_max || p->n_slots + slots > p->slots_max) {
        p->is_full = true;
        return;
    }
    p->cuts[p->n_cuts++] = cut;
    p->n_slots += slots;
}

/* Tiles from `from` (a part of each stream) on, in units of `unit_tiles`, the short ones last. */
static void
cut_units(struct decode_planner *p, const struct decode_plan_work *work, enum decode_kind kind,
          uint32_t static_percent, uint32_t unit_tiles, uint32_t *n_units)
{
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t g = 0; g < p->groups->n_groups; g++) {
            const struct decode_group *group = &p->groups->groups[g];
            uint32_t tiles = group->tiles;
            uint32_t unit = unit_tiles;

            if (work->is_fixed) {
                unit = (tiles + FIXED_UNITS_MAX - 1) / FIXED_UNITS_MAX;
                unit = unit > FIXED_TILES ? unit : FIXED_TILES;
            }
            for (uint32_t head = 0; group->kind == kind && head < work->Hkv; head++) {
                uint32_t t = (uint32_t)((uint64_t)tiles * static_percent / 100);

                for (; t < tiles; t += unit) {
                    bool is_short = tiles - t < unit;

                    if (is_short == (pass == 1)) {
                        push_cut(
                            p, (struct cut){g, head, t, is_short ? tiles : t + unit, (*n_units)++});
                    }
                }
            }
        }
    }
}

static uint32_t
static_tiles(const struct decode_group *group, uint32_t percent)
{
    return (uint32_t)((uint64_t)group->tiles * percent / 100);
}

/* The first part of each stream, end to end, in `ctas` runs of equal cost; a run is a unit. */
static void
cut_tape(struct decode_planner *p, const struct decode_plan_work *work, enum decode_kind kind,
         uint32_t percent, uint32_t ctas, uint32_t *n_units)
{
    const uint32_t cut = or_else(work->tuning.cut_tiles, CUT_TILES);
    uint64_t total = 0; /* cost: tiles, and a cut for each stream and each run */
    uint64_t done = 0;
    uint64_t end = 0; /* of the run in hand */
    uint32_t run = 0;

    for (uint32_t g = 0; g < p->groups->n_groups; g++) {
        const struct decode_group *group = &p->groups->groups[g];
        uint32_t tiles = static_tiles(group, percent);

        if (group->kind == kind && tiles > 0) {
            total += (uint64_t)(tiles + cut) * work->Hkv;
        }
    }
    total += (uint64_t)cut * ctas;
    for (uint32_t g = 0; g < p->groups->n_groups; g++) {
        const struct decode_group *group = &p->groups->groups[g];
        uint32_t tiles = static_tiles(group, percent);

        for (uint32_t head = 0; group->kind == kind && head < work->Hkv; head++) {
            for (uint32_t t = 0; t < tiles;) {
                if (done + cut >= end) { /* no room for a tile and its cut */
                    while (done + cut >= end) {
                        end = total * ++run / ctas;
                    }
                    (*n_units)++;
                }
                uint64_t room = end - done - cut;
                uint32_t n = room < tiles - t ? (uint32_t)room : tiles - t;

                push_cut(p, (struct cut){g, head, t, t + n, *n_units - 1});
                t += n;
                done += n + cut;
            }
        }
    }
}

/* Whether each stream gets at least a few CTAs of its own. */
static bool
is_even(const struct decode_planner *p, enum decode_kind kind, uint64_t tiles, uint32_t ctas)
{
    for (uint32_t g = 0; g < p->groups->n_groups; g++) {
        const struct decode_group *group = &p->groups->groups[g];

        if (group->kind == kind && (uint64_t)group->tiles * ctas < EVEN_CTAS * tiles) {
            return false;
        }
    }
    return true;
}

/* Each stream in about equal pieces, in proportion no more than there are CTAs: a unit has one
 * piece. */
static void
cut_even(struct decode_planner *p, const struct decode_plan_work *work, enum decode_kind kind,
         uint64_t tiles, uint32_t ctas, uint32_t *n_units)
{
    for (uint32_t g = 0; g < p->groups->n_groups; g++) {
        const struct decode_group *group = &p->groups->groups[g];
        uint32_t pieces = (uint32_t)((uint64_t)group->tiles * ctas / tiles);

        pieces = pieces < group->tiles ? pieces : group->tiles;
        for (uint32_t head = 0; group->kind == kind && head < work->Hkv; head++) {
            for (uint32_t i = 0; i < pieces; i++) {
                uint32_t from = (uint32_t)((uint64_t)group->tiles * i / pieces);
                uint32_t to = (uint32_t)((uint64_t)group->tiles * (i + 1) / pieces);

                push_cut(p, (struct cut){g, head, from, to, (*n_units)++});
            }
        }
    }
}

static uint64_t
count_tiles(const struct decode_planner *p, const struct decode_plan_work *work,
            enum decode_kind kind)
{
    uint64_t tiles = 0;

    for (uint32_t g = 0; g < p->groups->n_groups; g++) {
        const struct decode_group *group = &p->groups->groups[g];
        tiles += group->kind == kind ? (uint64_t)group->tiles * work->Hkv : 0;
    }
    return tiles;
}

/* What the streams of a kind cost: its tiles and cuts by the time of a multiprocessor. */
static uint64_t
cost_of(const struct decode_planner *p, const struct decode_plan_work *work, enum decode_kind kind)
{
    uint64_t tiles = 0;

    for (uint32_t g = 0; g < p->groups->n_groups; g++) {
        const struct decode_group *group = &p->groups->groups[g];
        tiles += group->kind == kind ? group->tiles + CUT_TILES : 0;
    }
    return tiles * work->Hkv * tile_cost[kind];
}

/* Multiprocessors for tiles of 128 rows: all, or, where others are needed as well and it is asked
 * for, a share, so that the two kernels run beside each other: the first keeps the tensor cores
 * busy, the others mostly the memory.  A share in a few steps, since each is a graph of its own. */
static uint32_t
sms_for_128(const struct decode_planner *p, const struct decode_plan_work *work)
{
    uint64_t wide = cost_of(p, work, DECODE_ROWS_128);
    uint64_t all = wide + cost_of(p, work, DECODE_ROWS_64) + cost_of(p, work, DECODE_ROWS_16);
    uint32_t share = 0;

    if (work->tuning.sms_128 == 0 || wide == 0 || wide == all || work->sm_count < 2 * SM_SHARES) {
        return work->sm_count;
    }
    share = (uint32_t)((wide * SM_SHARES + all / 2) / all);
    share = share < 1 ? 1 : share < SM_SHARES ? share : SM_SHARES - 1;
    return work->sm_count * share / SM_SHARES;
}

static bool
is_little(const struct decode_planner *p, const struct decode_plan_work *work,
          enum decode_kind kind)
{
    uint32_t streams = 0;

    for (uint32_t g = 0; g < p->groups->n_groups; g++) {
        streams += p->groups->groups[g].kind == kind ? work->Hkv : 0;
    }
    return streams * LITTLE_STREAMS <= work->sm_count
           && count_tiles(p, work, kind) <= (uint64_t)LITTLE_TILES * work->sm_count;
}

/* Cuts the streams of one kind for so many multiprocessors; `has_tails` false: as few cuts as there
 * can be. */
static void
cut_kind(struct decode_planner *p, const struct decode_plan_work *work, enum decode_kind kind,
         uint32_t sms, bool has_tails, struct decode_plan *plan)
{
    const struct decode_tuning *tuning = &work->tuning;
    uint64_t tiles = count_tiles(p, work, kind);
    uint32_t units = 0;
    bool is_one_wave = is_little(p, work, kind);
    uint32_t paired = or_else(tuning->ctas_per_sm, is_one_wave ? 1 : 2);
    uint32_t per_sm = kind == DECODE_ROWS_128 ? 1 : paired;
    uint32_t ctas = per_sm * sms;

    p->cut_first[kind] = p->n_cuts;
    plan->ctas[kind] = tiles > 0 ? ctas : 0;
    plan->per_sm[kind] = per_sm;
    if (tiles > 0 && (work->is_fixed || (tuning->unit_tiles > 0 && has_tails))) {
        cut_units(p, work, kind, 0, tuning->unit_tiles, &units);
    } else if (tiles > 0 && is_one_wave && tuning->static_percent == 0
               && is_even(p, kind, tiles, ctas)) {
        cut_even(p, work, kind, tiles, ctas, &units);
    } else if (tiles > 0) {
        /* A cut of a wide tile is many partials: no short units. */
        bool is_static = is_one_wave || kind != DECODE_ROWS_16;
        uint32_t percent = or_else(tuning->static_percent, is_static ? 100 : STATIC_PERCENT);

        percent = has_tails ? percent : 100;
        cut_tape(p, work, kind, percent, ctas, &units);
        cut_units(p, work, kind, percent, or_else(tuning->tail_tiles, TAIL_TILES), &units);
    }
    plan->n_units[kind] = units;
}

/* Groups and cuts; false: they do not fit. */
static enum status
cut_all(struct decode_planner *p, const struct decode_plan_work *work, bool is_shared,
        bool has_tails, struct decode_plan *plan)
{
    TRY(decode_group_make(p->grouper, work, is_shared, plan, &p->groups));
    p->n_cuts = 0;
    p->n_slots = 0;
    p->slots_max = plan->slots_max;
    p->is_full = false;
    const uint32_t wide = sms_for_128(p, work);
    const uint32_t rest = wide < work->sm_count ? work->sm_count - wide : work->sm_count;

    for (int kind = 0; kind < DECODE_KINDS; kind++) {
        cut_kind(p, work, (enum decode_kind)kind, kind == DECODE_ROWS_128 ? wide : rest, has_tails,
                 plan);
    }
    p->cut_first[DECODE_KINDS] = p->n_cuts;
    return ST_OK;
}

/* --- items ----------------------------------------------------------------------------------- */

static void
count_slots(const struct decode_planner *p, const struct decode_plan_work *work,
            struct decode_plan *plan)
{
    uint32_t first = 0;

    memset(plan->joins, 0, (size_t)work->n_seqs * work->Hkv * sizeof(plan->joins[0]));
    for (uint32_t c = 0; c < p->n_cuts; c++) {
        const struct cut *cut = &p->cuts[c];
        const struct decode_group *group = &p->groups->groups[cut->group];

        for (uint32_t m = 0; m < group->n_members; m++) {
            uint32_t seq = p->groups->members[group->member_first + m];
            plan->joins[seq * work->Hkv + cut->head].count++;
        }
    }
    for (uint32_t i = 0; i < work->n_seqs * work->Hkv; i++) {
        plan->joins[i].first = first;
        first += plan->joins[i].count;
        plan->joins[i].count = 0; /* counted again as they are given out */
    }
    assert(first == p->n_slots);
}

/* The slots of a cut, in the order of its group's members; `count` follows when all are known:
 * until then it is the number of its join. */
static uint32_t
give_slots(const struct decode_planner *p, const struct decode_plan_work *work,
           const struct cut *cut, struct decode_plan *plan)
{
    const struct decode_group *group = &p->groups->groups[cut->group];
    uint32_t flush = plan->n_slots;

    for (uint32_t m = 0; m < group->n_members; m++) {
        uint32_t seq = p->groups->members[group->member_first + m];
        struct decode_join *join = &plan->joins[seq * work->Hkv + cut->head];

        plan->flushes[plan->n_slots++] =
            (struct decode_flush){.row = work->seqs[seq].row_first,
                                  .slot = join->first + join->count,
                                  .first = join->first,
                                  .count = seq * work->Hkv + cut->head};
        join->count++;
    }
    return flush;
}

/* The items of a cut, the first at `at` (a unit's own) or, DECODE_NONE, linked from *last. */
static bool
emit_cut(const struct decode_planner *p, const struct decode_plan_work *work, const struct cut *cut,
         enum decode_kind kind, uint32_t *last, struct decode_plan *plan)
{
    const struct decode_group *group = &p->groups->groups[cut->group];
    struct decode_item *items = plan->items[kind];
    uint32_t flush = give_slots(p, work, cut, plan);
    uint32_t tile = 0; /* of the stream, where the piece begins */

    for (uint32_t i = group->piece_first; i != DECODE_NONE && tile < cut->to;
         tile += decode_tiles_of(p->groups->pieces[i].n_tokens), i = p->groups->pieces[i].next) {
        const struct decode_piece *piece = &p->groups->pieces[i];
        uint32_t end = tile + decode_tiles_of(piece->n_tokens);

        if (end <= cut->from) {
            continue;
        }
        uint32_t from = cut->from > tile ? (cut->from - tile) * DECODE_TILE : 0;
        uint32_t to = cut->to < end ? (cut->to - tile) * DECODE_TILE : piece->n_tokens;
        uint32_t at = cut->unit;
        uint32_t block = piece->block_first + from / work->P;

        if (*last != DECODE_NONE) {
            if (plan->n_items[kind] == plan->items_max[kind]) {
                return false;
            }
            at = plan->n_items[kind]++;
            items[*last].next = at;
        }
        items[at] = (struct decode_item){
            .block_first = block,
            .n_tokens = to - from,
            .head = cut->head | (cut->to <= end ? DECODE_ITEM_FLUSH : 0)
                    | (piece->is_own ? DECODE_ITEM_OWN : 0),
            .sharers = piece->sharers,
            .flush = flush,
            .n_sharers = group->n_members,
        };
        for (uint32_t k = 0; k < DECODE_TILE / work->P && k * work->P < to - from; k++) {
            items[at].ids[k] = work->block_ids[block + k];
        }
        *last = at;
    }
    return true;
}

static bool
emit_kind(const struct decode_planner *p, const struct decode_plan_work *work,
          enum decode_kind kind, struct decode_plan *plan)
{
    uint32_t unit = DECODE_NONE;
    uint32_t last = DECODE_NONE;

    if (plan->n_units[kind] > plan->items_max[kind]) {
        return false;
    }
    plan->n_items[kind] = plan->n_units[kind];
    for (uint32_t c = p->cut_first[kind]; c < p->cut_first[kind + 1]; c++) {
        const struct cut *cut = &p->cuts[c];

        if (cut->unit != unit) {
            unit = cut->unit;
            last = DECODE_NONE;
        }
        if (!emit_cut(p, work, cut, kind, &last, plan)) {
            return false;
        }
    }
    return true;
}

static void
finish_plan(const struct decode_planner *p, const struct decode_plan_work *work,
            struct decode_plan *plan)
{
    /* One request waits for its join wherever it happens; many overlap theirs with a launch. */
    plan->joins_in_kernel =
        plan->n_units[DECODE_ROWS_64] == 0 && plan->n_units[DECODE_ROWS_128] == 0
        && (work->tuning.joins == 0 ? is_little(p, work, DECODE_ROWS_16) : work->tuning.joins == 2);
    for (uint32_t i = 0; i < work->n_seqs * work->Hkv; i++) {
        plan->joins_in_kernel = plan->joins_in_kernel && plan->joins[i].count > 0;
    }
    for (uint32_t i = 0; i < work->n_seqs * work->Hkv; i++) {
        plan->joins[i].row = work->seqs[i / work->Hkv].row_first;
    }
    for (uint32_t i = 0; i < plan->n_slots; i++) {
        plan->flushes[i].count = plan->joins[plan->flushes[i].count].count; /* see give_slots */
    }
    plan->rows_max = 0;
    for (uint32_t g = 0; g < p->groups->n_groups; g++) {
        const struct decode_group *group = &p->groups->groups[g];
        uint32_t rows = group->n_members * work->group;

        if (group->kind == DECODE_ROWS_16 && rows > plan->rows_max) {
            plan->rows_max = rows;
        }
    }
}

static bool
emit_all(const struct decode_planner *p, const struct decode_plan_work *work,
         struct decode_plan *plan)
{
    plan->n_slots = 0;
    count_slots(p, work, plan);
    for (int kind = 0; kind < DECODE_KINDS; kind++) {
        if (!emit_kind(p, work, (enum decode_kind)kind, plan)) {
            return false;
        }
    }
    finish_plan(p, work, plan);
    return true;
}

enum status
decode_plan_make(struct decode_planner *planner, const struct decode_plan_work *work,
                 struct decode_plan *plan)
{
    const bool can_share =
        work->is_shared && !work->is_fixed && work->group <= DECODE_GROUP_MAX / 2;
    /* From the best plan to the one that always fits. */
    const struct {
        bool is_shared, has_tails;
    } tries[] = {{can_share, true}, {can_share, false}, {false, false}};

    for (size_t i = 0; i < sizeof(tries) / sizeof(tries[0]); i++) {
        TRY(cut_all(planner, work, tries[i].is_shared, tries[i].has_tails, plan));
        if (!planner->is_full && emit_all(planner, work, plan)) {
            return ST_OK;
        }
    }
    return ERR(ST_NO_MEMORY, "decode plan: %u sequences need more than %u items or %u slots",
               work->n_seqs, plan->items_max[DECODE_ROWS_16], plan->slots_max);
}
