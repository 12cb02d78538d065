/* SPDX-License-Identifier: Apache-2.0 */
/* How long the scheduler's turn takes with many documents in the pool: is there a cliff?
 *
 *   bench_sched_turn [DOCUMENTS]...        1000 10000 100000 1000000 if none is named
 *
 * A turn is one event of sched.h from its call to its return: a submit, a worker's step, a tick,
 * with all that follows from it (admission, placement, eviction, seals, copies to the host tier,
 * the catalog's records).  Twice as many documents are asked for (Zipf, exponent 0.9) as the pool
 * holds, so it misses and evicts for ever.  First it is filled, the names one after the other: then
 * all that grows with the documents grows.  Null workers answer at once; of five hundred open
 * requests by eight tenants in three priorities most wait, and some have a deadline that passes.
 * In the end some documents are forgotten, one after the other: a call, and the steps until it has
 * its answer.
 *
 * CPU time of the thread: others on the machine disturb its caches only. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/rounds.h"
#include "common/htab.h"
#include "common/mem.h"
#include "daemon/sched.h"
#include "kvpool/catalog.h"

#define WORKERS       2
#define SEQS          64
#define OPEN          512
#define REQUESTS      30000
#define DOCS          10
#define BLOCK_TOKENS  32
#define DOC_BLOCKS    4 /* at most; at least one */
#define ALPHA         0.9
#define QUERY_TOKENS  40
#define ANSWER_TOKENS 48
#define TENANTS       8
#define STEP_US       20000 /* of the time that the scheduler is told */
#define DEADLINE_US   20000000
#define BUILDS_MAX    (SEQS * DOCS)
#define FORGETS       200
#define ERASES_MAX    1024

enum kind {
    SUBMIT, /* the pool is full */
    STEP,
    TICK,
    ANY,         /* of these three */
    FILL_SUBMIT, /* it is being filled */
    FILL_STEP,
    FORGET,
    FORGET_STEP, /* while one is under way */
    KINDS,
};

static const char *const kind_names[KINDS] = {
    "submit",          "step",          "tick",   "any",
    "submit, filling", "step, filling", "forget", "step, forgetting"};

struct samples {
    float *us;
    size_t count, capacity;
    double sum;
};

struct run {
    uint64_t request; /* 0: free */
    uint32_t sent, answer;
    uint32_t wait; /* steps before its first token: documents take time */
};

struct worker {
    struct run runs[SEQS];
    uint64_t sealed[BUILDS_MAX];
    struct sched_loaded loaded[BUILDS_MAX];
    struct sched_spilled spilled[SCHED_SPILLS_MAX];
    uint64_t sums[SCHED_SPILLS_MAX][DOC_BLOCKS];
    uint64_t erased[ERASES_MAX];
    size_t sealed_count, loaded_count, spilled_count, erased_count;
};

struct bench {
    struct sched *sched;
    struct catalog *catalog;
    void *catalog_memory;
    size_t catalog_bytes;
    struct worker workers[WORKERS];
    struct tokens *documents[DOC_BLOCKS]; /* by blocks - 1; only their number counts */
    struct tokens *query;
    double *shares; /* [corpus] of the traffic, of this rank and those before */
    uint64_t corpus, resident;
    uint64_t random, submitted, ended, named;
    uint64_t now_us;
    uint64_t forgotten;
    bool is_filling, is_forgetting;
    struct kvpool_stats full; /* when the pool was */
    struct sched_counters full_counters;
    struct samples samples[KINDS];
};

static void
must(enum status st)
{
    if (st != ST_OK) {
        (void)fprintf(stderr, "bench_sched_turn: %s\n", status_detail());
        exit(EXIT_FAILURE);
    }
}

static void *
must_alloc(size_t count, size_t size)
{
    void *p = mem_zalloc(count, size);

    if (p == NULL) {
        must(ERR(ST_NO_MEMORY, "no memory for %zu times %zu bytes", count, size));
    }
    return p;
}

static void
add_sample(struct samples *samples, double us)
{
    if (samples->count == samples->capacity) {
        samples->capacity = samples->capacity == 0 ? 1u << 16 : 2 * samples->capacity;
        samples->us = realloc(samples->us, samples->capacity * sizeof(samples->us[0]));
        if (samples->us == NULL) {
            exit(EXIT_FAILURE);
        }
    }
    samples->us[samples->count++] = (float)us;
    samples->sum += us;
}

static void
note(struct bench *bench, enum kind kind, double seconds)
{
    if (bench->is_forgetting) {
        add_sample(&bench->samples[kind == FORGET ? FORGET : FORGET_STEP], seconds * 1e6);
    } else if (!bench->is_filling) {
        add_sample(&bench->samples[kind], seconds * 1e6);
        add_sample(&bench->samples[ANY], seconds * 1e6);
    } else if (kind != TICK) {
        add_sample(&bench->samples[FILL_SUBMIT + kind], seconds * 1e6);
    }
}

/* --- the world around the scheduler ----------------------------------------------------------- */

static void
take_assign(struct worker *worker, const struct sched_action *action)
{
    struct run *run = worker->runs;

    for (uint32_t i = 0; i < action->build_count; i++) {
        const struct sched_build *build = &action->session->builds[i];

        if (build->load != NULL) {
            worker->loaded[worker->loaded_count++] = (struct sched_loaded){
                .build = build->build, .blocks = build->load->count, .copy_us = 50};
        }
        worker->sealed[worker->sealed_count++] = build->build;
    }
    while (run->request != 0) {
        run++;
    }
    *run = (struct run){.request = action->request,
                        .answer = 1 + (uint32_t)(htab_mix(action->request) % ANSWER_TOKENS),
                        .wait = action->build_count / 2};
}

static void
take_spill(struct worker *worker, const struct sched_action *action)
{
    for (uint32_t i = 0; i < DOC_BLOCKS; i++) {
        worker->sums[worker->spilled_count][i] = 1;
    }
    worker->spilled[worker->spilled_count] =
        (struct sched_spilled){.spill = action->spill,
                               .sums = worker->sums[worker->spilled_count],
                               .sum_count = action->block_count,
                               .copy_us = 50};
    worker->spilled_count++;
}

static void
take_stop(struct worker *worker, uint64_t request)
{
    for (struct run *run = worker->runs; run < worker->runs + SEQS; run++) {
        if (run->request == request) {
            run->answer = 0; /* it is given back at the next step */
        }
    }
}

static void
obey(struct bench *bench)
{
    size_t count;
    const struct sched_action *actions = sched_take_actions(bench->sched, &count);

    for (size_t i = 0; i < count; i++) {
        struct worker *worker = &bench->workers[actions[i].worker % WORKERS];

        if (actions[i].kind == SCHED_SEND_ASSIGN) {
            take_assign(worker, &actions[i]);
        } else if (actions[i].kind == SCHED_SEND_SPILL) {
            take_spill(worker, &actions[i]);
        } else if (actions[i].kind == SCHED_SEND_STOP) {
            take_stop(worker, actions[i].request);
        } else if (actions[i].kind == SCHED_SEND_ERASE) {
            worker->erased[worker->erased_count++ % ERASES_MAX] = actions[i].build;
        } else if (actions[i].kind == SCHED_REPLY_FORGOTTEN) {
            bench->forgotten++;
        } else if (actions[i].kind == SCHED_REPLY_END) {
            bench->ended++;
        }
    }
}

static double
draw(struct bench *bench)
{
    return (double)(htab_mix(bench->random++) >> 11) * 0x1p-53;
}

/* The next name, or one by popularity. */
static uint64_t
draw_document(struct bench *bench)
{
    uint64_t low = 0, high = bench->corpus - 1;
    double share = draw(bench);

    if (bench->is_filling) {
        return bench->named++ % bench->corpus;
    }
    while (low < high) {
        uint64_t middle = (low + high) / 2;

        if (bench->shares[middle] > share) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low * UINT64_C(2654435761) % bench->corpus; /* a prime: every rank has its own name */
}

static void
submit(struct bench *bench)
{
    static const char *const tenants[TENANTS] = {"a", "b", "c", "d", "e", "f", "g", "h"};
    uint64_t id = ++bench->submitted, chance = htab_mix(~id);
    struct sched_submit submit = {
        .id = id,
        .arrival_us = bench->now_us,
        .deadline_us = bench->now_us + (chance % 64 == 0 ? STEP_US : DEADLINE_US),
        .priority = (uint32_t)(chance >> 8) % 16 == 0 ? 100 : 40 + (uint32_t)(chance >> 16) % 2,
        .tenant = tenants[(chance >> 24) % TENANTS],
        .weight = 1,
        .prompt =
            {
                .documents = must_alloc(DOCS, sizeof(struct prompt_document)),
                .document_count = DOCS,
                .query = tokens_acquire(bench->query),
                .sampling = {.max_tokens = ANSWER_TOKENS, .has_max_tokens = true},
            },
    };

    for (uint64_t i = 0; i < DOCS; i++) {
        struct prompt_document *document = &submit.prompt.documents[i];
        uint64_t name = htab_mix(draw_document(bench));

        memcpy(document->key.bytes, &name, sizeof(name));
        document->kv_key = document->key;
        document->tokens = tokens_acquire(bench->documents[name >> 32 & (DOC_BLOCKS - 1)]);
    }
    double start = cpu_seconds();

    sched_submit(bench->sched, bench->now_us, &submit);
    note(bench, SUBMIT, cpu_seconds() - start);
    obey(bench);
}

/* One token of everybody; returns how many of them end. */
static size_t
decode(struct worker *worker, struct sched_result *results, size_t *count_out, uint64_t *released)
{
    static const uint32_t token = 7;
    size_t count = 0, ended = 0;

    for (struct run *run = worker->runs; run < worker->runs + SEQS; run++) {
        bool is_last = run->sent + 1 >= run->answer;

        if (run->request == 0 || (run->answer > 0 && run->wait-- > 0)) {
            continue;
        }
        run->wait = 0;
        if (run->answer > 0) {
            results[count++] = (struct sched_result){
                .request = run->request,
                .ids = &token,
                .id_count = 1,
                .own_tokens = QUERY_TOKENS + run->sent,
                .finish = is_last ? SCHED_FINISH_LENGTH : SCHED_FINISH_NONE,
            };
        }
        run->sent++;
        if (is_last) {
            released[ended++] = run->request;
            run->request = 0;
        }
    }
    *count_out = count;
    return ended;
}

static void
step(struct bench *bench, uint32_t number)
{
    struct worker *worker = &bench->workers[number];
    struct sched_result results[SEQS];
    uint64_t released[SEQS];
    struct sched_step step = {
        .sealed = worker->sealed,
        .sealed_count = worker->sealed_count,
        .loaded = worker->loaded,
        .loaded_count = worker->loaded_count,
        .spilled = worker->spilled,
        .spilled_count = worker->spilled_count,
        .erased = worker->erased,
        .erased_count = worker->erased_count,
        .results = results,
        .released = released,
    };

    step.released_count = decode(worker, results, &step.result_count, released);
    worker->sealed_count = worker->loaded_count = worker->spilled_count = 0;
    worker->erased_count = 0;
    double start = cpu_seconds();

    (void)sched_worker_step(bench->sched, bench->now_us, number, number + 1, &step);
    note(bench, STEP, cpu_seconds() - start);
    obey(bench);
}

static void
tick(struct bench *bench)
{
    if (bench->now_us >= sched_wakeup_us(bench->sched)) {
        double start = cpu_seconds();

        sched_tick(bench->sched, bench->now_us);
        note(bench, TICK, cpu_seconds() - start);
        obey(bench);
    }
}

/* One round of everybody. */
static void
play(struct bench *bench)
{
    while (bench->submitted - bench->ended < OPEN) {
        submit(bench);
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        step(bench, i);
    }
    bench->now_us += STEP_US;
    tick(bench);
}

/* Any document, which is there or not; all that reads it ends. */
static void
forget(struct bench *bench)
{
    uint64_t name = htab_mix((uint64_t)(draw(bench) * (double)bench->corpus));
    uint64_t before = bench->forgotten;
    struct dockey key = {0};

    memcpy(key.bytes, &name, sizeof(name));
    double start = cpu_seconds();
    enum status st = sched_forget(bench->sched, bench->now_us, bench->submitted + 1, &key, true);

    note(bench, FORGET, cpu_seconds() - start);
    obey(bench);
    while (st == ST_OK && bench->forgotten == before) {
        play(bench);
    }
}

/* --- one size --------------------------------------------------------------------------------- */

static void
make_traffic(struct bench *bench)
{
    double sum = 0;

    bench->shares = must_alloc(bench->corpus, sizeof(bench->shares[0]));
    for (uint64_t i = 0; i < bench->corpus; i++) {
        sum += pow((double)(i + 1), -ALPHA);
        bench->shares[i] = sum;
    }
    for (uint64_t i = 0; i < bench->corpus; i++) {
        bench->shares[i] /= sum;
    }
}

static void
make_pool(struct bench *bench, uint32_t block_count)
{
    struct sched_config config = {
        .block_tokens = BLOCK_TOKENS,
        .reserve_tokens = ANSWER_TOKENS / 2,
        .waiting_max = SCHED_WAITING_MAX,
        .policy = &evict_zipf,
        .pin_share_max = 0.5,
        .quadratic_tokens = 26700,
    };
    struct catalog_pool pool = {.block_count = block_count, .block_tokens = BLOCK_TOKENS};

    must(sched_new(&config, &bench->sched));
    bench->catalog_bytes = catalog_bytes(&pool);
    bench->catalog_memory = mmap(NULL, bench->catalog_bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bench->catalog_memory == MAP_FAILED) {
        must(ERR(ST_NO_MEMORY, "no memory for a catalog"));
    }
    must(catalog_format(bench->catalog_memory, &pool, &bench->catalog));
    sched_use_catalog(bench->sched, bench->catalog);
    sched_use_host_tier(bench->sched, block_count / 4, NULL);
    must(sched_set_pool(bench->sched, block_count));
    for (uint32_t i = 0; i < WORKERS; i++) {
        sched_worker_use_tier(bench->sched, i);
        sched_worker_ready(bench->sched, bench->now_us, i, i + 1, SEQS);
        obey(bench);
    }
}

static void
set_up(struct bench *bench, uint64_t resident)
{
    static const uint32_t ids[DOC_BLOCKS * BLOCK_TOKENS];
    uint32_t own = WORKERS * SEQS * ((QUERY_TOKENS + ANSWER_TOKENS) / BLOCK_TOKENS + 1);

    *bench = (struct bench){.resident = resident, .corpus = 2 * resident, .now_us = 1};
    for (uint32_t i = 0; i < DOC_BLOCKS; i++) {
        must(tokens_new(ids, (i + 1) * BLOCK_TOKENS - 5, &bench->documents[i]));
    }
    must(tokens_new(ids, QUERY_TOKENS, &bench->query));
    make_traffic(bench);
    make_pool(bench, (uint32_t)(resident * (DOC_BLOCKS + 1) / 2) + own);
}

static void
tear_down(struct bench *bench)
{
    sched_destroy(&bench->sched);
    catalog_close(&bench->catalog);
    (void)munmap(bench->catalog_memory, bench->catalog_bytes);
    mem_free(bench->shares);
    for (uint32_t i = 0; i < DOC_BLOCKS; i++) {
        tokens_release(&bench->documents[i]);
    }
    tokens_release(&bench->query);
    for (int kind = 0; kind < KINDS; kind++) {
        free(bench->samples[kind].us);
    }
}

static int
compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;

    return (x > y) - (x < y);
}

static double
percentile(const struct samples *samples, double share)
{
    return (double)samples->us[(size_t)(share * (double)(samples->count - 1))];
}

static void
report(struct bench *bench)
{
    const struct sched_counters *counters = sched_counters(bench->sched);
    struct kvpool_stats stats;

    kvpool_stats(sched_pool(bench->sched), &stats);
    for (int kind = 0; kind < KINDS; kind++) {
        struct samples *samples = &bench->samples[kind];

        if (samples->count == 0) {
            continue;
        }
        qsort(samples->us, samples->count, sizeof(samples->us[0]), compare_floats);
        printf("%9u  %-16s %9zu %8.1f %8.1f %8.1f %8.1f %9.1f\n", stats.documents, kind_names[kind],
               samples->count, samples->sum / (double)samples->count, percentile(samples, 0.5),
               percentile(samples, 0.99), percentile(samples, 0.999), percentile(samples, 1));
        printf("{\"bench\": \"sched_turn\", \"documents\": %" PRIu64
               ", \"turn\": \"%s\", \"p50_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f}\n",
               bench->resident, kind_names[kind], percentile(samples, 0.5),
               percentile(samples, 0.999), percentile(samples, 1));
    }
    printf("           since it is full: found %.3f of the documents, evicted %" PRIu64
           ", copied %" PRIu64 " and back %" PRIu64 ", deadlines passed %" PRIu64 "\n",
           (double)(stats.doc_hits - bench->full.doc_hits) / (REQUESTS * DOCS),
           stats.docs_evicted - bench->full.docs_evicted,
           counters->spills_started - bench->full_counters.spills_started,
           counters->docs_loaded - bench->full_counters.docs_loaded,
           counters->deadlines_passed - bench->full_counters.deadlines_passed);
    (void)fflush(stdout);
}

static void
measure(uint64_t resident)
{
    static struct bench bench;
    uint64_t until;

    set_up(&bench, resident);
    bench.is_filling = true;
    while (bench.named < bench.corpus * 6 / 10) {
        play(&bench);
    }
    bench.is_filling = false;
    kvpool_stats(sched_pool(bench.sched), &bench.full);
    bench.full_counters = *sched_counters(bench.sched);
    until = bench.ended + REQUESTS;
    while (bench.ended < until) {
        play(&bench);
    }
    bench.is_forgetting = true;
    for (int i = 0; i < FORGETS; i++) {
        forget(&bench);
    }
    report(&bench);
    tear_down(&bench);
}

int
main(int argc, char **argv)
{
    static const uint64_t sizes[] = {1000, 10000, 100000, 1000000};

    printf("documents  turn                 turns  mean us      p50      p99    p99.9       max\n");
    for (int i = 1; i < argc; i++) {
        measure(strtoull(argv[i], NULL, 10));
    }
    for (size_t i = 0; argc == 1 && i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        measure(sizes[i]);
    }
    return EXIT_SUCCESS;
}
