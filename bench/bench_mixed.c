/* SPDX-License-Identifier: Apache-2.0 */
/* What a large cold request does to the others: hot questions and running answers, first alone,
 * then while a request of many fresh documents is encoded.  Against a running kvasird.
 *
 * Streams generate over hot documents and note the time between their tokens; one client asks short
 * hot questions one after the other and notes the time to the first token.  What falls between the
 * arrival of the cold request and its first token is counted apart. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/kvasir.h"
#include "common/clock.h"
#include "common/conf.h"
#include "common/mem.h"

#define SAMPLES_MAX (1u << 16)
#define STREAMS_MAX 32
#define DOCS_MAX    64

struct options {
    char *runtime_dir;
    uint64_t docs, doc_tokens, cold_docs, query_tokens, vocab, streams, idle_ms, rounds;
};

static struct options options;

static const struct conf_option option_table[] = {
    {"runtime-dir", CONF_STRING, NULL, 0, 0, "DIR", "where kvasird's sockets are",
     offsetof(struct options, runtime_dir)},
    {"docs", CONF_U64, "5", 1, DOCS_MAX, "N", "hot documents a request",
     offsetof(struct options, docs)},
    {"doc-tokens", CONF_U64, "4096", 1, 1u << 20, "N", "a document",
     offsetof(struct options, doc_tokens)},
    {"cold-docs", CONF_U64, "15", 1, DOCS_MAX, "N", "documents of the cold request",
     offsetof(struct options, cold_docs)},
    {"query-tokens", CONF_U64, "64", 1, 1u << 16, "N", "a query",
     offsetof(struct options, query_tokens)},
    {"vocab", CONF_U64, "250", 16, 1u << 20, "N", "ids are drawn below it",
     offsetof(struct options, vocab)},
    {"streams", CONF_U64, "2", 1, STREAMS_MAX, "N", "running answers",
     offsetof(struct options, streams)},
    {"idle-ms", CONF_U64, "1500", 1, 600000, "MS", "before each cold request",
     offsetof(struct options, idle_ms)},
    {"rounds", CONF_U64, "3", 1, 1000, "N", "cold requests", offsetof(struct options, rounds)},
};

/* Of one kind of measurement, in both phases. */
struct samples {
    pthread_mutex_t lock;
    uint32_t us[2][SAMPLES_MAX];
    uint32_t count[2];
};

static struct samples ttft = {.lock = PTHREAD_MUTEX_INITIALIZER};
static struct samples between = {.lock = PTHREAD_MUTEX_INITIALIZER};
static atomic_bool is_cold, is_over;

static void
add_sample(struct samples *samples, uint64_t us)
{
    int phase = atomic_load(&is_cold);

    (void)pthread_mutex_lock(&samples->lock);
    if (samples->count[phase] < SAMPLES_MAX) {
        samples->us[phase][samples->count[phase]++] = (uint32_t)us;
    }
    (void)pthread_mutex_unlock(&samples->lock);
}

static void
fill(uint32_t *ids, uint64_t count, uint64_t seed)
{
    uint64_t x = seed * 2654435761u + 12345;

    for (uint64_t i = 0; i < count; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        ids[i] = 8 + (uint32_t)((x >> 33) % (options.vocab - 8));
    }
}

struct reader {
    struct samples *samples; /* NULL: nobody counts */
    bool is_first_only;
    uint64_t last_us;
};

static bool
note_chunk(void *opaque, const struct kvasir_chunk *chunk)
{
    struct reader *reader = opaque;
    uint64_t now_us = clock_now_us();

    if (chunk->token_count == 0) {
        return true;
    }
    if (reader->samples != NULL && reader->last_us != 0) {
        add_sample(reader->samples, now_us - reader->last_us);
    }
    reader->last_us = reader->is_first_only ? 0 : now_us;
    return !(atomic_load(&is_over) && !reader->is_first_only);
}

/* Asks over documents first, first + 1, ...; a stream that hangs up at the end is no failure. */
static void
ask(struct kvasir *client, uint64_t first, uint64_t docs, uint64_t query, uint32_t max_tokens,
    struct reader *reader)
{
    struct kvasir_document documents[DOCS_MAX];
    uint32_t *ids = mem_zalloc(docs * options.doc_tokens + options.query_tokens, sizeof(*ids));
    uint32_t *query_ids = ids + docs * options.doc_tokens;
    struct kvasir_request request = {.documents = documents,
                                     .document_count = docs,
                                     .query_ids = query_ids,
                                     .query_id_count = options.query_tokens,
                                     .sampling = {.max_tokens = max_tokens},
                                     .ignore_end = true,
                                     .on_chunk = note_chunk,
                                     .opaque = reader};

    for (uint64_t i = 0; i < docs; i++) {
        fill(ids + i * options.doc_tokens, options.doc_tokens, first + i);
        documents[i] = (struct kvasir_document){.token_ids = ids + i * options.doc_tokens,
                                                .token_count = options.doc_tokens};
    }
    fill(query_ids, options.query_tokens, query);
    if (reader->is_first_only) {
        reader->last_us = clock_now_us();
    }
    if (kvasir_generate(client, &request, NULL) != KVASIR_OK && !atomic_load(&is_over)) {
        printf("FAIL: %s\n", kvasir_error(client));
        exit(EXIT_FAILURE);
    }
    mem_free(ids);
}

static struct kvasir *
open_client(void)
{
    struct kvasir *client;

    if (kvasir_open(&(struct kvasir_options){.runtime_dir = options.runtime_dir}, &client)
        != KVASIR_OK) {
        printf("FAIL: %s\n", kvasir_open_error());
        exit(EXIT_FAILURE);
    }
    return client;
}

static void *
stream(void *arg)
{
    struct kvasir *client = open_client();
    uint64_t number = (uint64_t)(uintptr_t)arg;

    for (uint64_t i = 0; !atomic_load(&is_over); i++) {
        struct reader reader = {.samples = &between};

        ask(client, 0, options.docs, 1000 + number * 1000 + i, 400, &reader);
    }
    kvasir_close(&client);
    return NULL;
}

static void *
question(void *arg)
{
    struct kvasir *client = open_client();

    (void)arg;
    for (uint64_t i = 0; !atomic_load(&is_over); i++) {
        struct reader reader = {.samples = &ttft, .is_first_only = true};

        ask(client, 0, options.docs, 500000 + i, 1, &reader);
    }
    kvasir_close(&client);
    return NULL;
}

static int
ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

static void
report(const char *what, struct samples *samples)
{
    double at[2][2];

    for (int phase = 0; phase < 2; phase++) {
        uint32_t n = samples->count[phase];

        qsort(samples->us[phase], n, sizeof(uint32_t), ascending);
        at[phase][0] = n == 0 ? 0 : samples->us[phase][n / 2] / 1e3;
        at[phase][1] = n == 0 ? 0 : samples->us[phase][(uint64_t)n * 99 / 100] / 1e3;
    }
    printf("%-22s alone p50 %7.2f p99 %7.2f ms (%u); beside a cold request p50 %7.2f p99 %7.2f ms "
           "(%u): p99 is %.2f times\n",
           what, at[0][0], at[0][1], samples->count[0], at[1][0], at[1][1], samples->count[1],
           at[0][1] > 0 ? at[1][1] / at[0][1] : 0);
}

static void
wait_ms(int ms)
{
    while (poll(NULL, 0, ms) < 0 && errno == EINTR) {
    }
}

static void
measure(void)
{
    pthread_t threads[STREAMS_MAX + 1];
    struct kvasir *client = open_client();
    struct reader nobody = {0};

    ask(client, 0, options.docs, 1, 1, &nobody); /* makes them hot */
    for (uint64_t i = 0; i <= options.streams; i++) {
        if (pthread_create(&threads[i], NULL, i < options.streams ? stream : question,
                           (void *)(uintptr_t)i)
            != 0) {
            exit(EXIT_FAILURE);
        }
    }
    wait_ms(500); /* until all run; nothing depends on it but the first samples */
    ttft.count[0] = between.count[0] = 0;
    for (uint64_t round = 0; round < options.rounds; round++) {
        wait_ms((int)options.idle_ms);
        uint64_t start_us = clock_now_us();

        atomic_store(&is_cold, true);
        nobody = (struct reader){.is_first_only = true};
        ask(client, 100000 + round * DOCS_MAX, options.cold_docs, 7, 1, &nobody);
        atomic_store(&is_cold, false);
        printf("cold request of %" PRIu64 " tokens: %.0f ms\n",
               options.cold_docs * options.doc_tokens, (double)(clock_now_us() - start_us) / 1e3);
    }
    atomic_store(&is_over, true);
    for (uint64_t i = 0; i <= options.streams; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    kvasir_close(&client);
    report("first token, hot", &ttft);
    report("between tokens", &between);
}

int
main(int argc, char **argv)
{
    struct conf conf = {option_table, sizeof(option_table) / sizeof(option_table[0]), &options};
    int operand;

    if (conf_defaults(conf) != ST_OK || conf_parse_args(conf, argc, argv, &operand) != ST_OK) {
        (void)fprintf(stderr, "bench_mixed: %s\n", status_detail());
        return 2;
    }
    if (options.runtime_dir == NULL) {
        printf("SKIP: needs a running kvasird; see --runtime-dir\n");
        return 77;
    }
    measure();
    conf_deinit(conf);
    return EXIT_SUCCESS;
}
