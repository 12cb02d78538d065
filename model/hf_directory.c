/* SPDX-License-Identifier: Apache-2.0 */
#include "model/hf_directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <openssl/evp.h>

#include "common/mem.h"
#include "common/utf8.h"
#include "model/file_map.h"
#include "model/json.h"
#include "model/tokenizer_hf.h"

#define PATH_BYTES      4096
#define TEMPLATE_MAX    (1u << 20)
#define SINGLE_FILE     "model.safetensors"
#define FILE_NAME_MAX   255
#define FILE_NAME_ENDS  ".safetensors"
#define DIRECTORY_BYTES (PATH_BYTES - FILE_NAME_MAX - 2)

enum text { /* in the order of the fingerprint */
    TEXT_TEMPLATE,
    TEXT_CONFIG,
    TEXT_GENERATION,
    TEXT_INDEX,
    TEXT_TOKENIZER,
    TEXT_TOKENIZER_CONFIG,
    TEXTS,
};

static const struct {
    const char *name;
    bool is_json;
    bool is_required;
} texts[TEXTS] = {
    {"chat_template.jinja", false, false},   {"config.json", true, true},
    {"generation_config.json", true, false}, {"model.safetensors.index.json", true, false},
    {"tokenizer.json", true, true},          {"tokenizer_config.json", true, false},
};

/* A small file while the directory is being opened. */
struct text_file {
    char path[PATH_BYTES];
    struct file_map map;
    struct json_object *json;
};

struct hf_directory {
    char *path;
    bool has_text[TEXTS];
    struct file_identity identities[TEXTS];
    uint8_t digests[TEXTS][32];
    char *names[HF_FILES_MAX]; /* [count], sorted */
    struct safetensors *files[HF_FILES_MAX];
    size_t count;
};

/* -- Small files --------------------------------------------------------------------------- */

static enum status
read_text(struct hf_directory *dir, enum text which, struct text_file *text)
{
    enum status st;

    (void)snprintf(text->path, sizeof(text->path), "%s/%s", dir->path, texts[which].name);
    st = file_map_open(text->path, &text->map);
    if (st == ST_NOT_FOUND && !texts[which].is_required) {
        return ST_OK;
    }
    if (st != ST_OK) {
        return st == ST_NOT_FOUND ? ERR(ST_INVALID, "%s", status_detail()) : st;
    }
    dir->has_text[which] = true;
    dir->identities[which] = text->map.identity;
    TRY(file_map_digest(text->path, text->map.bytes, text->map.length, dir->digests[which]));
    if (texts[which].is_json) {
        return json_parse(text->path, (const char *)text->map.bytes, text->map.length, &text->json);
    }
    if (text->map.length > TEMPLATE_MAX
        || utf8_check((const char *)text->map.bytes, text->map.length) < text->map.length) {
        return ERR(ST_INVALID, "%s: more than %u bytes, or not UTF-8", text->path, TEMPLATE_MAX);
    }
    return ST_OK;
}

static struct json_view
view_of(const struct text_file *text)
{
    return json_root(text->path, text->json);
}

static enum status
load_tokenizer(const struct hf_directory *dir, const struct text_file *files,
               const struct model_config *config, struct tokenizer **tokenizer_out)
{
    struct json_view generation = view_of(&files[TEXT_GENERATION]);
    struct tokenizer_hf parts = {
        .tokenizer = view_of(&files[TEXT_TOKENIZER]),
        .config = view_of(&files[TEXT_TOKENIZER_CONFIG]),
        .generation =
            json_has(&generation, "eos_token_id") ? generation : view_of(&files[TEXT_CONFIG]),
        .vocab_size = config->V,
    };

    if (dir->has_text[TEXT_TEMPLATE]) {
        parts.chat_template = (struct gguf_string){(const char *)files[TEXT_TEMPLATE].map.bytes,
                                                   files[TEXT_TEMPLATE].map.length};
    }
    return tokenizer_new_hf(&parts, tokenizer_out);
}

/* -- Weights ------------------------------------------------------------------------------- */

/* The place of a file among the names; HF_FILES_MAX if it is not there. */
static size_t
find_name(const struct hf_directory *dir, const char *name)
{
    for (size_t i = 0; i < dir->count; i++) {
        if (strcmp(dir->names[i], name) == 0) {
            return i;
        }
    }
    return HF_FILES_MAX;
}

/* A name in the directory, not a path out of it. */
static bool
is_file_name(const char *name)
{
    size_t length = strlen(name);
    size_t end = strlen(FILE_NAME_ENDS);

    return length > end && length <= FILE_NAME_MAX && name[0] != '.' && strchr(name, '/') == NULL
           && strcmp(name + length - end, FILE_NAME_ENDS) == 0;
}

static enum status
add_name(struct hf_directory *dir, const char *name)
{
    if (dir->count == HF_FILES_MAX) {
        return ERR(ST_INVALID, "%s: more than %d files of weights", dir->path, HF_FILES_MAX);
    }
    dir->names[dir->count] = mem_strdup(name);
    if (dir->names[dir->count] == NULL) {
        return ERR(ST_NO_MEMORY, "%s: names of files", dir->path);
    }
    dir->count++;
    return ST_OK;
}

static enum status
add_index_names(struct hf_directory *dir, const struct json_view *map)
{
    json_object_object_foreach(map->object, tensor, value)
    {
        const char *name = json_text(value).bytes;

        if (!is_file_name(name)) {
            return ERR(ST_INVALID, "%s: key %s%.60s: \"%.60s\" is no name of a safetensors file",
                       map->file, map->at, tensor, name);
        }
        /* Neighbours are mostly in one file, the last one. */
        if (dir->count > 0 && strcmp(dir->names[dir->count - 1], name) == 0) {
            continue;
        }
        if (find_name(dir, name) == HF_FILES_MAX) {
            TRY(add_name(dir, name));
        }
    }
    return ST_OK;
}

static int
by_name(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Each tensor lies where the index says, and there are no others: so none is there twice. */
static enum status
check_index(const struct hf_directory *dir, const struct json_view *map)
{
    size_t count = 0;

    json_object_object_foreach(map->object, tensor, value)
    {
        const char *name = json_text(value).bytes;

        if (safetensors_find(dir->files[find_name(dir, name)], tensor) == NULL) {
            return ERR(ST_INVALID, "%s: key %s%.60s: the tensor is not in %.60s", map->file,
                       map->at, tensor, name);
        }
    }
    for (size_t i = 0; i < dir->count; i++) {
        count += safetensors_count(dir->files[i]);
    }
    if (count != (size_t)json_object_object_length(map->object)) {
        return ERR(ST_INVALID, "%s: names %d tensors, but its files have %zu", map->file,
                   json_object_object_length(map->object), count);
    }
    return ST_OK;
}

static enum status
open_files(struct hf_directory *dir)
{
    for (size_t i = 0; i < dir->count; i++) {
        char path[PATH_BYTES];

        (void)snprintf(path, sizeof(path), "%s/%s", dir->path, dir->names[i]);
        enum status st = safetensors_open(path, &dir->files[i]);
        if (st != ST_OK) {
            return st == ST_NOT_FOUND ? ERR(ST_INVALID, "%s", status_detail()) : st;
        }
    }
    return ST_OK;
}

/* Weights beside an index that does not name them: nobody can tell which are meant. */
static enum status
refuse_second_set(const struct hf_directory *dir)
{
    char path[PATH_BYTES];
    struct stat info;

    (void)snprintf(path, sizeof(path), "%s/" SINGLE_FILE, dir->path);
    if (find_name(dir, SINGLE_FILE) == HF_FILES_MAX && stat(path, &info) == 0) {
        return ERR(ST_INVALID, "%s: lies beside an index that does not name it", path);
    }
    return ST_OK;
}

static enum status
open_weights(struct hf_directory *dir, const struct text_file *index_file)
{
    struct json_view index, map;

    if (!dir->has_text[TEXT_INDEX]) {
        TRY(add_name(dir, SINGLE_FILE));
        return open_files(dir);
    }
    index = view_of(index_file);
    TRY(json_get_object(&index, "weight_map", &map));
    TRY(add_index_names(dir, &map));
    TRY(refuse_second_set(dir));
    qsort(dir->names, dir->count, sizeof(dir->names[0]), by_name);
    TRY(open_files(dir));
    return check_index(dir, &map);
}

/* -- The directory ------------------------------------------------------------------------- */

static enum status
read_all(struct hf_directory *dir, struct text_file *files, struct model_config *config,
         struct tokenizer **tokenizer_out)
{
    struct json_view config_view;

    for (size_t i = 0; i < TEXTS; i++) {
        TRY(read_text(dir, (enum text)i, &files[i]));
    }
    config_view = view_of(&files[TEXT_CONFIG]);
    TRY(model_config_from_hf(&config_view, config));
    TRY(open_weights(dir, &files[TEXT_INDEX]));
    return load_tokenizer(dir, files, config, tokenizer_out);
}

enum status
hf_directory_open(const char *path, struct model_config *config_out,
                  struct tokenizer **tokenizer_out, struct hf_directory **dir_out)
{
    struct hf_directory *dir = mem_zalloc(1, sizeof(*dir));
    struct text_file *files = mem_zalloc(TEXTS, sizeof(files[0]));
    struct model_config config;
    enum status st = ST_OK;

    if (dir != NULL) {
        dir->path = mem_strdup(path);
    }
    if (dir == NULL || files == NULL || dir->path == NULL) {
        st = ERR(ST_NO_MEMORY, "%s: no memory to open it", path);
    } else if (strlen(path) > DIRECTORY_BYTES) {
        st = ERR(ST_INVALID, "a path of %zu bytes; at most %d are served", strlen(path),
                 DIRECTORY_BYTES);
    } else {
        st = read_all(dir, files, &config, tokenizer_out);
    }
    for (size_t i = 0; files != NULL && i < TEXTS; i++) {
        json_release(&files[i].json);
        file_map_close(&files[i].map);
    }
    mem_free(files);
    if (st != ST_OK) {
        hf_directory_close(&dir);
        return st;
    }
    *config_out = config;
    *dir_out = dir;
    return ST_OK;
}

void
hf_directory_close(struct hf_directory **dir)
{
    if (*dir == NULL) {
        return;
    }
    for (size_t i = 0; i < (*dir)->count; i++) {
        safetensors_close(&(*dir)->files[i]);
        mem_free((*dir)->names[i]);
    }
    mem_free((*dir)->path);
    MEM_FREE(*dir);
}

const struct safetensors *const *
hf_directory_files(const struct hf_directory *dir, size_t *count_out)
{
    *count_out = dir->count;
    return (const struct safetensors *const *)dir->files;
}

enum status
hf_directory_identity(const struct hf_directory *dir, uint8_t identity_out[32])
{
    size_t count = TEXTS + dir->count;
    struct file_identity *all = mem_zalloc(count, sizeof(*all));
    enum status st;

    if (all == NULL) {
        return ERR(ST_NO_MEMORY, "%s: %zu files", dir->path, count);
    }
    memcpy(all, dir->identities, sizeof(dir->identities));
    for (size_t i = 0; i < dir->count; i++) {
        all[TEXTS + i] = *safetensors_identity(dir->files[i]);
    }
    st = file_map_digest(dir->path, all, count * sizeof(*all), identity_out);
    mem_free(all);
    return st;
}

static bool
digest_file(EVP_MD_CTX *md, const char *name, const uint8_t digest[32])
{
    uint64_t length = strlen(name);

    return EVP_DigestUpdate(md, &length, sizeof(length)) == 1
           && EVP_DigestUpdate(md, name, length) == 1 && EVP_DigestUpdate(md, digest, 32) == 1;
}

enum status
hf_directory_fingerprint(const struct hf_directory *dir, uint8_t fingerprint_out[32])
{
    static const char domain[] = "kvasir checkpoint directory 1";
    uint8_t digest[32];
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    bool is_fine = md != NULL && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1
                   && EVP_DigestUpdate(md, domain, sizeof(domain)) == 1;

    for (size_t i = 0; is_fine && i < TEXTS; i++) {
        is_fine = !dir->has_text[i] || digest_file(md, texts[i].name, dir->digests[i]);
    }
    for (size_t i = 0; is_fine && i < dir->count; i++) {
        is_fine = safetensors_fingerprint(dir->files[i], digest) == ST_OK
                  && digest_file(md, dir->names[i], digest);
    }
    is_fine = is_fine && EVP_DigestFinal_ex(md, fingerprint_out, NULL) == 1;
    EVP_MD_CTX_free(md);
    return is_fine ? ST_OK : ERR(ST_SYSTEM, "%s: SHA-256 failed", dir->path);
}
