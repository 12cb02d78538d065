/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/golden.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"

#define PATH_BYTES 4096

static _Noreturn void
give_up(const char *what, const char *detail)
{
    (void)fprintf(stderr, "golden: %s: %s\n", what, detail);
    exit(EXIT_FAILURE);
}

static void *
must(void *storage)
{
    if (storage == NULL) {
        give_up("memory", "none left");
    }
    return storage;
}

static uint32_t
take_u32(const char **at)
{
    char *end;
    unsigned long value = strtoul(*at, &end, 10);

    if (end == *at || value > UINT32_MAX) {
        give_up("not a number", *at);
    }
    *at = end;
    return (uint32_t)value;
}

static double
take_real(const char **at)
{
    char *end;
    double value = strtod(*at, &end);

    if (end == *at) {
        give_up("not a number", *at);
    }
    *at = end;
    return value;
}

/* "COUNT id id ..." */
static struct golden_ids
take_ids(const char **at)
{
    struct golden_ids list = {.count = take_u32(at)};

    list.ids = must(mem_zalloc(list.count, sizeof(list.ids[0])));
    for (uint32_t i = 0; i < list.count; i++) {
        list.ids[i] = take_u32(at);
    }
    return list;
}

/* "POSITION COUNT bits bits ...", the bits of a float32 in hexadecimal. */
static struct golden_row
take_logits(const char **at)
{
    struct golden_row row = {.position = take_u32(at), .n_logits = take_u32(at)};

    row.logits = must(mem_zalloc(row.n_logits, sizeof(row.logits[0])));
    for (uint32_t i = 0; i < row.n_logits; i++) {
        char *end;
        uint32_t bits = (uint32_t)strtoul(*at, &end, 16);

        if (end == *at) {
            give_up("not a logit", *at);
        }
        memcpy(&row.logits[i], &bits, sizeof(bits));
        *at = end;
    }
    return row;
}

/* Steps over `word` and the blank after it if the line starts with them. */
static bool
starts(const char **at, const char *word)
{
    size_t length = strlen(word);

    if (strncmp(*at, word, length) != 0 || (*at)[length] != ' ') {
        return false;
    }
    *at += length + 1;
    return true;
}

static struct golden_case *
add_case(struct golden *golden, const char *name)
{
    golden->cases =
        must(mem_realloc(golden->cases, (size_t)golden->n_cases + 1, sizeof(golden->cases[0])));
    golden->cases[golden->n_cases] = (struct golden_case){.name = must(mem_strdup(name))};
    return &golden->cases[golden->n_cases++];
}

static void
take_record(struct golden *golden, const char *line)
{
    struct golden_case *last = golden->n_cases == 0 ? NULL : &golden->cases[golden->n_cases - 1];
    const char *at = line;

    if (*line == '#' || *line == '\0') {
        return;
    }
    if (starts(&at, "model")) {
        golden->model = must(mem_strdup(at));
    } else if (starts(&at, "index")) {
        golden->index = take_ids(&at);
    } else if (starts(&at, "case")) {
        (void)add_case(golden, at);
    } else if (last == NULL) {
        give_up("a record before the first case", line);
    } else if (starts(&at, "docs")) {
        last->docs = take_ids(&at);
    } else if (starts(&at, "ids")) {
        last->prompt = take_ids(&at);
    } else if (starts(&at, "noise")) {
        last->noise = take_real(&at);
    } else if (starts(&at, "logits") && last->n_rows < GOLDEN_ROWS_MAX) {
        last->rows[last->n_rows++] = take_logits(&at);
    } else if (starts(&at, "top") && last->n_rows > 0) {
        (void)take_u32(&at); /* the position, as in the record before */
        last->rows[last->n_rows - 1].top = take_ids(&at);
    } else if (starts(&at, "greedy")) {
        last->gap = take_real(&at);
        last->greedy = take_ids(&at);
    } else {
        give_up("unknown record", line);
    }
}

struct golden *
golden_load(const char *name)
{
    const char *srcdir = getenv("KVASIR_SRCDIR");
    struct golden *golden = must(mem_zalloc(1, sizeof(*golden)));
    char path[PATH_BYTES];
    size_t capacity = 0;
    char *line = NULL;
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/tests/goldens/%s.txt", srcdir == NULL ? "." : srcdir,
                   name);
    file = fopen(path, "r");
    if (file == NULL) {
        give_up(path, "cannot be opened");
    }
    while (getline(&line, &capacity, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        take_record(golden, line);
    }
    free(line);
    (void)fclose(file);
    if (golden->model == NULL || golden->n_cases == 0) {
        give_up(path, "no model or no case in it");
    }
    return golden;
}

void
golden_destroy(struct golden **golden)
{
    struct golden *g = *golden;

    for (uint32_t i = 0; g != NULL && i < g->n_cases; i++) {
        struct golden_case *c = &g->cases[i];

        for (uint32_t r = 0; r < c->n_rows; r++) {
            mem_free(c->rows[r].logits);
            mem_free(c->rows[r].top.ids);
        }
        mem_free(c->name);
        mem_free(c->docs.ids);
        mem_free(c->prompt.ids);
        mem_free(c->greedy.ids);
    }
    if (g != NULL) {
        mem_free(g->cases);
        mem_free(g->index.ids);
        mem_free(g->model);
    }
    MEM_FREE(*golden);
}

const struct golden_case *
golden_find(const struct golden *golden, const char *name)
{
    for (uint32_t i = 0; i < golden->n_cases; i++) {
        if (strcmp(golden->cases[i].name, name) == 0) {
            return &golden->cases[i];
        }
    }
    give_up("no such case", name);
}

/* The text after "KEY=" up to a blank; "" if the key is not there. */
static void
copy_value(const char *model, const char *key, char *out, size_t out_bytes)
{
    size_t length = strlen(key);

    out[0] = '\0';
    for (const char *at = model; at != NULL; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, key, length) == 0 && at[length] == '=') {
            (void)snprintf(out, out_bytes, "%.*s", (int)strcspn(at + length + 1, " "),
                           at + length + 1);
            return;
        }
    }
}

static uint32_t
number_of(const char *model, const char *key, uint32_t fallback)
{
    char value[32];
    const char *at = value;

    copy_value(model, key, value, sizeof(value));
    return value[0] == '\0' ? fallback : take_u32(&at);
}

struct tiny_model_config
golden_tiny_config(const struct golden *golden)
{
    struct tiny_model_config config = tiny_model_defaults();
    const char *model = golden->model;
    char type[32], rope[32];

    config.seed = number_of(model, "seed", 1);
    config.L = number_of(model, "layers", config.L);
    config.C = number_of(model, "width", config.C);
    config.H = number_of(model, "heads", config.H);
    config.Hkv = number_of(model, "kv_heads", config.Hkv);
    config.D = number_of(model, "head_dim", config.D);
    config.F = number_of(model, "ffn", config.F);
    config.V = number_of(model, "vocab", config.V);
    config.has_tied_embeddings = number_of(model, "untied", 0) == 0;
    copy_value(model, "type", type, sizeof(type));
    copy_value(model, "rope", rope, sizeof(rope));
    if (tiny_model_parse_type(type, &config.type) != ST_OK
        || tiny_model_parse_rope(rope, &config.rope) != ST_OK) {
        give_up(model, status_detail());
    }
    return config;
}
