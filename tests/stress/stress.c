/* SPDX-License-Identifier: Apache-2.0 */
/* Many requests at once against a running kvasird, then each of them alone: the same bytes?
 *
 *   stress --runtime-dir DIR [--seed N] [--requests 128] [--rounds 1] [--seconds 60] ...
 *
 * A round asks `requests` questions at once, each from a thread and a handle of its own: shared and
 * private documents in any order, salts, priorities, sampling, stop strings.  Some are cancelled,
 * expire, or die with their process; some threads evict, warm or forget documents before they ask.
 * Then every question is asked again alone.  What came before must be the same tokens, text and log
 * probabilities, or the beginning of them if the request was ended early.  At the end the pool must
 * hold documents and nothing else.
 *
 * Equal means bytes: the CPU, or a deterministic device.  --near-tie GAP lets greedy answers go
 * apart where the two best tokens are nearer than GAP.  --may-lose-workers: somebody kills workers
 * meanwhile, and a request that lost two of them may fail.  The seed is printed; --seed replays. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "common/clock.h"
#include "common/conf.h"
#include "common/mem.h"
#include "tests/stress/accounts.h"
#include "tests/stress/ask_plan.h"

#define REQUESTS_MAX 1024

extern char **environ;

struct options {
    char *runtime_dir;
    uint64_t seed, requests, rounds, seconds;
    uint64_t vocab, documents, docs_max, doc_tokens, max_tokens;
    double near_tie;
    bool calm, may_lose_workers;
    uint64_t dies_round, dies_index; /* of the process that is one dying request */
};

static const struct conf_option option_table[] = {
    {"runtime-dir", CONF_STRING, NULL, 0, 0, "DIR", "where kvasird's sockets are",
     offsetof(struct options, runtime_dir)},
    {"seed", CONF_U64, "0", 0, 0, "N", "of everything; 0: the clock's",
     offsetof(struct options, seed)},
    {"requests", CONF_U64, "128", 1, REQUESTS_MAX, "N", "at once",
     offsetof(struct options, requests)},
    {"rounds", CONF_U64, "1", 0, 0, "N", "at most; 0: no limit", offsetof(struct options, rounds)},
    {"seconds", CONF_U64, "60", 1, 0, "N", "after which no round begins",
     offsetof(struct options, seconds)},
    {"vocab", CONF_U64, "512", 16, 1u << 20, "N", "ids are drawn below it",
     offsetof(struct options, vocab)},
    {"documents", CONF_U64, "24", 1, 1u << 20, "N", "that requests share",
     offsetof(struct options, documents)},
    {"docs", CONF_U64, "5", 0, PLAN_DOCS_MAX, "N", "a request at most",
     offsetof(struct options, docs_max)},
    {"doc-tokens", CONF_U64, "130", 1, 1u << 16, "N", "a document at most",
     offsetof(struct options, doc_tokens)},
    {"max-tokens", CONF_U64, "96", 1, PLAN_TOKENS_MAX, "N", "an answer at most",
     offsetof(struct options, max_tokens)},
    {"near-tie", CONF_F64, "0", 0, 0, "GAP", "all greedy, may go apart at such a gap; 0: exact",
     offsetof(struct options, near_tie)},
    {"calm", CONF_BOOL, "false", 0, 0, NULL, "nothing is cancelled or killed",
     offsetof(struct options, calm)},
    {"may-lose-workers", CONF_BOOL, "false", 0, 0, NULL, "a request that lost two may fail",
     offsetof(struct options, may_lose_workers)},
    {"dies-round", CONF_U64, "0", 0, 0, "N", "with dies-index: be this request, and die",
     offsetof(struct options, dies_round)},
    {"dies-index", CONF_U64, "0", 0, 0, "N", "its index, from 1",
     offsetof(struct options, dies_index)},
};

/* One request, with its thread. */
struct actor {
    struct run *run;
    uint32_t index;
    struct plan plan;
    struct outcome outcome;
    struct kvasir *client;
    struct actor *victim; /* whom it cancels, or NULL */
    bool has_cancelled;
    pthread_t thread;
};

struct run {
    struct options options;
    struct plan_config config;
    const char *program;
    uint32_t round;
    struct actor *actors; /* [options.requests] */
    struct outcome solo;
    uint64_t codes[KVASIR_UNAUTHENTICATED + 1];
    uint64_t tokens, tokens_solo, lost_twice, killed;
    uint32_t faults;
};

static void
report(struct run *run, const struct actor *actor, const char *what, uint32_t at)
{
    const struct outcome *o = &actor->outcome;

    run->faults++;
    printf("FAULT round=%u request=%u: %s (token %u)\n", run->round, actor->index, what, at);
    printf("  %s \"%s\" finish=%d tokens=%u/%u text=%zu/%zu preemptions=%u\n",
           kvasir_code_name(o->code), o->message, (int)o->finish, o->id_count, run->solo.id_count,
           o->text_length, run->solo.text_length, o->preemptions);
    plan_print(&actor->plan);
}

/* --- one request among many ------------------------------------------------------------------- */

static void
cancel_victim(struct actor *actor, uint32_t tokens)
{
    if (actor->victim != NULL && !actor->has_cancelled
        && tokens >= actor->victim->plan.fate_tokens) {
        actor->has_cancelled = true;
        kvasir_cancel(actor->victim->client);
    }
}

static bool
meet_fate(void *opaque, uint32_t tokens)
{
    struct actor *actor = opaque;

    cancel_victim(actor, tokens);
    if (tokens < actor->plan.fate_tokens) {
        return true;
    }
    switch (actor->plan.fate) {
    case PLAN_HANGS_UP: return false;
    case PLAN_CANCELS: kvasir_cancel(actor->client); return true;
    case PLAN_DIES: (void)raise(SIGKILL); return true;
    case PLAN_LIVES:
    case PLAN_IS_CANCELLED:
    case PLAN_EXPIRES: break;
    }
    return true;
}

static void
do_chore(struct actor *actor)
{
    const struct plan *plan = &actor->plan;
    uint32_t *ids = mem_zalloc(actor->run->config.doc_tokens, sizeof(*ids));
    struct kvasir_document document = {.token_ids = ids, .token_count = plan->docs[0].n_tokens};
    uint8_t key[KVASIR_KEY_BYTES];

    if (plan->chore == PLAN_EVICTS) {
        (void)accounts_evict(actor->run->options.runtime_dir, plan->evict_blocks);
    } else if (ids != NULL && plan->chore != PLAN_ASKS && plan->doc_count > 0) {
        /* What these answer depends on the others; that nothing breaks is the test. */
        plan_fill_ids(&actor->run->config, plan->docs[0].seed, plan->docs[0].n_tokens, ids);
        if (kvasir_register(actor->client, &document, false, plan->salt,
                            plan->salt == NULL ? 0 : strlen(plan->salt), key, NULL)
            == KVASIR_OK) {
            if (plan->chore == PLAN_WARMS) {
                (void)kvasir_warm(actor->client, key);
            } else {
                if (kvasir_pin(actor->client, key) == KVASIR_OK) {
                    (void)kvasir_unpin(actor->client, key);
                }
                (void)kvasir_forget(actor->client, key);
            }
        }
    }
    mem_free(ids);
}

/* A process of its own, as only the end of a process is the end of a client without a word. */
static void
spawn_and_see_it_die(struct actor *actor)
{
    const struct options *o = &actor->run->options;
    char text[10][32];
    const uint64_t values[] = {actor->run->config.seed,
                               actor->run->round,
                               actor->index + 1ull,
                               o->vocab,
                               o->documents,
                               o->docs_max,
                               o->doc_tokens,
                               o->max_tokens,
                               o->near_tie > 0};
    const char *const names[] = {"--seed",       "--dies-round", "--dies-index",
                                 "--vocab",      "--documents",  "--docs",
                                 "--doc-tokens", "--max-tokens", "--near-tie"};
    char *argv[32] = {(char *)(uintptr_t)actor->run->program};
    size_t count = 1;
    pid_t pid;
    int status;

    argv[count++] = (char *)(uintptr_t) "--runtime-dir";
    argv[count++] = o->runtime_dir;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        (void)snprintf(text[i], sizeof(text[i]), "%" PRIu64, values[i]);
        argv[count++] = (char *)(uintptr_t)names[i];
        argv[count++] = text[i];
    }
    if (posix_spawn(&pid, actor->run->program, NULL, NULL, argv, environ) == 0) {
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
}

static void *
act(void *opaque)
{
    struct actor *actor = opaque;

    if (actor->plan.fate == PLAN_DIES) {
        spawn_and_see_it_die(actor);
    } else {
        do_chore(actor);
        ask_plan(actor->client, &actor->run->config, &actor->plan, false, meet_fate, actor,
                 &actor->outcome);
    }
    cancel_victim(actor, UINT32_MAX);
    return NULL;
}

/* Every second dying request is in the queue or in the middle of anything when it dies. */
static int
die(struct run *run)
{
    struct actor *actor = mem_zalloc(1, sizeof(*actor));
    struct kvasir_options options = {.runtime_dir = run->options.runtime_dir};

    if (actor == NULL || kvasir_open(&options, &actor->client) != KVASIR_OK) {
        return EXIT_FAILURE;
    }
    actor->run = run;
    plan_make(&run->config, (uint32_t)run->options.dies_round,
              (uint32_t)run->options.dies_index - 1, &actor->plan);
    if (actor->plan.fate_tokens % 2 == 0) {
        struct itimerval timer = {.it_value.tv_usec =
                                      1000 * (1 + (long)actor->plan.fate_tokens % PLAN_ALARM_MS)};

        (void)setitimer(ITIMER_REAL, &timer, NULL); /* SIGALRM ends a process */
    }
    ask_plan(actor->client, &run->config, &actor->plan, false, meet_fate, actor, &actor->outcome);
    kvasir_close(&actor->client);
    mem_free(actor);
    return EXIT_SUCCESS;
}

/* --- a round ---------------------------------------------------------------------------------- */

static bool
is_expected(struct run *run, const struct actor *actor)
{
    const struct outcome *o = &actor->outcome;

    if (o->code == KVASIR_INTERNAL && run->options.may_lose_workers
        && strstr(o->message, "workers died while they ran it alone") != NULL) {
        run->lost_twice++;
        return true;
    }
    switch (actor->plan.fate) {
    case PLAN_CANCELS:
    case PLAN_HANGS_UP:
    case PLAN_IS_CANCELLED: return o->code == KVASIR_OK || o->code == KVASIR_CANCELLED;
    case PLAN_EXPIRES: return o->code == KVASIR_OK || o->code == KVASIR_DEADLINE_EXCEEDED;
    case PLAN_LIVES:
    case PLAN_DIES: break;
    }
    return o->code == KVASIR_OK;
}

static void
check_against_solo(struct run *run, struct actor *actor)
{
    const struct outcome *o = &actor->outcome;
    const char *what = o->fault;
    uint32_t at = o->id_count;

    ask_plan(actor->client, &run->config, &actor->plan, true, NULL, NULL, &run->solo);
    run->tokens_solo += run->solo.id_count;
    if (run->solo.code != KVASIR_OK || run->solo.fault != NULL) {
        printf("FAULT alone: %s %s\n", run->solo.message,
               run->solo.fault == NULL ? "" : run->solo.fault);
        report(run, actor, "alone it has no answer", 0);
        return;
    }
    if (what == NULL && !is_expected(run, actor)) {
        what = "an end that nobody asked for";
    }
    if (what == NULL) {
        what = outcome_compare(o, &run->solo, run->options.near_tie, &at);
    }
    if (what != NULL) {
        report(run, actor, what, at);
    }
}

static void
check_round(struct run *run)
{
    struct accounts before, after;
    uint64_t wants = 0;

    if (!accounts_settle(run->options.runtime_dir, &before)) {
        run->faults++;
        return;
    }
    for (uint32_t i = 0; i < run->options.requests; i++) {
        struct actor *actor = &run->actors[i];

        if (actor->plan.fate == PLAN_DIES) {
            run->killed++;
            continue;
        }
        run->codes[actor->outcome.code]++;
        run->tokens += actor->outcome.id_count;
        check_against_solo(run, actor);
        wants += actor->plan.doc_count;
    }
    if (!accounts_settle(run->options.runtime_dir, &after)) {
        run->faults++;
    } else if (!run->options.may_lose_workers && after.wants - before.wants != wants) {
        printf("FAULT: %" PRIu64 " hits and misses for %" PRIu64 " documents asked for\n",
               after.wants - before.wants, wants);
        run->faults++;
    }
}

static bool
run_round(struct run *run)
{
    struct kvasir_options options = {.runtime_dir = run->options.runtime_dir};
    uint32_t count = (uint32_t)run->options.requests;

    for (uint32_t i = 0; i < count; i++) {
        struct actor *actor = &run->actors[i];

        *actor = (struct actor){.run = run, .index = i};
        plan_make(&run->config, run->round, i, &actor->plan);
        if (kvasir_open(&options, &actor->client) != KVASIR_OK) {
            printf("FAIL: %s\n", kvasir_open_error());
            return false;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        struct actor *next = &run->actors[(i + 1) % count];

        run->actors[i].victim = next->plan.fate == PLAN_IS_CANCELLED ? next : NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (pthread_create(&run->actors[i].thread, NULL, act, &run->actors[i]) != 0) {
            printf("FAIL: no thread %u\n", i);
            exit(EXIT_FAILURE);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        (void)pthread_join(run->actors[i].thread, NULL);
    }
    check_round(run); /* on the same handles: what a cancel left behind must not matter */
    for (uint32_t i = 0; i < count; i++) {
        kvasir_close(&run->actors[i].client);
    }
    return true;
}

static int
run_all(struct run *run)
{
    uint64_t begin_us = clock_now_us();
    uint64_t limit_us = begin_us + run->options.seconds * 1000000;
    struct accounts before, after;
    bool is_good = accounts_settle(run->options.runtime_dir, &before);

    printf("stress: seed=%" PRIu64 "\n", run->config.seed);
    while (is_good && (run->options.rounds == 0 || run->round < run->options.rounds)
           && (run->round == 0 || clock_now_us() < limit_us)) {
        is_good = run_round(run);
        run->round++;
    }
    after = before;
    is_good = is_good && accounts_settle(run->options.runtime_dir, &after) && run->faults == 0;
    printf("stress: seed=%" PRIu64 " rounds=%u requests=%" PRIu64 " ok=%" PRIu64
           " cancelled=%" PRIu64 " expired=%" PRIu64 " killed=%" PRIu64 " lost_twice=%" PRIu64
           " tokens=%" PRIu64 "+%" PRIu64 " preempted=%" PRIu64 " requeued=%" PRIu64
           " docs_evicted=%" PRIu64 " handed_over=%" PRIu64 " builds_dropped=%" PRIu64
           " seconds=%.1f faults=%u\n",
           run->config.seed, run->round, run->round * run->options.requests, run->codes[KVASIR_OK],
           run->codes[KVASIR_CANCELLED], run->codes[KVASIR_DEADLINE_EXCEEDED], run->killed,
           run->lost_twice, run->tokens, run->tokens_solo, after.preempted - before.preempted,
           after.requeued - before.requeued, after.docs_evicted - before.docs_evicted,
           after.handed_over - before.handed_over, after.builds_dropped - before.builds_dropped,
           (double)(clock_now_us() - begin_us) / 1e6, run->faults);
    return is_good ? EXIT_SUCCESS : EXIT_FAILURE;
}

int
main(int argc, char **argv)
{
    struct run *run = mem_zalloc(1, sizeof(*run));
    struct options *o = run == NULL ? NULL : &run->options;
    struct conf conf = {option_table, sizeof(option_table) / sizeof(option_table[0]), o};
    int first, status;

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (run == NULL || conf_defaults(conf) != ST_OK) {
        return EXIT_FAILURE;
    }
    if (conf_parse_args(conf, argc, argv, &first) != ST_OK || first != argc) {
        printf("%s\n", status_detail());
        conf_print_help(conf, stdout);
        return EXIT_FAILURE;
    }
    run->program = argv[0];
    run->config = (struct plan_config){
        .seed = o->seed == 0 ? clock_now_us() : o->seed,
        .vocab = (uint32_t)o->vocab,
        .documents = (uint32_t)o->documents,
        .docs_max = (uint32_t)o->docs_max,
        .doc_tokens = (uint32_t)o->doc_tokens,
        .max_tokens = (uint32_t)o->max_tokens,
        .is_greedy = o->near_tie > 0,
        .is_calm = o->calm,
    };
    run->actors = mem_zalloc(o->requests, sizeof(run->actors[0]));
    status = o->dies_index > 0 ? die(run) : run->actors == NULL ? EXIT_FAILURE : run_all(run);
    mem_free(run->actors);
    conf_deinit(conf);
    mem_free(run);
    return status;
}
