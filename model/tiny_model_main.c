/* SPDX-License-Identifier: Apache-2.0 */
/* kvasir-tiny-model - writes a tiny checkpoint for tests and for a first run without a download. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/conf.h"
#include "model/tiny_model.h"

struct options {
    char *out;
    char *type;
    char *rope;
    uint64_t seed, layers, heads, kv_heads, head_dim, width, ffn, vocab, context;
    bool untied;
};

#define COUNT(name, text, field, help)                                                             \
    {                                                                                              \
        name, CONF_U64, text, 1, UINT32_MAX, "N", help, offsetof(struct options, field)            \
    }

static const struct conf_option table[] = {
    {"out", CONF_STRING, NULL, 0, 0, "FILE", "where to write the GGUF",
     offsetof(struct options, out)},
    {"seed", CONF_U64, "1", 0, 0, "N", "seed of the weights", offsetof(struct options, seed)},
    COUNT("layers", "2", layers, "layers"),
    COUNT("heads", "4", heads, "query heads"),
    COUNT("kv-heads", "2", kv_heads, "key/value heads"),
    COUNT("head-dim", "64", head_dim, "dimension of a head"),
    COUNT("width", "128", width, "model width"),
    COUNT("ffn", "256", ffn, "feed-forward width"),
    COUNT("vocab", "512", vocab, "tokens in the vocabulary, at least 259"),
    COUNT("context", "8192", context, "positions"),
    {"type", CONF_STRING, "f32", 0, 0, "TYPE", "of matrices: f32 f16 bf16 q8_0 q4_0 q4_1",
     offsetof(struct options, type)},
    {"rope", CONF_STRING, "plain", 0, 0, "KIND", "plain, linear (factor 4) or freqs (a tensor)",
     offsetof(struct options, rope)},
    {"untied", CONF_BOOL, "no", 0, 0, NULL, "write an output matrix of its own",
     offsetof(struct options, untied)},
};

static enum status
write_model(const struct options *options)
{
    struct tiny_model_config config = {
        .seed = options->seed,
        .L = (uint32_t)options->layers,
        .C = (uint32_t)options->width,
        .H = (uint32_t)options->heads,
        .Hkv = (uint32_t)options->kv_heads,
        .D = (uint32_t)options->head_dim,
        .F = (uint32_t)options->ffn,
        .V = (uint32_t)options->vocab,
        .context_max = (uint32_t)options->context,
        .has_tied_embeddings = !options->untied,
    };

    if (options->out == NULL) {
        return ERR(ST_INVALID, "--out FILE is missing");
    }
    TRY(tiny_model_parse_type(options->type, &config.type));
    TRY(tiny_model_parse_rope(options->rope, &config.rope));
    return tiny_model_write(&config, options->out);
}

int
main(int argc, char **argv)
{
    struct options options = {0};
    struct conf conf = {table, sizeof(table) / sizeof(table[0]), &options};
    enum status st = conf_defaults(conf);
    int operand = argc;

    if (st == ST_OK) {
        st = conf_parse_args(conf, argc, argv, &operand);
    }
    if (st == ST_OK && operand != argc) {
        st = ERR(ST_INVALID, "unexpected argument \"%s\"", argv[operand]);
    }
    if (st == ST_OK && conf_scan(argc, argv, "help")) {
        (void)printf("Usage: kvasir-tiny-model --out FILE [OPTION...]\n");
        conf_print_help(conf, stdout);
    } else if (st == ST_OK) {
        st = write_model(&options);
    }
    if (st != ST_OK) {
        (void)fprintf(stderr, "kvasir-tiny-model: %s\n", status_detail());
    }
    conf_deinit(conf);
    return st == ST_OK ? EXIT_SUCCESS : st == ST_INVALID ? 2 : EXIT_FAILURE;
}
