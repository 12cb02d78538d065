/* SPDX-License-Identifier: Apache-2.0 */
#include "model/checkpoint.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/mem.h"
#include "model/file_map.h"
#include "model/gguf.h"
#include "model/hf_directory.h"
#include "model/shape.h"

#define SHAPE_NAME_MAX 63

struct checkpoint {
    char *path;
    struct gguf *gguf; /* one of these two, */
    struct hf_directory *dir;
    uint64_t seed; /* or with neither a dummy */
    struct model_config config;
    struct tokenizer *tokenizer;
};

static enum status
read_gguf(struct checkpoint *checkpoint)
{
    TRY(model_config_from_gguf(checkpoint->gguf, &checkpoint->config));
    TRY(tokenizer_new(checkpoint->gguf, &checkpoint->tokenizer));
    if (tokenizer_vocab_size(checkpoint->tokenizer) < checkpoint->config.V) {
        return ERR(ST_INVALID, "%s: %" PRIu32 " tokens in the vocabulary, %" PRIu32 " embeddings",
                   checkpoint->path, tokenizer_vocab_size(checkpoint->tokenizer),
                   checkpoint->config.V);
    }
    return ST_OK;
}

/* "SHAPE" or "SHAPE:SEED". */
static enum status
make_dummy(struct checkpoint *checkpoint, const char *text)
{
    char name[SHAPE_NAME_MAX + 1];
    size_t length = strcspn(text, ":");
    char *end;

    checkpoint->seed = CHECKPOINT_DUMMY_SEED;
    if (text[length] == ':') {
        errno = 0;
        checkpoint->seed = strtoull(text + length + 1, &end, 10);
        if (errno != 0 || end == text + length + 1 || *end != '\0' || text[length + 1] == '-') {
            return ERR(ST_INVALID, "%s: the seed is no number", checkpoint->path);
        }
    }
    (void)snprintf(name, sizeof(name), "%.*s",
                   (int)(length < SHAPE_NAME_MAX ? length : SHAPE_NAME_MAX), text);
    TRY(shape_find(name, &checkpoint->config));
    return tokenizer_new_bytes(checkpoint->config.V, &checkpoint->tokenizer);
}

static enum status
read_path(struct checkpoint *checkpoint)
{
    struct stat info;

    if (strncmp(checkpoint->path, CHECKPOINT_DUMMY, strlen(CHECKPOINT_DUMMY)) == 0) {
        return make_dummy(checkpoint, checkpoint->path + strlen(CHECKPOINT_DUMMY));
    }
    if (stat(checkpoint->path, &info) == 0 && S_ISDIR(info.st_mode)) {
        return hf_directory_open(checkpoint->path, &checkpoint->config, &checkpoint->tokenizer,
                                 &checkpoint->dir);
    }
    TRY(gguf_open(checkpoint->path, &checkpoint->gguf));
    return read_gguf(checkpoint);
}

static enum status
checkpoint_new(const char *path, struct checkpoint **checkpoint_out)
{
    struct checkpoint *checkpoint = mem_zalloc(1, sizeof(*checkpoint));

    if (checkpoint != NULL) {
        checkpoint->path = mem_strdup(path);
    }
    if (checkpoint == NULL || checkpoint->path == NULL) {
        checkpoint_close(&checkpoint);
        return ERR(ST_NO_MEMORY, "%s: no memory to open it", path);
    }
    *checkpoint_out = checkpoint;
    return ST_OK;
}

enum status
checkpoint_open(const char *path, struct checkpoint **checkpoint_out)
{
    struct checkpoint *checkpoint;
    enum status st;

    TRY(checkpoint_new(path, &checkpoint));
    st = read_path(checkpoint);
    if (st != ST_OK) {
        checkpoint_close(&checkpoint);
        return st;
    }
    *checkpoint_out = checkpoint;
    return ST_OK;
}

enum status
checkpoint_open_bytes(const char *name, const void *bytes, size_t length,
                      struct checkpoint **checkpoint_out)
{
    struct checkpoint *checkpoint;
    enum status st;

    TRY(checkpoint_new(name, &checkpoint));
    st = gguf_open_bytes(name, bytes, length, &checkpoint->gguf);
    if (st == ST_OK) {
        st = read_gguf(checkpoint);
    }
    if (st != ST_OK) {
        checkpoint_close(&checkpoint);
        return st;
    }
    *checkpoint_out = checkpoint;
    return ST_OK;
}

void
checkpoint_close(struct checkpoint **checkpoint)
{
    if (*checkpoint == NULL) {
        return;
    }
    tokenizer_destroy(&(*checkpoint)->tokenizer);
    gguf_close(&(*checkpoint)->gguf);
    hf_directory_close(&(*checkpoint)->dir);
    mem_free((*checkpoint)->path);
    MEM_FREE(*checkpoint);
}

const char *
checkpoint_path(const struct checkpoint *checkpoint)
{
    return checkpoint->path;
}

const struct model_config *
checkpoint_config(const struct checkpoint *checkpoint)
{
    return &checkpoint->config;
}

const struct tokenizer *
checkpoint_tokenizer(const struct checkpoint *checkpoint)
{
    return checkpoint->tokenizer;
}

bool
checkpoint_is_dummy(const struct checkpoint *checkpoint, uint64_t *seed_out)
{
    *seed_out = checkpoint->seed;
    return checkpoint->gguf == NULL && checkpoint->dir == NULL;
}

/* A change of the shape or of the rule that makes the weights needs another domain. */
static enum status
fingerprint_dummy(const struct checkpoint *checkpoint, uint8_t fingerprint_out[32])
{
    const char *shape = checkpoint->path + strlen(CHECKPOINT_DUMMY);
    char text[128];
    int length = snprintf(text, sizeof(text), "kvasir dummy checkpoint 1 %.*s %" PRIu64,
                          (int)strcspn(shape, ":"), shape, checkpoint->seed);

    assert(length > 0 && (size_t)length < sizeof(text)); /* the shape is a known one */
    return file_map_digest(checkpoint->path, text, (size_t)length, fingerprint_out);
}

enum status
checkpoint_identity(const struct checkpoint *checkpoint, uint8_t identity_out[32])
{
    if (checkpoint->gguf != NULL) {
        return gguf_identity(checkpoint->gguf, identity_out);
    }
    return checkpoint->dir != NULL ? hf_directory_identity(checkpoint->dir, identity_out)
                                   : fingerprint_dummy(checkpoint, identity_out);
}

enum status
checkpoint_fingerprint(const struct checkpoint *checkpoint, uint8_t fingerprint_out[32])
{
    if (checkpoint->gguf != NULL) {
        return gguf_fingerprint(checkpoint->gguf, fingerprint_out);
    }
    return checkpoint->dir != NULL ? hf_directory_fingerprint(checkpoint->dir, fingerprint_out)
                                   : fingerprint_dummy(checkpoint, fingerprint_out);
}

enum status
checkpoint_plan_weights(const struct checkpoint *checkpoint, enum weight_type type,
                        bool keeps_quantised, struct weights_plan *plan_out)
{
    const struct model_config *config = &checkpoint->config;

    if (keeps_quantised && checkpoint->gguf != NULL) {
        return weights_plan_kept(checkpoint->gguf, config, type, plan_out);
    }
    return weights_plan(config, type, plan_out);
}

enum status
checkpoint_load_weights(const struct checkpoint *checkpoint, const struct weights_plan *plan,
                        void *memory, weights_progress_fn progress, void *progress_arg)
{
    const struct safetensors *const *files;
    size_t count;

    if (checkpoint->gguf != NULL) {
        return weights_load(checkpoint->gguf, &checkpoint->config, plan, memory, progress,
                            progress_arg);
    }
    assert(checkpoint->dir != NULL);
    files = hf_directory_files(checkpoint->dir, &count);
    return weights_load_hf(checkpoint->path, files, count, &checkpoint->config, plan, memory,
                           progress, progress_arg);
}
