/* SPDX-License-Identifier: Apache-2.0 */
/* kvasir-worker: one model instance on one device, working for the kvasird of this host. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/conf.h"
#include "common/failpoint.h"
#include "common/log.h"
#include "kernels/ops.h"
#include "worker/attach.h"
#include "worker/engine.h"
#include "worker/link.h"
#include "worker/llama.h"
#include "worker/mover.h"

#ifdef HAVE_JEMALLOC
/* Read by jemalloc at its start.  Its own thread returns unused pages, so that the step never does.
 */
extern const char *malloc_conf;
const char *malloc_conf = "background_thread:true,abort_conf:true,narenas:2";
#endif

#define SEQS_MAX_LIMIT    1024
#define BUSY_POLL_MAX     60000000u  /* us */
#define WAIT_MAX          3600000u   /* ms */
#define STEP_SEGMENTS_MAX (1u << 18) /* 4 MiB of descriptors at most */

struct options {
    char *runtime_dir;
    char *device;
    char *log_level;
    uint64_t threads;
    uint64_t seqs_max;
    uint64_t mixed_tokens;
    uint64_t decodes_max;
    uint64_t busy_poll; /* us */
    uint64_t wait;      /* ms */
    bool poison;
};

static const struct conf_option option_table[] = {
    {"runtime-dir", CONF_STRING, NULL, 0, 0, "DIR",
     "where kvasird's sockets are; default $KVASIR_RUNTIME_DIR, /run/kvasir or "
     "$XDG_RUNTIME_DIR/kvasir",
     offsetof(struct options, runtime_dir)},
    {"device", CONF_STRING, "cpu", 0, 0, "DEVICE",
     "what to compute on: cpu, or in a build with CUDA cuda, cuda:N or just N",
     offsetof(struct options, device)},
    {"threads", CONF_U64, "1", 1, OPS_THREADS_MAX, "N", "threads that share a step on the CPU",
     offsetof(struct options, threads)},
    {"seqs-max", CONF_U64, "16", 1, SEQS_MAX_LIMIT, "N",
     "requests that run at once; more wait in kvasird", offsetof(struct options, seqs_max)},
    {"mixed-tokens", CONF_U64, "512", 0, LLAMA_ROWS_MAX, "N",
     "tokens of documents and prompts in a step that also decodes; 0: as many as fit",
     offsetof(struct options, mixed_tokens)},
    {"decodes-max", CONF_U64, "0", 0, SEQS_MAX_LIMIT, "N",
     "answers that get a token in one step, others take turns; 0: what the device does well",
     offsetof(struct options, decodes_max)},
    {"busy-poll", CONF_U64, "0", 0, BUSY_POLL_MAX, "US",
     "microseconds to look out for more work without sleeping; keeps two cores busy",
     offsetof(struct options, busy_poll)},
    {"wait", CONF_DURATION, "30s", 0, WAIT_MAX, "TIME",
     "how long to look for a kvasird that is not there yet; 0: not at all",
     offsetof(struct options, wait)},
    {"poison", CONF_BOOL, "false", 0, 0, NULL,
     "fill blocks with NaN before their first write, not with zeros: for tests",
     offsetof(struct options, poison)},
    {"log-level", CONF_STRING, "info", 0, 0, "LEVEL", "error, warn, info, debug or trace",
     offsetof(struct options, log_level)},
};

static enum status
check_options(const struct options *options)
{
    TRY(log_level_check(options->log_level));
    return failpoint_init();
}

static int stop_event = -1; /* an eventfd; set before the handler is installed */

static void
note_stop(int signo)
{
    int saved = errno;

    (void)signo;
    (void)!write(stop_event, &(uint64_t){1}, sizeof(uint64_t));
    errno = saved;
}

/* SIGTERM and SIGINT become readable, so that they are taken between other things.  A handler and
 * not a signalfd: a library with threads of its own before main would take them unblocked. */
static enum status
open_stop_event(void)
{
    struct sigaction action = {.sa_handler = note_stop, .sa_flags = SA_RESTART};

    stop_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (stop_event < 0) {
        return ERR(ST_SYSTEM, "eventfd: %s", strerror(errno));
    }
    if (sigaction(SIGTERM, &action, NULL) != 0 || sigaction(SIGINT, &action, NULL) != 0) {
        return ERR(ST_SYSTEM, "sigaction: %s", strerror(errno));
    }
    return ST_OK;
}

/* On a machine that others use as well, memory may also have grown meanwhile. */
static uint64_t
taken(uint64_t free_before, uint64_t free_after)
{
    return free_before > free_after ? free_before - free_after : 0;
}

/* Measured, not computed: what was free before and after each part was made. */
static void
log_memory(const struct attachment *a)
{
    const struct attach_memory *m = &a->memory;

    log_info("memory_taken",
             "device=%s free_at_start=%" PRIu64 " weights=%" PRIu64 " workspace=%" PRIu64
             " kv=%" PRIu64 " free=%" PRIu64 " blocks=%" PRIu32 " kv_tokens=%" PRIu64,
             a->device->name, m->free_at_start, taken(m->free_at_start, m->free_after_weights),
             taken(m->free_after_weights, m->free_after_workspace),
             taken(m->free_after_workspace, m->free_at_end), m->free_at_end, a->block_count,
             (uint64_t)a->block_count * a->layout.P);
}

static void
log_attached(const struct attachment *a, uint64_t start_us)
{
    log_info("worker_attached",
             "worker=%" PRIu32 " device=%s blocks=%" PRIu32 " kv_bytes=%zu kv_tokens=%" PRIu64
             " kv=%s weight_bytes=%zu weights=%s step_tokens=%" PRIu32
             " deterministic=%d elapsed_ms=%" PRIu64,
             a->worker, a->device->name, a->block_count, arena_bytes(a->kv),
             (uint64_t)a->block_count * a->layout.P, a->has_made_kv ? "made" : "mapped",
             a->plan.bytes, a->has_made_weights ? "loaded" : "mapped", a->step_tokens,
             a->is_deterministic, (clock_now_us() - start_us) / 1000);
    log_memory(a);
}

static void
log_failure(enum status st)
{
    log_error("worker_failed", "status=%s detail=\"%s\"", status_name(st), status_detail());
}

/* A device that failed fails every later call as well, and its driver may hang in some: nothing is
 * undone.  The kernel takes back what this process holds; the arenas live on with kvasird's fds,
 * and the end of the process is what kvasird waits for to run its requests elsewhere. */
static _Noreturn void
leave_at_once(void)
{
    log_failure(ST_DEVICE);
    _exit(EXIT_FAILURE);
}

/* What runs the model; made while attaching, between the weights and the KV. */
struct machine {
    const struct options *options;
    struct ops *ops;
    struct engine *engine;
    struct mover *mover; /* NULL: no host tier */
};

static enum status
settle(const struct machine *machine, struct weights_tuning *tuning)
{
    const struct ops *ops = machine->ops;
    size_t bytes = 0;

    TRY(engine_settle(machine->engine));
    if (ops->tuning != NULL) {
        const void *found = ops->tuning(ops, &bytes);

        assert(bytes <= sizeof(tuning->bytes));
        memcpy(tuning->bytes, found, bytes);
    }
    tuning->n_bytes = (uint32_t)bytes;
    return ST_OK;
}

static enum status
make_machine(void *arg, struct attachment *a)
{
    struct machine *machine = arg;
    uint32_t seqs_max = (uint32_t)machine->options->seqs_max;

    TRY(a->device->kind->ops_new(
        (struct ops_config){.threads = (uint32_t)machine->options->threads,
                            .is_deterministic = a->is_deterministic,
                            .tuning = a->tuning.bytes,
                            .tuning_bytes = a->tuning.n_bytes,
                            .H = a->model.H,
                            .Hkv = a->model.Hkv,
                            .D = a->model.D,
                            .rows_max = a->step_tokens,
                            .seqs_max = a->step_tokens, /* each has at least a row */
                            .segs_max = STEP_SEGMENTS_MAX},
        &machine->ops));
    TRY(engine_new(&(struct engine_config){.model = &a->model,
                                           .tokenizer = a->tokenizer,
                                           .plan = &a->plan,
                                           .weights = arena_base(a->weights),
                                           .layout = a->layout,
                                           .ops = machine->ops,
                                           .step_tokens = a->step_tokens,
                                           .mixed_tokens = (uint32_t)machine->options->mixed_tokens,
                                           .decodes_max = (uint32_t)machine->options->decodes_max,
                                           .seqs_max = seqs_max,
                                           .is_poisoning = machine->options->poison},
                   &machine->engine));
    return settle(machine, &a->tuning);
}

static void
break_up(struct machine *machine)
{
    mover_destroy(&machine->mover);
    engine_destroy(&machine->engine);
    ops_destroy(&machine->ops);
}

static enum status
attach(const struct options *options, const struct device *device, struct machine *machine,
       struct attachment *attachment)
{
    return attach_open(&(struct attach_options){.runtime_dir = options->runtime_dir,
                                                .device = device,
                                                .seqs_max = (uint32_t)options->seqs_max,
                                                .stop_fd = stop_event,
                                                .patience_us = options->wait * 1000,
                                                .make_workspace = make_machine,
                                                .arg = machine},
                       attachment);
}

/* Its thread begins at once, and makes the tier's memory quick to reach while the worker serves. */
static enum status
start_mover(struct machine *machine, const struct attachment *a)
{
    size_t block_bytes = kv_layout_block_bytes(&a->layout);
    uint64_t places = a->host == NULL ? 0 : arena_bytes(a->host) / block_bytes;

    if (places == 0) {
        return ST_OK;
    }
    TRY(mover_new(&(struct mover_config){.copier = a->device->kind->copier,
                                         .bind = a->device->kind->choose,
                                         .ordinal = a->device->ordinal,
                                         .copy = {.kv = arena_base(a->kv),
                                                  .block_bytes = block_bytes,
                                                  .block_count = a->block_count,
                                                  .host = arena_base(a->host),
                                                  .place_count = (uint32_t)places}},
                  &machine->mover));
    engine_use_mover(machine->engine, machine->mover);
    return ST_OK;
}

static enum status
work(struct machine *machine, struct attachment *a)
{
    engine_place_kv(machine->engine, arena_base(a->kv), a->block_count);
    TRY(start_mover(machine, a));
    enum status st = link_serve(a, machine->engine, (uint32_t)machine->options->seqs_max,
                                machine->options->busy_poll, stop_event);

    if (st == ST_DEVICE) {
        leave_at_once();
    }
    return st;
}

static bool
was_told_to_stop(void)
{
    uint64_t count;

    return read(stop_event, &count, sizeof(count)) == sizeof(count);
}

static int
run(const struct options *options)
{
    struct attachment attachment = {0};
    struct device device = {0};
    struct machine machine = {.options = options};
    uint64_t start_us = clock_now_us();

    log_init("kvasir-worker", (enum log_level)log_level_parse(options->log_level));
    enum status st = open_stop_event();

    if (st == ST_OK) {
        st = device_open(options->device, &device);
    }
    if (st == ST_OK) {
        st = attach(options, &device, &machine, &attachment);
        if (st != ST_OK && was_told_to_stop()) {
            log_info("worker_leaving", "reason=signal while=attaching");
            break_up(&machine);
            return EXIT_SUCCESS;
        }
    }
    if (st == ST_OK) {
        log_attached(&attachment, start_us);
        st = work(&machine, &attachment);
    }
    if (st != ST_OK) {
        log_failure(st);
    }
    break_up(&machine);
    attach_close(&attachment);
    return st == ST_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

static const char usage[] = "Usage: kvasir-worker [OPTION]...\n"
                            "Runs a model for the kvasird of this host.\n";

int
main(int argc, char **argv)
{
    struct options options = {0};
    struct conf conf = {option_table, sizeof(option_table) / sizeof(option_table[0]), &options};
    int code = CONF_EXIT_USAGE;
    enum status st = conf_read(conf, argc, argv);

    if (st == ST_OK && conf_print_only(conf, argc, argv, "kvasir-worker", usage)) {
        code = EXIT_SUCCESS;
    } else if (st == ST_OK && (st = check_options(&options)) == ST_OK) {
        code = run(&options);
    }
    if (st != ST_OK) {
        (void)fprintf(stderr, "kvasir-worker: %s\n", status_detail());
    }
    conf_deinit(conf);
    return code;
}
