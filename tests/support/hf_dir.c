/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/hf_dir.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <check.h>

#include "common/htab.h"
#include "model/dequant.h"
#include "model/quant.h"

#define PATH_BYTES   4096
#define TENSORS_MAX  64
#define HEADER_BYTES 16384

struct hf_dir
hf_dir_new(void)
{
    struct hf_dir dir = {"hf_dir_XXXXXX"};

    ck_assert_ptr_nonnull(mkdtemp(dir.path));
    return dir;
}

void
hf_dir_remove(const struct hf_dir *dir)
{
    DIR *folder = opendir(dir->path);
    char path[PATH_BYTES];

    ck_assert_ptr_nonnull(folder);
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (entry->d_name[0] != '.') {
            (void)snprintf(path, sizeof(path), "%s/%s", dir->path, entry->d_name);
            ck_assert_int_eq(unlink(path), 0);
        }
    }
    (void)closedir(folder);
    ck_assert_int_eq(rmdir(dir->path), 0);
}

void
hf_dir_put_bytes(const struct hf_dir *dir, const char *name, const void *bytes, size_t length)
{
    char path[PATH_BYTES];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", dir->path, name);
    file = fopen(path, "wb");
    ck_assert_msg(file != NULL, "cannot create %s", path);
    ck_assert_uint_eq(fwrite(bytes, 1, length, file), length);
    ck_assert_int_eq(fclose(file), 0);
}

void
hf_dir_put(const struct hf_dir *dir, const char *name, const char *text)
{
    hf_dir_put_bytes(dir, name, text, strlen(text));
}

char *
hf_golden_bytes(const char *source, size_t *length_out)
{
    const char *srcdir = getenv("KVASIR_SRCDIR");
    char path[PATH_BYTES];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/tests/goldens/%s", srcdir == NULL ? "." : srcdir,
                   source);
    file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "cannot open %s", path);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    long length = ftell(file);
    ck_assert_int_ge(length, 0);
    rewind(file);
    char *bytes = malloc((size_t)length + 1);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_uint_eq(fread(bytes, 1, (size_t)length, file), (size_t)length);
    bytes[length] = '\0';
    (void)fclose(file);
    *length_out = (size_t)length;
    return bytes;
}

void
hf_dir_copy(const struct hf_dir *dir, const char *name, const char *source)
{
    size_t length;
    char *bytes = hf_golden_bytes(source, &length);

    hf_dir_put_bytes(dir, name, bytes, length);
    free(bytes);
}

/* -- Weights ------------------------------------------------------------------------------- */

static uint32_t
byte_of(const char *name, uint64_t index)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

    for (const char *at = name; *at != '\0'; at++) {
        hash = (hash ^ (uint8_t)*at) * 0x100000001b3u;
    }
    return (uint32_t)(htab_mix(hash + index) >> 56);
}

float
hf_matrix_value(const char *name, uint64_t index)
{
    return (float)(2 * (int)byte_of(name, index) - 255) / 1024;
}

float
hf_norm_value(const char *name, uint64_t index)
{
    return (float)(64 + byte_of(name, index) % 16) / 64;
}

struct tensor {
    char name[80];
    uint64_t rows; /* 0: a norm */
    uint64_t cols;
};

static struct tensor
layer_tensor(uint32_t layer, const char *name, uint64_t rows, uint64_t cols)
{
    struct tensor tensor = {.rows = rows, .cols = cols};

    (void)snprintf(tensor.name, sizeof(tensor.name), "model.layers.%" PRIu32 ".%s.weight", layer,
                   name);
    return tensor;
}

static size_t
list_tensors(const struct model_config *c, struct tensor *out)
{
    uint64_t q = c->H * c->D, kv = c->Hkv * c->D;
    size_t n = 0;

    out[n++] = (struct tensor){"model.embed_tokens.weight", c->V, c->C};
    for (uint32_t l = 0; l < c->L; l++) {
        out[n++] = layer_tensor(l, "input_layernorm", 0, c->C);
        out[n++] = layer_tensor(l, "self_attn.q_proj", q, c->C);
        out[n++] = layer_tensor(l, "self_attn.k_proj", kv, c->C);
        out[n++] = layer_tensor(l, "self_attn.v_proj", kv, c->C);
        out[n++] = layer_tensor(l, "self_attn.o_proj", c->C, q);
        out[n++] = layer_tensor(l, "post_attention_layernorm", 0, c->C);
        out[n++] = layer_tensor(l, "mlp.gate_proj", c->F, c->C);
        out[n++] = layer_tensor(l, "mlp.up_proj", c->F, c->C);
        out[n++] = layer_tensor(l, "mlp.down_proj", c->C, c->F);
    }
    out[n++] = (struct tensor){"model.norm.weight", 0, c->C};
    if (!c->has_tied_embeddings) {
        out[n++] = (struct tensor){"lm_head.weight", c->V, c->C};
    }
    ck_assert_uint_le(n, TENSORS_MAX);
    return n;
}

static uint64_t
count_of(const struct tensor *tensor)
{
    return tensor->rows == 0 ? tensor->cols : tensor->rows * tensor->cols;
}

static const char *
type_name(enum gguf_tensor_type type)
{
    return type == GGUF_TENSOR_F32 ? "F32" : type == GGUF_TENSOR_F16 ? "F16" : "BF16";
}

/* Appends one tensor's description to the header; returns the new length. */
static size_t
describe(const struct tensor *tensor, enum gguf_tensor_type type, uint64_t offset, char *header,
         size_t length)
{
    char shape[48];

    if (tensor->rows == 0) {
        (void)snprintf(shape, sizeof(shape), "%" PRIu64, tensor->cols);
    } else {
        (void)snprintf(shape, sizeof(shape), "%" PRIu64 ",%" PRIu64, tensor->rows, tensor->cols);
    }
    length += (size_t)snprintf(header + length, HEADER_BYTES - length,
                               ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%" PRIu64
                               ",%" PRIu64 "]}",
                               tensor->name, type_name(type), shape, offset,
                               offset + dequant_bytes(type, count_of(tensor)));
    ck_assert_uint_lt(length, HEADER_BYTES - 16);
    return length;
}

void
hf_dir_put_weights(const struct hf_dir *dir, const struct model_config *config,
                   enum gguf_tensor_type type)
{
    static char header[HEADER_BYTES];
    struct tensor tensors[TENSORS_MAX];
    size_t n = list_tensors(config, tensors);
    size_t length = 8; /* behind its own length */
    uint64_t bytes = 0;

    length += (size_t)snprintf(header + length, HEADER_BYTES, "{\"__metadata__\":{\"a\":\"b\"}");
    for (size_t i = 0; i < n; i++) {
        length = describe(&tensors[i], type, bytes, header, length);
        bytes += dequant_bytes(type, count_of(&tensors[i]));
    }
    header[length++] = '}';
    while (length % 8 != 0) {
        header[length++] = ' ';
    }
    uint64_t header_bytes = length - 8;
    memcpy(header, &header_bytes, sizeof(header_bytes));
    uint8_t *file = malloc(length + bytes);
    ck_assert_ptr_nonnull(file);
    memcpy(file, header, length);
    uint8_t *to = file + length;
    for (size_t t = 0; t < n; t++) {
        for (uint64_t i = 0; i < count_of(&tensors[t]); i++) {
            float value = tensors[t].rows == 0 ? hf_norm_value(tensors[t].name, i)
                                               : hf_matrix_value(tensors[t].name, i);

            quant(type, &value, 1, to);
            to += dequant_bytes(type, 1);
        }
    }
    hf_dir_put_bytes(dir, "model.safetensors", file, length + bytes);
    free(file);
}
