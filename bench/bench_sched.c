/* SPDX-License-Identifier: Apache-2.0 */
/* The scheduler alone: null workers answer at once, so all the time is the scheduler's and the
 * pool's.
 *
 *   bench_sched [REQUESTS]
 *
 * A request cites 10 documents of 512 tokens out of 100 and gets an answer of 64 tokens; 2 workers
 * run 16 each; 100 are always open.  Counted: submit to last reply, all steps included; making the
 * prompt and doing what the actions say is not.  The goal is below 50 us a request. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/htab.h"
#include "common/mem.h"
#include "daemon/sched.h"

#define REQUESTS_DEFAULT 20000
#define WORKERS          2
#define SEQS             16
#define WAITING          100
#define BLOCKS           4096
#define BLOCK_TOKENS     32
#define CORPUS           100
#define DOCS             10
#define DOC_TOKENS       512
#define QUERY_TOKENS     32
#define ANSWER_TOKENS    64

struct run {
    uint64_t request; /* 0: free */
    uint32_t sent;
};

struct bench {
    struct sched *sched;
    struct run runs[WORKERS][SEQS];
    uint64_t sealed[WORKERS][SEQS * DOCS];
    size_t sealed_count[WORKERS];
    struct tokens *corpus[CORPUS];
    struct tokens *query;
    uint64_t submitted, ended, steps;
    uint64_t sched_us; /* spent in the scheduler */
};

static void
must(enum status st)
{
    if (st != ST_OK) {
        (void)fprintf(stderr, "bench_sched: %s\n", status_detail());
        exit(EXIT_FAILURE);
    }
}

static void
assign(struct bench *bench, const struct sched_action *action)
{
    struct run *run = bench->runs[action->worker];

    for (uint32_t i = 0; i < action->build_count; i++) {
        bench->sealed[action->worker][bench->sealed_count[action->worker]++] =
            action->session->builds[i].build;
    }
    while (run->request != 0) {
        run++;
    }
    *run = (struct run){.request = action->request};
}

static void
obey(struct bench *bench)
{
    size_t count;
    const struct sched_action *actions = sched_take_actions(bench->sched, &count);

    for (size_t i = 0; i < count; i++) {
        if (actions[i].kind == SCHED_SEND_ASSIGN) {
            assign(bench, &actions[i]);
        } else if (actions[i].kind == SCHED_REPLY_END) {
            bench->ended++;
        }
    }
}

static void
submit(struct bench *bench)
{
    struct sched_submit submit = {
        .id = ++bench->submitted,
        .arrival_us = clock_now_us(),
        .deadline_us = UINT64_MAX,
        .prompt =
            {
                .documents = mem_zalloc(DOCS, sizeof(struct prompt_document)),
                .document_count = DOCS,
                .query = tokens_acquire(bench->query),
                .sampling = {.max_tokens = ANSWER_TOKENS, .has_max_tokens = true},
            },
    };

    for (uint64_t i = 0; i < DOCS; i++) {
        /* The product of two uniform numbers: some documents are popular. */
        uint64_t draw = htab_mix(submit.id * DOCS + i);
        uint64_t doc = (draw % CORPUS) * ((draw >> 32) % CORPUS) / CORPUS;

        memcpy(submit.prompt.documents[i].key.bytes, &doc, sizeof(doc));
        submit.prompt.documents[i].kv_key = submit.prompt.documents[i].key;
        submit.prompt.documents[i].tokens = tokens_acquire(bench->corpus[doc]);
    }
    uint64_t start_us = clock_now_us();

    sched_submit(bench->sched, start_us, &submit);
    bench->sched_us += clock_now_us() - start_us;
    obey(bench);
}

static void
step(struct bench *bench, uint32_t worker)
{
    static const uint32_t token = 7;
    struct sched_result results[SEQS];
    uint64_t released[SEQS];
    struct sched_step step = {
        .sealed = bench->sealed[worker],
        .sealed_count = bench->sealed_count[worker],
        .results = results,
        .released = released,
    };

    bench->steps++;
    for (struct run *run = bench->runs[worker]; run < bench->runs[worker] + SEQS; run++) {
        if (run->request == 0) {
            continue;
        }
        run->sent++;
        results[step.result_count++] = (struct sched_result){
            .request = run->request,
            .ids = &token,
            .id_count = 1,
            .own_tokens = QUERY_TOKENS + run->sent - 1,
            .tokens_read = run->sent == 1 ? DOCS * DOC_TOKENS : 0,
            .finish = run->sent == ANSWER_TOKENS ? SCHED_FINISH_LENGTH : SCHED_FINISH_NONE,
        };
        if (run->sent == ANSWER_TOKENS) {
            released[step.released_count++] = run->request;
            run->request = 0;
        }
    }
    bench->sealed_count[worker] = 0;
    uint64_t start_us = clock_now_us();

    (void)sched_worker_step(bench->sched, start_us, worker, worker + 1, &step);
    bench->sched_us += clock_now_us() - start_us;
    obey(bench);
}

static void
set_up(struct bench *bench)
{
    static uint32_t ids[DOC_TOKENS];
    struct sched_config config = {
        .block_tokens = BLOCK_TOKENS,
        .reserve_tokens = ANSWER_TOKENS / 2,
        .waiting_max = SCHED_WAITING_MAX,
        .policy = &evict_lru,
        .pin_share_max = 0.5,
    };

    for (int i = 0; i < CORPUS; i++) {
        must(tokens_new(ids, DOC_TOKENS, &bench->corpus[i]));
    }
    must(tokens_new(ids, QUERY_TOKENS, &bench->query));
    must(sched_new(&config, &bench->sched));
    must(sched_set_pool(bench->sched, BLOCKS));
    for (uint32_t i = 0; i < WORKERS; i++) {
        sched_worker_ready(bench->sched, clock_now_us(), i, i + 1, SEQS);
        obey(bench);
    }
}

static void
tear_down(struct bench *bench)
{
    sched_destroy(&bench->sched);
    for (int i = 0; i < CORPUS; i++) {
        tokens_release(&bench->corpus[i]);
    }
    tokens_release(&bench->query);
}

int
main(int argc, char **argv)
{
    static struct bench bench;
    uint64_t requests = argc > 1 ? strtoull(argv[1], NULL, 10) : REQUESTS_DEFAULT;

    set_up(&bench);
    while (bench.ended < requests) {
        while (bench.submitted < requests && bench.submitted - bench.ended < WAITING) {
            submit(&bench);
        }
        for (uint32_t i = 0; i < WORKERS; i++) {
            step(&bench, i);
        }
    }
    printf("%" PRIu64 " requests, %" PRIu64 " steps: %.1f us a request (%.1f us a step)\n",
           requests, bench.steps, (double)bench.sched_us / (double)requests,
           (double)bench.sched_us / (double)bench.steps);
    printf("{\"bench\": \"sched\", \"requests\": %" PRIu64 ", \"us_per_request\": %.2f}\n",
           requests, (double)bench.sched_us / (double)requests);
    tear_down(&bench);
    return EXIT_SUCCESS;
}
