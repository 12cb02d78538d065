/* SPDX-License-Identifier: Apache-2.0 */
/* kvasir-bench - one workload to one or several servers, and what they took for it; see
 * kvasir-bench.1. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <json-c/json.h>

#include "bench/load.h"
#include "bench/tally.h"
#include "client/docs.h"
#include "common/conf.h"
#include "common/mem.h"

#define TARGETS_MAX 16

struct options {
    uint64_t requests, seed, pool, docs, vocab, concurrency, rounds, timeout_ms;
    double rate, burstiness, alpha, time_scale;
    char *document_tokens, *query_tokens, *output_tokens, *sampler;
    char *texts, *question, *trace, *write_requests;
    char *salt, *percentiles, *goodput, *result_dir, *note;
    bool reset, detailed, quiet;
};

#define AT(field) offsetof(struct options, field)

static const struct conf_option option_table[] = {
    {"requests", CONF_U64, "120", 1, WORKLOAD_REQUESTS_MAX, "N", "requests in all", AT(requests)},
    {"rate", CONF_F64, "0", 0, 1000000, "R", "arrivals a second; 0: all at once (a closed loop)",
     AT(rate)},
    {"burstiness", CONF_F64, "1", 0, 1000, "K",
     "shape of the gamma distribution of gaps: 1 is Poisson, below 1 burstier", AT(burstiness)},
    {"concurrency", CONF_U64, "64", 1, LOAD_THREADS_MAX, "N", "requests open at once, at most",
     AT(concurrency)},
    {"seed", CONF_U64, "1", 0, 0, "N", "of everything that is drawn", AT(seed)},
    {"pool", CONF_U64, "100", 1, WORKLOAD_DOCUMENTS_MAX, "N", "documents to cite from", AT(pool)},
    {"docs", CONF_U64, "5", 0, WORKLOAD_CITED_MAX, "N", "documents a request", AT(docs)},
    {"alpha", CONF_F64, "0", 0, 10, "A", "of the truncated Zipf distribution over the pool",
     AT(alpha)},
    {"sampler", CONF_STRING, "distinct", 0, 0, "distinct|replacement|paper",
     "whether a request may cite a document twice; \"paper\": what its generator really does",
     AT(sampler)},
    {"document-tokens", CONF_STRING, "2048", 0, 0, "LENGTH",
     "N, LOW-HIGH or lognormal:MEDIAN,SIGMA,MAX", AT(document_tokens)},
    {"query-tokens", CONF_STRING, "32", 0, 0, "LENGTH", "likewise", AT(query_tokens)},
    {"output-tokens", CONF_STRING, "16", 0, 0, "LENGTH", "likewise", AT(output_tokens)},
    {"vocab", CONF_U64, "32000", WORKLOAD_FIRST_ID + 1, 10000000, "N",
     "token ids are drawn below it", AT(vocab)},
    {"texts", CONF_STRING, NULL, 0, 0, "PATH",
     "documents of text instead: a folder of .txt and .md, or a .jsonl", AT(texts)},
    {"question", CONF_STRING, "What do these documents have in common?", 0, 0, "TEXT",
     "asked about the texts", AT(question)},
    {"trace", CONF_STRING, NULL, 0, 0, "FILE",
     "requests to read instead: Mooncake's form, or ours (see the manual)", AT(trace)},
    {"time-scale", CONF_F64, "1", 0, 1000000, "X", "a trace's times are divided by it",
     AT(time_scale)},
    {"write-requests", CONF_STRING, NULL, 0, 0, "FILE",
     "write the requests as a trace and end; \"-\" is stdout", AT(write_requests)},
    {"rounds", CONF_U64, "1", 1, 1000, "N", "pieces of the workload; the targets take turns",
     AT(rounds)},
    {"reset", CONF_BOOL, "false", 0, 0, NULL, "evict all documents before each round", AT(reset)},
    {"salt", CONF_STRING, NULL, 0, 0, "TEXT", "kvasir: meet no documents of other runs", AT(salt)},
    {"timeout", CONF_DURATION, "10min", 1, 0, "TIME", "of a request", AT(timeout_ms)},
    {"percentiles", CONF_STRING, "50,90,99", 0, 0, "LIST", "shown of each metric", AT(percentiles)},
    {"goodput", CONF_STRING, NULL, 0, 0, "LIST", "ttft:MS,tpot:MS,e2el:MS: count those below",
     AT(goodput)},
    {"result-dir", CONF_STRING, NULL, 0, 0, "DIR", "write DIR/TARGET.json", AT(result_dir)},
    {"detailed", CONF_BOOL, "false", 0, 0, NULL, "with every request in it", AT(detailed)},
    {"note", CONF_STRING, NULL, 0, 0, "TEXT", "kept in the JSON: device, model, commit", AT(note)},
    {"quiet", CONF_BOOL, "false", 0, 0, NULL, "no progress bar", AT(quiet)},
};

struct bench {
    struct options options;
    struct tally_options tally;
    struct workload *workload;
    bool *is_repeat; /* [n_requests] each of its documents was cited before */
    struct target targets[TARGETS_MAX];
    struct outcome *outcomes[TARGETS_MAX]; /* [n_requests] each */
    uint64_t elapsed_us[TARGETS_MAX];      /* of its rounds together */
    size_t n_targets;
    char **argv;
    int argc;
};

/* --- the workload --------------------------------------------------------------------------- */

static enum status
read_config(const struct options *options, struct workload_config *config)
{
    static const char *const samplers[] = {"distinct", "replacement", "paper"};
    size_t sampler = 0;

    *config = (struct workload_config){
        .seed = options->seed,
        .vocab = (uint32_t)options->vocab,
        .n_requests = (uint32_t)options->requests,
        .rate = options->rate,
        .burstiness = options->burstiness,
        .pool = (uint32_t)options->pool,
        .cited = (uint32_t)options->docs,
        .alpha = options->alpha,
        .time_scale = options->time_scale,
    };
    while (sampler < 3 && strcmp(options->sampler, samplers[sampler]) != 0) {
        sampler++;
    }
    if (sampler == 3) {
        return ERR(ST_INVALID, "sampler \"%s\": distinct, replacement or paper", options->sampler);
    }
    if (options->burstiness <= 0.0 || options->time_scale <= 0.0) {
        return ERR(ST_INVALID, "burstiness and time-scale must be more than 0");
    }
    config->sampler = (enum workload_sampler)sampler;
    TRY(lengths_parse(options->document_tokens, &config->document_tokens));
    TRY(lengths_parse(options->query_tokens, &config->query_tokens));
    return lengths_parse(options->output_tokens, &config->output_tokens);
}

static enum status
make_of_texts(struct bench *bench, const struct workload_config *config)
{
    const char *path = bench->options.texts;
    size_t length = strlen(path);
    bool is_lines = length > 6 && strcmp(path + length - 6, ".jsonl") == 0;
    struct docs docs = {0};
    struct workload_text *texts = NULL;
    enum status st =
        is_lines ? docs_add_jsonl(&docs, path) : docs_add_path(&docs, path, ".txt,.md");

    if (st == ST_OK) {
        texts = mem_zalloc(docs.count, sizeof(*texts));
        st = texts == NULL ? ERR(ST_NO_MEMORY, "%zu texts", docs.count) : ST_OK;
    }
    for (size_t i = 0; st == ST_OK && i < docs.count; i++) {
        texts[i] = (struct workload_text){docs.segments[i]->text, docs.segments[i]->title};
    }
    if (st == ST_OK) {
        st = workload_make_texts(config, texts, docs.count, bench->options.question,
                                 &bench->workload);
    }
    mem_free(texts);
    docs_deinit(&docs);
    return st;
}

/* Requests whose documents were all cited by earlier ones. */
static enum status
mark_repeats(struct bench *bench)
{
    const struct workload *workload = bench->workload;
    bool *was_cited = mem_zalloc(workload->n_documents, sizeof(*was_cited));

    bench->is_repeat = mem_zalloc(workload->n_requests, sizeof(*bench->is_repeat));
    if (was_cited == NULL || bench->is_repeat == NULL) {
        mem_free(was_cited);
        return ERR(ST_NO_MEMORY, "%zu requests", workload->n_requests);
    }
    for (size_t i = 0; i < workload->n_requests; i++) {
        const struct workload_request *request = &workload->requests[i];

        bench->is_repeat[i] = true;
        for (uint32_t d = 0; d < request->n_documents; d++) {
            bench->is_repeat[i] = bench->is_repeat[i] && was_cited[request->documents[d]];
            was_cited[request->documents[d]] = true;
        }
    }
    mem_free(was_cited);
    return ST_OK;
}

static enum status
make_workload(struct bench *bench)
{
    struct workload_config config;

    TRY(read_config(&bench->options, &config));
    if (bench->options.trace != NULL) {
        TRY(workload_read(&config, bench->options.trace, &bench->workload));
    } else if (bench->options.texts != NULL) {
        TRY(make_of_texts(bench, &config));
    } else {
        TRY(workload_make(&config, &bench->workload));
    }
    return mark_repeats(bench);
}

static enum status
write_requests(const struct bench *bench)
{
    const char *path = bench->options.write_requests;
    bool is_stdout = strcmp(path, "-") == 0;
    FILE *out = is_stdout ? stdout : fopen(path, "we");

    if (out == NULL) {
        return ERR(ST_SYSTEM, "%s: %s", path, strerror(errno));
    }
    workload_write(bench->workload, out);
    if ((is_stdout ? fflush(out) : fclose(out)) != 0) {
        return ERR(ST_SYSTEM, "%s: %s", path, strerror(errno));
    }
    return ST_OK;
}

/* --- a run ---------------------------------------------------------------------------------- */

struct progress {
    const char *name;
    size_t before, total; /* of this target */
};

static void
show_progress(void *opaque, size_t done)
{
    const struct progress *progress = opaque;
    char bar[31] = {0};
    size_t all = progress->before + done;

    memset(bar, '.', sizeof(bar) - 1);
    memset(bar, '#', all * (sizeof(bar) - 1) / progress->total);
    (void)fprintf(stderr, "\r%-12s [%s] %zu/%zu", progress->name, bar, all, progress->total);
    (void)fflush(stderr);
}

static enum status
run_piece(struct bench *bench, size_t t, size_t first, size_t end)
{
    struct options *options = &bench->options;
    struct progress progress = {bench->targets[t].name, first, bench->workload->n_requests};
    uint64_t elapsed_us = 0;
    struct load load = {
        .target = &bench->targets[t],
        .run = {.workload = bench->workload,
                .salt = options->salt,
                .sampling_seed = options->seed,
                .timeout_ms = (uint32_t)options->timeout_ms},
        .first = first,
        .count = end - first,
        .concurrency = (uint32_t)options->concurrency,
        .on_progress = options->quiet || isatty(STDERR_FILENO) == 0 ? NULL : show_progress,
        .opaque = &progress,
    };

    if (options->reset) {
        TRY(target_reset(&bench->targets[t]));
    }
    TRY(load_run(&load, bench->outcomes[t], &elapsed_us));
    bench->elapsed_us[t] += elapsed_us;
    for (size_t i = first; bench->targets[t].kind == TARGET_HTTP && i < end; i++) {
        bench->outcomes[t][i].is_warm = bench->is_repeat[i];
    }
    if (load.on_progress != NULL) {
        (void)fputc('\n', stderr);
    }
    return ST_OK;
}

static enum status
run_all(struct bench *bench)
{
    size_t n = bench->workload->n_requests, rounds = bench->options.rounds;

    for (size_t t = 0; t < bench->n_targets; t++) {
        TRY(target_find_model(&bench->targets[t]));
        bench->outcomes[t] = mem_zalloc(n, sizeof(struct outcome));
        if (bench->outcomes[t] == NULL) {
            return ERR(ST_NO_MEMORY, "%zu outcomes", n);
        }
    }
    for (size_t r = 0; r < rounds; r++) {
        size_t first = n * r / rounds, end = n * (r + 1) / rounds;

        for (size_t t = 0; t < bench->n_targets && first < end; t++) {
            TRY(run_piece(bench, t, first, end));
        }
    }
    return ST_OK;
}

/* --- results -------------------------------------------------------------------------------- */

static void
add(struct json_object *object, const char *key, struct json_object *value)
{
    (void)json_object_object_add(object, key, value);
}

static struct json_object *
text(const char *value)
{
    return value == NULL ? NULL : json_object_new_string(value);
}

/* What was asked for, so that it can be asked again. */
static struct json_object *
describe(const struct bench *bench, size_t t)
{
    const struct options *o = &bench->options;
    struct json_object *object = json_object_new_object(), *command = json_object_new_array();
    struct workload_shape shape = {0};

    for (int i = 0; i < bench->argc; i++) {
        (void)json_object_array_add(command, json_object_new_string(bench->argv[i]));
    }
    add(object, "command", command);
    add(object, "note", text(o->note));
    add(object, "seed", json_object_new_int64((int64_t)o->seed));
    add(object, "rounds", json_object_new_int64((int64_t)o->rounds));
    add(object, "is_reset_each_round", json_object_new_boolean(o->reset));
    add(object, "reuse", json_object_new_int(bench->targets[t].reuse));
    if (o->trace == NULL) {
        add(object, "zipf_alpha", json_object_new_double(o->alpha));
        add(object, "sampler", text(o->sampler));
        add(object, "documents_a_request", json_object_new_int64((int64_t)o->docs));
    }
    add(object, "trace", text(o->trace));
    add(object, "pool_size", json_object_new_int64((int64_t)bench->workload->n_documents));
    if (workload_shape(bench->workload, &shape) == ST_OK) {
        add(object, "citations", json_object_new_int64((int64_t)shape.citations));
        add(object, "distinct_documents", json_object_new_int64((int64_t)shape.distinct));
        add(object, "top1_share", json_object_new_double(shape.top1));
        add(object, "top5_share", json_object_new_double(shape.top5));
        add(object, "requests_with_duplicates",
            json_object_new_int64((int64_t)shape.with_duplicates));
    }
    return object;
}

static void
add_details(struct json_object *object, const struct outcome *outcomes, size_t count)
{
    struct json_object *ttfts = json_object_new_array(), *itls = json_object_new_array();
    struct json_object *inputs = json_object_new_array(), *outputs = json_object_new_array();
    struct json_object *errors = json_object_new_array(), *starts = json_object_new_array();
    struct json_object *hashes = json_object_new_array(), *warm = json_object_new_array();

    for (size_t i = 0; i < count; i++) {
        const struct outcome *o = &outcomes[i];
        struct json_object *gaps = json_object_new_array();
        char hash[20];

        for (size_t g = 0; g < o->n_gaps; g++) {
            (void)json_object_array_add(gaps, json_object_new_double((double)o->gaps_us[g] * 1e-6));
        }
        (void)snprintf(hash, sizeof(hash), "%016" PRIx64, o->text_hash);
        (void)json_object_array_add(itls, gaps);
        (void)json_object_array_add(
            ttfts, json_object_new_double(o->is_ok ? outcome_ttft_ms(o) / 1000.0 : 0.0));
        (void)json_object_array_add(inputs, json_object_new_int64(o->input_tokens));
        (void)json_object_array_add(outputs, json_object_new_int64(o->output_tokens));
        (void)json_object_array_add(errors, json_object_new_string(o->error));
        (void)json_object_array_add(
            starts, json_object_new_double((double)(o->sent_us - outcomes[0].sent_us) * 1e-6));
        (void)json_object_array_add(hashes, json_object_new_string(hash));
        (void)json_object_array_add(warm, json_object_new_boolean(o->is_warm));
    }
    add(object, "input_lens", inputs);
    add(object, "output_lens", outputs);
    add(object, "ttfts", ttfts);
    add(object, "itls", itls);
    add(object, "start_times", starts);
    add(object, "text_hashes", hashes);
    add(object, "were_warm", warm);
    add(object, "errors", errors);
}

static enum status
write_result(const struct bench *bench, size_t t, const struct tally tallies[3])
{
    const struct options *o = &bench->options;
    struct json_object *object = json_object_new_object();
    struct json_object *cold = json_object_new_object(), *warm = json_object_new_object();
    const char *backend = bench->targets[t].kind == TARGET_KVASIR ? "kvasir" : "openai";
    char path[4096], date[32];
    time_t now = time(NULL);
    struct tm when;

    (void)strftime(date, sizeof(date), "%Y%m%d-%H%M%S", gmtime_r(&now, &when));
    add(object, "date", text(date));
    add(object, "endpoint_type", text(backend));
    add(object, "backend", text(backend));
    add(object, "label", text(bench->targets[t].name));
    add(object, "model_id", text(bench->targets[t].model));
    add(object, "tokenizer_id", NULL); /* the server's own, or none: ids */
    add(object, "num_prompts", json_object_new_int64((int64_t)bench->workload->n_requests));
    add(object, "request_rate", o->rate > 0 ? json_object_new_double(o->rate) : text("inf"));
    add(object, "burstiness", json_object_new_double(o->burstiness));
    add(object, "max_concurrency", json_object_new_int64((int64_t)o->concurrency));
    tally_to_json(object, &tallies[TALLY_ALL], &bench->tally, (double)bench->elapsed_us[t] * 1e-6);
    tally_to_json(cold, &tallies[TALLY_COLD], &bench->tally, 0.0);
    tally_to_json(warm, &tallies[TALLY_WARM], &bench->tally, 0.0);
    add(object, "cold", cold);
    add(object, "warm", warm);
    add(object, "kvasir", describe(bench, t));
    if (o->detailed) {
        add_details(object, bench->outcomes[t], bench->workload->n_requests);
    }
    (void)snprintf(path, sizeof(path), "%s/%s.json", o->result_dir, bench->targets[t].name);
    int failed = json_object_to_file_ext(path, object, JSON_C_TO_STRING_PRETTY);

    json_object_put(object);
    return failed == 0 ? ST_OK : ERR(ST_SYSTEM, "cannot write %s", path);
}

static enum status
report(const struct bench *bench, bool *all_well_out)
{
    size_t n = bench->workload->n_requests;

    for (size_t t = 0; t < bench->n_targets; t++) {
        struct tally tallies[3];

        for (int of = TALLY_ALL; of <= TALLY_WARM; of++) {
            TRY(tally_make(bench->outcomes[t], n, (enum tally_of)of, &bench->tally, &tallies[of]));
        }
        if (tallies[TALLY_ALL].completed > 0) {
            tally_print(stdout, bench->targets[t].name, &tallies[TALLY_ALL], &tallies[TALLY_COLD],
                        &tallies[TALLY_WARM], &bench->tally, (double)bench->elapsed_us[t] * 1e-6);
        } else {
            (void)fprintf(stderr, "kvasir-bench: %s: none of %zu requests was answered\n",
                          bench->targets[t].name, n);
        }
        *all_well_out = *all_well_out && tallies[TALLY_ALL].failed == 0;
        for (size_t i = 0, shown = 0; i < n && shown < 3; i++) {
            if (!bench->outcomes[t][i].is_ok) {
                (void)fprintf(stderr, "kvasir-bench: %s: request %zu: %s\n", bench->targets[t].name,
                              i, bench->outcomes[t][i].error);
                shown++;
            }
        }
        if (bench->options.result_dir != NULL) {
            TRY(write_result(bench, t, tallies));
        }
    }
    return ST_OK;
}

/* --- main ----------------------------------------------------------------------------------- */

static enum status
read_targets(struct bench *bench, int argc, char **argv, int first)
{
    if (argc - first > TARGETS_MAX) {
        return ERR(ST_INVALID, "more than %d targets", TARGETS_MAX);
    }
    for (int i = first; i < argc; i++) {
        if (argv[i][0] == '-') {
            return ERR(ST_INVALID, "%s: options come before the targets", argv[i]);
        }
        TRY(target_parse(argv[i], &bench->targets[bench->n_targets]));
        bench->n_targets++;
    }
    return bench->n_targets > 0 || bench->options.write_requests != NULL
               ? ST_OK
               : ERR(ST_INVALID, "no target: NAME=kvasir:DIR or NAME=http://HOST:PORT/v1");
}

/* Before anything is measured: the results of minutes shall find their place. */
static enum status
make_result_dir(const char *path)
{
    if (mkdir(path, 0777) != 0 && errno != EEXIST) {
        return ERR(ST_SYSTEM, "--result-dir %s: %s", path, strerror(errno));
    }
    return access(path, W_OK | X_OK) == 0
               ? ST_OK
               : ERR(ST_SYSTEM, "--result-dir %s: %s", path, strerror(errno));
}

static enum status
prepare(struct bench *bench, struct conf conf, int argc, char **argv)
{
    const char *path = conf_config_path(argc, argv);
    int first = argc;

    if (path != NULL) {
        TRY(conf_read_file(conf, path));
    }
    TRY(conf_parse_args(conf, argc, argv, &first));
    if (conf_scan(argc, argv, "print-config")) {
        return ST_OK;
    }
    TRY(read_targets(bench, argc, argv, first));
    TRY(tally_parse_percentiles(bench->options.percentiles, &bench->tally));
    bench->tally.rate = bench->options.rate;
    bench->tally.concurrency = (uint32_t)bench->options.concurrency;
    if (bench->options.goodput != NULL) {
        TRY(tally_parse_goodput(bench->options.goodput, &bench->tally));
    }
    if (bench->options.result_dir != NULL) {
        TRY(make_result_dir(bench->options.result_dir));
    }
    return make_workload(bench);
}

static void
clean_up(struct bench *bench)
{
    for (size_t t = 0; t < bench->n_targets; t++) {
        for (size_t i = 0; bench->outcomes[t] != NULL && i < bench->workload->n_requests; i++) {
            outcome_deinit(&bench->outcomes[t][i]);
        }
        mem_free(bench->outcomes[t]);
        target_deinit(&bench->targets[t]);
    }
    mem_free(bench->is_repeat);
    workload_destroy(&bench->workload);
}

int
main(int argc, char **argv)
{
    struct bench bench = {.argc = argc, .argv = argv};
    struct conf conf = {option_table, sizeof(option_table) / sizeof(option_table[0]),
                        &bench.options};
    enum status st = conf_defaults(conf);
    bool all_well = true;
    int code = EXIT_SUCCESS;

    if (st == ST_OK && conf_scan(argc, argv, "help")) {
        (void)printf("Usage: kvasir-bench [OPTION]... NAME=kvasir:DIR[?reuse=MODE] | "
                     "NAME=http://HOST:PORT/v1[?model=MODEL]...\n"
                     "Measures servers with one workload over documents.\n\n");
        conf_print_help(conf, stdout);
    } else if (st == ST_OK && conf_scan(argc, argv, "version")) {
        (void)printf("kvasir-bench %s\n", PACKAGE_VERSION);
    } else if (st != ST_OK || (st = prepare(&bench, conf, argc, argv)) != ST_OK) {
        code = 2;
    } else if (conf_scan(argc, argv, "print-config")) {
        conf_print_sample(conf, stdout);
    } else if (bench.options.write_requests != NULL) {
        st = write_requests(&bench);
    } else {
        st = run_all(&bench);
        st = st != ST_OK ? st : report(&bench, &all_well);
    }
    if (st != ST_OK) {
        (void)fprintf(stderr, "kvasir-bench: %s\n", status_detail());
    }
    clean_up(&bench);
    conf_deinit(conf);
    return code != EXIT_SUCCESS ? code : st == ST_OK && all_well ? EXIT_SUCCESS : EXIT_FAILURE;
}
