/* SPDX-License-Identifier: Apache-2.0 */
/* A tokenizer.json is a pipeline: added tokens are cut out of the text, then the normaliser, the
 * pre-tokenizer and the model work on what is left.  Ours has two fixed pipelines; this file looks
 * at each part and either finds its place in one of them or refuses it. */
#include "model/tokenizer_hf.h"

#include <inttypes.h>
#include <string.h>

#include "model/tokenizer_load.h"

#define SPACE_MARK "\xE2\x96\x81" /* U+2581 */

/* What ByteLevel cuts by when asked to (use_regex). */
#define BYTE_LEVEL_PATTERN                                                                         \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

#define REFUSE(view, fmt, ...)                                                                     \
    ERR(ST_INVALID, "%s: key %s" fmt, (view)->file, (view)->at, __VA_ARGS__)

#define SHOWN(s) (int)((s).length < 64 ? (s).length : 64), (s).bytes

struct reading {
    struct load *load;
    const struct tokenizer_hf *files;
    struct json_view model;
    struct json_object *vocab;
    struct gguf_string patterns[PRETOKENIZER_PATTERNS_MAX];
    size_t pattern_count;
    bool composes;
    bool prepends_space;
    bool replaces_space;
    bool is_byte_level;
    bool is_metaspace;
    enum space_prefix metaspace_prefix;
};

static bool
is_string(const struct json_view *view, const char *key, const char *text)
{
    return json_is_text(json_text(json_object_object_get(view->object, key)), text);
}

/* A flag that may be left out. */
static enum status
read_flag(const struct json_view *view, const char *key, bool fallback, bool *value_out)
{
    *value_out = fallback;
    return json_has(view, key) ? json_get_bool(view, key, value_out) : ST_OK;
}

static enum status
require_flag(const struct json_view *view, const char *key, bool fallback, bool wanted)
{
    bool value;

    TRY(read_flag(view, key, fallback, &value));
    return value == wanted ? ST_OK
                           : REFUSE(view, "%s is %s: not served", key, value ? "true" : "false");
}

typedef enum status (*part_fn)(struct reading *reading, const struct json_view *part);

/* Calls `take` for the part under `key`, or for each one of a sequence of them. */
static enum status
read_parts(struct reading *reading, const char *key, const char *list_key, part_fn take)
{
    struct json_view part, element;
    struct json_object *list;

    if (!json_has(&reading->files->tokenizer, key)) {
        return ST_OK;
    }
    TRY(json_get_object(&reading->files->tokenizer, key, &part));
    if (!is_string(&part, "type", "Sequence")) {
        return take(reading, &part);
    }
    TRY(json_get_array(&part, list_key, &list));
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        TRY(json_get_element(&part, list_key, list, i, &element));
        TRY(take(reading, &element));
    }
    return ST_OK;
}

static enum status
refuse_type(const struct json_view *part)
{
    struct gguf_string type;

    TRY(json_get_string(part, "type", &type));
    return REFUSE(part, "type: \"%.*s\" is not served in this place", SHOWN(type));
}

/* -- Pipeline ------------------------------------------------------------------------------ */

static enum status
take_normalizer(struct reading *reading, const struct json_view *part)
{
    struct json_view pattern;

    if (is_string(part, "type", "NFC")) {
        reading->composes = true;
        return ST_OK;
    }
    if (is_string(part, "type", "Prepend") && is_string(part, "prepend", SPACE_MARK)
        && !reading->prepends_space) {
        reading->prepends_space = true;
        return ST_OK;
    }
    if (is_string(part, "type", "Replace") && is_string(part, "content", SPACE_MARK)) {
        TRY(json_get_object(part, "pattern", &pattern));
        reading->replaces_space = is_string(&pattern, "String", " ");
        return reading->replaces_space ? ST_OK : REFUSE(&pattern, "%s", "String is not a space");
    }
    return refuse_type(part);
}

static enum status
add_pattern(struct reading *reading, const struct json_view *part, struct gguf_string pattern)
{
    if (reading->pattern_count == PRETOKENIZER_PATTERNS_MAX) {
        return REFUSE(part, "type: more than %d split patterns", PRETOKENIZER_PATTERNS_MAX);
    }
    reading->patterns[reading->pattern_count++] = pattern;
    return ST_OK;
}

static enum status
take_metaspace(struct reading *reading, const struct json_view *part)
{
    bool adds_space;

    if (reading->pattern_count > 0) {
        return REFUSE(part, "%s", "type: Metaspace behind other splits is not served");
    }
    if (!is_string(part, "replacement", SPACE_MARK)) {
        return REFUSE(part, "%s", "replacement is not U+2581: not served");
    }
    TRY(require_flag(part, "split", true, false));
    TRY(read_flag(part, "add_prefix_space", true, &adds_space)); /* what older files say */
    reading->is_metaspace = true;
    reading->metaspace_prefix = adds_space ? SPACE_PREFIX_IF_NONE : SPACE_PREFIX_NONE;
    if (is_string(part, "prepend_scheme", "first")) {
        reading->metaspace_prefix = SPACE_PREFIX_FIRST_RUN;
    } else if (is_string(part, "prepend_scheme", "never")) {
        reading->metaspace_prefix = SPACE_PREFIX_NONE;
    } else if (json_has(part, "prepend_scheme") && !is_string(part, "prepend_scheme", "always")) {
        return REFUSE(part, "%s", "prepend_scheme is none of first, never and always");
    }
    return ST_OK;
}

static enum status
take_pre_tokenizer(struct reading *reading, const struct json_view *part)
{
    bool flag;

    if (reading->is_byte_level || reading->is_metaspace) {
        return REFUSE(part, "%s", "type: nothing is served behind ByteLevel or Metaspace");
    }
    if (is_string(part, "type", "Split")) {
        struct json_view pattern;
        struct gguf_string text;

        TRY(json_get_object(part, "pattern", &pattern));
        TRY(json_get_string(&pattern, "Regex", &text));
        TRY(require_flag(part, "invert", false, false));
        return is_string(part, "behavior", "Isolated")
                   ? add_pattern(reading, part, text)
                   : REFUSE(part, "%s", "behavior: only Isolated is served");
    }
    if (is_string(part, "type", "Digits")) {
        TRY(read_flag(part, "individual_digits", false, &flag));
        const char *text = flag ? "\\p{N}" : "\\p{N}+";
        return add_pattern(reading, part, (struct gguf_string){text, strlen(text)});
    }
    if (is_string(part, "type", "ByteLevel")) {
        TRY(require_flag(part, "add_prefix_space", true, false));
        TRY(read_flag(part, "use_regex", true, &flag));
        if (flag) {
            TRY(add_pattern(reading, part,
                            (struct gguf_string){BYTE_LEVEL_PATTERN, strlen(BYTE_LEVEL_PATTERN)}));
        }
        reading->is_byte_level = true;
        return ST_OK;
    }
    return is_string(part, "type", "Metaspace") ? take_metaspace(reading, part) : refuse_type(part);
}

static enum status
read_model(struct reading *reading)
{
    static const char *const absent[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const struct json_view *model = &reading->model;
    struct gguf_string type;
    struct json_view vocab;
    double dropout = 0;

    TRY(json_get_string(model, "type", &type));
    if (!json_is_text(type, "BPE")) {
        return REFUSE(model, "type: \"%.*s\" is not served, only BPE is", SHOWN(type));
    }
    for (size_t i = 0; i < 2; i++) {
        if (json_has(model, absent[i]) && !is_string(model, absent[i], "")) {
            return REFUSE(model, "%s: not served", absent[i]);
        }
    }
    if (json_has(model, "dropout")) {
        TRY(json_get_f64(model, "dropout", &dropout));
    }
    if (dropout != 0) {
        return REFUSE(model, "dropout is %g: not served", dropout);
    }
    TRY(json_get_object(model, "vocab", &vocab));
    reading->vocab = vocab.object;
    return ST_OK;
}

/* The decoder must undo what we undo. */
static enum status
check_decoder(const struct reading *reading)
{
    struct json_view decoder;

    if (!json_has(&reading->files->tokenizer, "decoder")) {
        return ST_OK;
    }
    TRY(json_get_object(&reading->files->tokenizer, "decoder", &decoder));
    bool is_fine = reading->is_byte_level ? is_string(&decoder, "type", "ByteLevel")
                                          : is_string(&decoder, "type", "Sequence")
                                                || is_string(&decoder, "type", "Metaspace");

    return is_fine ? ST_OK : refuse_type(&decoder);
}

/* Finds which of our two pipelines the parts make. */
static enum status
choose_kind(struct reading *reading)
{
    struct tokenizer *tokenizer = reading->load->tokenizer;
    const struct json_view *model = &reading->model;
    struct pretokenizer_traits traits = {.composes = reading->composes};
    bool has_bytes;

    TRY(read_flag(model, "ignore_merges", false, &traits.takes_whole_words));
    TRY(read_flag(model, "byte_fallback", false, &has_bytes));
    TRY(check_decoder(reading));
    if (reading->is_byte_level) {
        if (reading->replaces_space || reading->prepends_space || has_bytes) {
            return REFUSE(model, "%s", "byte_fallback or marked spaces with ByteLevel: not served");
        }
        tokenizer->kind = TOKENIZER_BPE;
        enum status st = pretokenizer_new_patterns(reading->patterns, reading->pattern_count,
                                                   traits, &tokenizer->pretokenizer);
        return st == ST_OK
                   ? ST_OK
                   : ERR(st, "%s: key pre_tokenizer: %s", reading->load->file, status_detail());
    }
    if (!has_bytes || reading->composes || reading->pattern_count > 0 || traits.takes_whole_words
        || reading->replaces_space == reading->is_metaspace
        || (reading->prepends_space && reading->is_metaspace)) {
        return REFUSE(model, "%s", "type: a BPE neither over bytes nor of SentencePiece's kind");
    }
    tokenizer->kind = TOKENIZER_SPM;
    tokenizer->space_prefix = reading->is_metaspace     ? reading->metaspace_prefix
                              : reading->prepends_space ? SPACE_PREFIX_EACH_RUN
                                                        : SPACE_PREFIX_NONE;
    return ST_OK;
}

/* -- Tokens -------------------------------------------------------------------------------- */

static enum status
set_token(struct reading *reading, struct gguf_string text, int64_t id, uint8_t type)
{
    struct load *load = reading->load;

    if (id < 0 || id >= reading->files->vocab_size) {
        return ERR(ST_INVALID,
                   "%s: %s: token \"%.*s\" has the id %" PRId64 "; the embedding has %" PRIu32
                   " rows",
                   load->file, load->tokens_at, SHOWN(text), id, reading->files->vocab_size);
    }
    struct gguf_string *token = &load->tokens[id];
    if (token->length > 0
        && (token->length != text.length || memcmp(token->bytes, text.bytes, text.length) != 0)) {
        return ERR(ST_INVALID, "%s: %s: tokens \"%.*s\" and \"%.*s\" have the id %" PRId64,
                   load->file, load->tokens_at, SHOWN(*token), SHOWN(text), id);
    }
    *token = text;
    load->tokenizer->types[id] = type;
    return ST_OK;
}

/* Whether the token is a byte of its own. */
static bool
is_one_byte(const struct load *load, struct gguf_string text)
{
    char bytes[2];
    size_t length;

    return text.length <= sizeof(bytes)
           && tokenizer_from_byte_level(load, text.bytes, text.length, bytes, &length)
           && length == 1;
}

/* What a byte without a token becomes differs between the kinds, so all must be there where it
 * would matter. */
static enum status
check_bytes(const struct reading *reading, size_t bytes_found)
{
    bool is_spm = reading->load->tokenizer->kind == TOKENIZER_SPM;

    if (bytes_found == 256 || (!is_spm && !json_has(&reading->model, "unk_token"))) {
        return ST_OK;
    }
    return REFUSE(&reading->model, "vocab: tokens for %zu bytes; %s needs all 256", bytes_found,
                  is_spm ? "byte_fallback" : "unk_token");
}

static enum status
read_vocab(struct reading *reading)
{
    struct load *load = reading->load;
    bool is_spm = load->tokenizer->kind == TOKENIZER_SPM;
    size_t bytes_found = 0;

    TRY(tokenizer_set_count(load, reading->files->vocab_size));
    memset(load->tokenizer->types, TOKEN_UNUSED, reading->files->vocab_size);
    json_object_object_foreach(reading->vocab, key, value)
    {
        struct gguf_string text = {key, strlen(key)};
        bool is_byte = is_spm ? tokenizer_byte_token(text) >= 0 : is_one_byte(load, text);

        if (!json_object_is_type(value, json_type_int)) {
            return ERR(ST_INVALID, "%s: %s: token \"%.*s\" has no id", load->file, load->tokens_at,
                       SHOWN(text));
        }
        TRY(set_token(reading, text, json_object_get_int64(value),
                      is_spm && is_byte ? TOKEN_BYTE : TOKEN_NORMAL));
        bytes_found += is_byte;
    }
    return check_bytes(reading, bytes_found);
}

/* Tokens that are cut out of a text before anything else. */
static enum status
read_added_token(struct reading *reading, const struct json_view *token)
{
    static const char *const absent[] = {"single_word", "lstrip", "rstrip"};
    bool is_normalized, is_special;
    struct json_object *known;
    struct gguf_string text;
    uint64_t id;

    TRY(json_get_string(token, "content", &text));
    TRY(json_get_u64(token, "id", 0, UINT32_MAX, &id));
    TRY(read_flag(token, "special", false, &is_special));
    TRY(read_flag(token, "normalized", !is_special, &is_normalized));
    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++) {
        TRY(require_flag(token, absent[i], false, false));
    }
    if (text.length == 0) {
        return REFUSE(token, "%s", "content is empty");
    }
    if (is_normalized && json_has(&reading->files->tokenizer, "normalizer")) {
        return REFUSE(token, "normalized: \"%.*s\" is looked for in normalised text: not served",
                      SHOWN(text));
    }
    known = json_object_object_get(reading->vocab, text.bytes);
    if (known != NULL && json_object_get_int64(known) != (int64_t)id) {
        return REFUSE(token, "id: \"%.*s\" has the id %" PRIu64 " here, another in the model",
                      SHOWN(text), id);
    }
    return set_token(reading, text, (int64_t)id, is_special ? TOKEN_CONTROL : TOKEN_USER_DEFINED);
}

static enum status
read_added_tokens(struct reading *reading)
{
    const struct json_view *root = &reading->files->tokenizer;
    struct json_object *list;
    struct json_view token;

    if (!json_has(root, "added_tokens")) {
        return ST_OK;
    }
    TRY(json_get_array(root, "added_tokens", &list));
    for (size_t i = 0; i < json_object_array_length(list); i++) {
        TRY(json_get_element(root, "added_tokens", list, i, &token));
        TRY(read_added_token(reading, &token));
    }
    return ST_OK;
}

/* "LEFT RIGHT", or ["LEFT", "RIGHT"], whose parts may have spaces. */
static bool
read_merge(struct json_object *value, struct merge *merge)
{
    if (json_object_is_type(value, json_type_array)) {
        merge->left = json_text(json_object_array_get_idx(value, 0));
        merge->right = json_text(json_object_array_get_idx(value, 1));
        return json_object_array_length(value) == 2 && merge->left.length > 0
               && merge->right.length > 0;
    }
    struct gguf_string text = json_text(value);
    const char *space = text.length < 3 ? NULL : memchr(text.bytes + 1, ' ', text.length - 1);

    if (space == NULL) {
        return false;
    }
    merge->left = (struct gguf_string){text.bytes, (size_t)(space - text.bytes)};
    merge->right = (struct gguf_string){space + 1, text.length - merge->left.length - 1};
    return merge->right.length > 0;
}

static enum status
read_merges(struct reading *reading)
{
    struct load *load = reading->load;
    struct json_object *list;

    TRY(json_get_array(&reading->model, "merges", &list));
    TRY(tokenizer_set_merge_count(load, json_object_array_length(list)));
    for (size_t i = 0; i < load->merge_count; i++) {
        if (!read_merge(json_object_array_get_idx(list, i), &load->merges[i])) {
            return ERR(ST_INVALID, "%s: %s: merge %zu is not two tokens", load->file,
                       load->merges_at, i);
        }
    }
    return ST_OK;
}

/* -- Policies ------------------------------------------------------------------------------ */

/* The id of the token written `text`; TOKENIZER_NONE if there is none. */
static uint32_t
find_token(const struct reading *reading, struct gguf_string text)
{
    const struct load *load = reading->load;

    for (uint32_t id = 0; text.length > 0 && id < load->tokenizer->vocab_size; id++) {
        if (load->tokens[id].length == text.length
            && memcmp(load->tokens[id].bytes, text.bytes, text.length) == 0) {
            return id;
        }
    }
    return TOKENIZER_NONE;
}

/* A token that tokenizer_config.json names: "text", or {"content": "text"}. */
static uint32_t
find_named(const struct reading *reading, const char *key)
{
    struct json_object *value = json_object_object_get(reading->files->config.object, key);

    if (json_object_is_type(value, json_type_object)) {
        value = json_object_object_get(value, "content");
    }
    return find_token(reading, json_text(value));
}

/* A template that starts with a special token adds it. */
static enum status
take_post_processor(struct reading *reading, const struct json_view *part)
{
    struct tokenizer *tokenizer = reading->load->tokenizer;
    struct json_object *single;
    struct json_view first, special;

    if (!is_string(part, "type", "TemplateProcessing")) {
        return ST_OK;
    }
    TRY(json_get_array(part, "single", &single));
    if (json_object_array_length(single) == 0) {
        return ST_OK;
    }
    TRY(json_get_element(part, "single", single, 0, &first));
    if (!json_has(&first, "SpecialToken")) {
        return ST_OK;
    }
    TRY(json_get_object(&first, "SpecialToken", &special));
    struct gguf_string text = json_text(json_object_object_get(special.object, "id"));
    uint32_t id = find_token(reading, text);
    if (id == TOKENIZER_NONE) {
        return REFUSE(&special, "id: there is no token \"%.*s\"", SHOWN(text));
    }
    tokenizer->bos = id;
    tokenizer->adds_bos = true;
    return ST_OK;
}

static enum status
read_bos(struct reading *reading)
{
    struct tokenizer *tokenizer = reading->load->tokenizer;
    const struct json_view *config = &reading->files->config;

    tokenizer->bos = find_named(reading, "bos_token");
    TRY(read_parts(reading, "post_processor", "processors", take_post_processor));
    if (json_has(config, "add_bos_token")) {
        TRY(json_get_bool(config, "add_bos_token", &tokenizer->adds_bos));
    }
    if (tokenizer->bos != TOKENIZER_NONE) {
        tokenizer->types[tokenizer->bos] = TOKEN_CONTROL;
    }
    return ST_OK;
}

static enum status
mark_end(const struct reading *reading, struct json_object *value)
{
    struct tokenizer *tokenizer = reading->load->tokenizer;
    int64_t id = json_object_is_type(value, json_type_int) ? json_object_get_int64(value) : -1;

    if (id < 0 || id >= tokenizer->vocab_size) {
        return REFUSE(&reading->files->generation, "%s: %s is no token's id", "eos_token_id",
                      json_object_to_json_string(value));
    }
    tokenizer->is_end[id] = true;
    return ST_OK;
}

/* A token with a name is a control token, as transformers makes it one; an id may be any token's.
 */
static enum status
read_ends(const struct reading *reading)
{
    struct tokenizer *tokenizer = reading->load->tokenizer;
    struct json_object *value =
        json_object_object_get(reading->files->generation.object, "eos_token_id");
    uint32_t named = find_named(reading, "eos_token");

    if (named != TOKENIZER_NONE) {
        tokenizer->is_end[named] = true;
        tokenizer->types[named] = TOKEN_CONTROL;
    }
    if (!json_object_is_type(value, json_type_array)) {
        return value == NULL ? ST_OK : mark_end(reading, value);
    }
    for (size_t i = 0; i < json_object_array_length(value); i++) {
        TRY(mark_end(reading, json_object_array_get_idx(value, i)));
    }
    return ST_OK;
}

/* A file of its own, or in tokenizer_config.json a text or a list of named ones. */
static enum status
read_template(const struct reading *reading)
{
    const struct json_view *config = &reading->files->config;
    struct json_object *value = json_object_object_get(config->object, "chat_template");
    struct gguf_string text = reading->files->chat_template;
    struct json_view named;

    for (size_t i = 0; text.bytes == NULL && json_object_is_type(value, json_type_array)
                       && i < json_object_array_length(value);
         i++) {
        TRY(json_get_element(config, "chat_template", value, i, &named));
        if (is_string(&named, "name", "default")) {
            TRY(json_get_string(&named, "template", &text));
        }
    }
    if (text.bytes == NULL && json_object_is_type(value, json_type_string)) {
        text = json_text(value);
    }
    return text.bytes == NULL ? ST_OK : tokenizer_set_template(reading->load, text);
}

static enum status
read_hf(struct load *load, const void *source)
{
    struct reading reading = {.load = load, .files = source};

    load->tokens_at = "key model.vocab";
    load->merges_at = "key model.merges";
    TRY(json_get_object(&reading.files->tokenizer, "model", &reading.model));
    TRY(read_model(&reading));
    TRY(read_parts(&reading, "normalizer", "normalizers", take_normalizer));
    TRY(read_parts(&reading, "pre_tokenizer", "pretokenizers", take_pre_tokenizer));
    TRY(choose_kind(&reading));
    TRY(read_vocab(&reading));
    TRY(read_added_tokens(&reading));
    TRY(read_merges(&reading));
    TRY(read_bos(&reading));
    TRY(read_ends(&reading));
    return read_template(&reading);
}

enum status
tokenizer_new_hf(const struct tokenizer_hf *files, struct tokenizer **tokenizer_out)
{
    return tokenizer_load(files->tokenizer.file, read_hf, files, tokenizer_out);
}
