/* SPDX-License-Identifier: Apache-2.0 */
/* Split patterns as the checkpoints' own tokenizers state them.  A family has up to six patterns;
 * each cuts every piece the one before left, matches and gaps alike, and sees nothing outside its
 * piece.
 *
 * Two things differ from the patterns as published, and change no result.  \s is spelled out, for
 * PCRE2 also counts U+180E as a space.  Where a run of spaces is tried again from each of its
 * places (deepseek-llm's \s+$), a look-behind keeps the search linear: text comes from strangers.
 *
 * PCRE2 10.42 knows Unicode 14: letters younger than that split as symbols. */
#include "model/pretokenize.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "common/mem.h"
#include "model/split_pattern.h"

#define STAGES_MAX PRETOKENIZER_PATTERNS_MAX
#define NAMES_MAX  4

/* Of a pattern that is not ours; some seconds. */
#define FOREIGN_MATCH_LIMIT 100000000u

#define WS SPLIT_WHITE_SPACE

#define GPT2                                                                                       \
    "'(?:[stmd]|re|ve|ll)| ?\\p{L}+| ?\\p{N}+| ?[^" WS "\\p{L}\\p{N}]+|[" WS "]+(?![^" WS          \
    "])|[" WS "]+"

/* Llama 3 and its like differ only in how many digits stay together. */
#define LLAMA3(digits)                                                                             \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^" WS                \
    "\\p{L}\\p{N}]+[\\r\\n]*|[" WS "]*[\\r\\n]+|[" WS "]+(?![^" WS "])|[" WS "]+"

#define CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"

/* Cased letters, as deepseek-llm lists them. */
#define CASED                                                                                      \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"                 \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}"         \
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}"                  \
    "\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"                       \
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"                 \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"                 \
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}"        \
    "\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}"         \
    "\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}"                 \
    "\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"                  \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}"                   \
    "\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}"        \
    "\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}"         \
    "\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}"                  \
    "\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"                 \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"               \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"         \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

static const struct family {
    const char *names[NAMES_MAX]; /* of tokenizer.ggml.pre */
    struct pretokenizer_traits traits;
    const char *patterns[STAGES_MAX];
} families[] = {
    {.names = {"gpt-2", "default"}, .patterns = {GPT2}},
    {.names = {"starcoder", "smollm", "refact", "codeshell"}, .patterns = {"\\p{N}", GPT2}},
    {.names = {"llama-bpe", "llama3", "llama-v3"},
     .traits = {.takes_whole_words = true, .adds_bos = true},
     .patterns = {LLAMA3("\\p{N}{1,3}")}},
    {.names = {"qwen2", "deepseek-r1-qwen"},
     .traits = {.composes = true},
     .patterns = {LLAMA3("\\p{N}")}},
    {.names = {"deepseek-llm"},
     .patterns = {"[\\r\\n]", "[" WS "]?[" CASED "]+",
                  "[" WS "]?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}"
                  "\\x{3000}-\\x{3002}]+",
                  "(?<![" WS "])[" WS "]++\\z", CJK, "\\p{N}"}},
    {.names = {"deepseek-coder"},
     .patterns = {"[\\r\\n]", "[" WS "]?\\p{L}+", "[" WS "]?\\p{P}+", CJK, "\\p{N}"}},
    {.names = {"falcon"}, .patterns = {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}},
};

struct pretokenizer {
    struct pretokenizer_traits traits;
    char *patterns[STAGES_MAX];
    uint32_t match_limit;
    pcre2_code *stages[STAGES_MAX];
    size_t stage_count;
};

struct pretokenizer_scratch {
    pcre2_match_data *match;
    pcre2_match_context *limits;
};

/* PCRE2's memory goes through mem, so that tests can fail it.  A second argument is its own. */
static void *
allocate(size_t bytes, void *unused)
{
    (void)unused;
    return mem_realloc(NULL, bytes, 1);
}

static void
release(void *storage, void *unused)
{
    (void)unused;
    mem_free(storage);
}

static const struct family *
find_family(struct gguf_string name)
{
    for (size_t f = 0; f < sizeof(families) / sizeof(families[0]); f++) {
        for (size_t n = 0; n < NAMES_MAX && families[f].names[n] != NULL; n++) {
            const char *known = families[f].names[n];

            if (strlen(known) == name.length && memcmp(known, name.bytes, name.length) == 0) {
                return &families[f];
            }
        }
    }
    return NULL;
}

/* ST_INVALID if the pattern is wrong: ours are not. */
static enum status
compile_stage(struct pretokenizer *pretokenizer, size_t stage, pcre2_compile_context *context)
{
    uint32_t matches_empty = 0;
    size_t offset;
    int error;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pretokenizer->patterns[stage], PCRE2_ZERO_TERMINATED,
                      PCRE2_UTF | PCRE2_UCP, &error, &offset, context);

    if (code == NULL && error == PCRE2_ERROR_HEAP_FAILED) {
        return ERR(ST_NO_MEMORY, "split patterns: out of memory");
    }
    if (code == NULL) {
        char text[120] = "";

        (void)pcre2_get_error_message(error, (PCRE2_UCHAR *)text, sizeof(text));
        return ERR(ST_INVALID, "split pattern %zu: %s", stage, text);
    }
    pretokenizer->stages[stage] = code;
    (void)pcre2_pattern_info(code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
    if (matches_empty != 0) {
        return ERR(ST_INVALID, "split pattern %zu matches nothing as well: not served", stage);
    }
    /* No machine code where memory may not be executable; then the interpreter runs: 3x slower.
     * None for valgrind, either: such code looks at 16 bytes where fewer are a text's. */
#ifndef KVASIR_VALGRIND
    (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
#endif
    return ST_OK;
}

static enum status
compile(struct pretokenizer *pretokenizer)
{
    enum status st = ST_OK;
    pcre2_general_context *memory = pcre2_general_context_create(allocate, release, NULL);
    pcre2_compile_context *context = memory == NULL ? NULL : pcre2_compile_context_create(memory);

    if (context == NULL) {
        st = ERR(ST_NO_MEMORY, "split patterns: out of memory");
    }
    for (size_t i = 0; st == ST_OK && i < pretokenizer->stage_count; i++) {
        st = compile_stage(pretokenizer, i, context);
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(memory);
    return st;
}

/* Compiles what `pretokenizer` holds, or destroys it. */
static enum status
finish_new(struct pretokenizer *pretokenizer, enum status st,
           struct pretokenizer **pretokenizer_out)
{
    if (st == ST_OK) {
        st = compile(pretokenizer);
    }
    if (st != ST_OK) {
        pretokenizer_destroy(&pretokenizer);
        return st;
    }
    *pretokenizer_out = pretokenizer;
    return ST_OK;
}

enum status
pretokenizer_new(struct gguf_string name, struct pretokenizer **pretokenizer_out)
{
    const struct family *family = find_family(name);
    enum status st = ST_OK;

    if (family == NULL) {
        return ERR(ST_INVALID, "split pattern \"%.*s\" is not served",
                   name.length > 40 ? 40 : (int)name.length, name.bytes);
    }
    struct pretokenizer *pretokenizer = mem_zalloc(1, sizeof(*pretokenizer));
    if (pretokenizer == NULL) {
        return ERR(ST_NO_MEMORY, "split patterns: out of memory");
    }
    pretokenizer->traits = family->traits;
    /* The interpreter counts each step back over a long run of spaces: none of our patterns runs
     * away. */
    pretokenizer->match_limit = UINT32_MAX;
    for (size_t i = 0; st == ST_OK && i < STAGES_MAX && family->patterns[i] != NULL; i++) {
        pretokenizer->patterns[i] = mem_strdup(family->patterns[i]);
        pretokenizer->stage_count++;
        if (pretokenizer->patterns[i] == NULL) {
            st = ERR(ST_NO_MEMORY, "split patterns: out of memory");
        }
    }
    return finish_new(pretokenizer, st, pretokenizer_out);
}

enum status
pretokenizer_new_patterns(const struct gguf_string *patterns, size_t count,
                          struct pretokenizer_traits traits, struct pretokenizer **pretokenizer_out)
{
    enum status st = ST_OK;

    if (count > STAGES_MAX) {
        return ERR(ST_INVALID, "%zu split patterns; at most %d are served", count, STAGES_MAX);
    }
    struct pretokenizer *pretokenizer = mem_zalloc(1, sizeof(*pretokenizer));
    if (pretokenizer == NULL) {
        return ERR(ST_NO_MEMORY, "split patterns: out of memory");
    }
    pretokenizer->traits = traits;
    pretokenizer->match_limit = FOREIGN_MATCH_LIMIT;
    for (size_t i = 0; st == ST_OK && i < count; i++) {
        st = split_pattern_translate(patterns[i], &pretokenizer->patterns[i]);
        pretokenizer->stage_count++;
    }
    return finish_new(pretokenizer, st, pretokenizer_out);
}

void
pretokenizer_destroy(struct pretokenizer **pretokenizer)
{
    if (*pretokenizer == NULL) {
        return;
    }
    for (size_t i = 0; i < STAGES_MAX; i++) {
        pcre2_code_free((*pretokenizer)->stages[i]);
        mem_free((*pretokenizer)->patterns[i]);
    }
    MEM_FREE(*pretokenizer);
}

struct pretokenizer_traits
pretokenizer_traits(const struct pretokenizer *pretokenizer)
{
    return pretokenizer->traits;
}

const char *
pretokenizer_pattern(const struct pretokenizer *pretokenizer, size_t index)
{
    return index < pretokenizer->stage_count ? pretokenizer->patterns[index] : NULL;
}

enum status
pretokenizer_scratch_new(struct pretokenizer_scratch **scratch_out)
{
    pcre2_general_context *memory = pcre2_general_context_create(allocate, release, NULL);
    struct pretokenizer_scratch *scratch = mem_zalloc(1, sizeof(*scratch));

    if (memory != NULL && scratch != NULL) {
        scratch->match = pcre2_match_data_create(1, memory);
        scratch->limits = pcre2_match_context_create(memory);
    }
    pcre2_general_context_free(memory);
    if (scratch == NULL || scratch->match == NULL || scratch->limits == NULL) {
        pretokenizer_scratch_destroy(&scratch);
        return ERR(ST_NO_MEMORY, "split scratch: out of memory");
    }
    *scratch_out = scratch;
    return ST_OK;
}

void
pretokenizer_scratch_destroy(struct pretokenizer_scratch **scratch)
{
    if (*scratch == NULL) {
        return;
    }
    pcre2_match_data_free((*scratch)->match);
    pcre2_match_context_free((*scratch)->limits);
    MEM_FREE(*scratch);
}

/* One split under way. */
struct split {
    const struct pretokenizer *pretokenizer;
    struct pretokenizer_scratch *scratch;
    pretokenizer_word_fn word;
    void *arg;
};

/* The next match of a stage at or after `from`; *begin_out = length if there is none. */
static enum status
find_match(const struct split *split, size_t stage, const char *text, size_t length, size_t from,
           size_t *begin_out, size_t *end_out)
{
    const pcre2_code *code = split->pretokenizer->stages[stage];
    pcre2_match_data *match = split->scratch->match;
    int found = pcre2_match(code, (PCRE2_SPTR)text, length, from, PCRE2_NO_UTF_CHECK, match,
                            split->scratch->limits);

    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
        found = pcre2_match(code, (PCRE2_SPTR)text, length, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                            match, split->scratch->limits);
    }
    if (found == PCRE2_ERROR_NOMATCH) {
        *begin_out = length;
        *end_out = length;
        return ST_OK;
    }
    if (found == PCRE2_ERROR_MATCHLIMIT) {
        return ERR(ST_INVALID, "splitting %zu bytes: the tokenizer's pattern runs away", length);
    }
    if (found < 0) {
        return ERR(ST_NO_MEMORY, "splitting %zu bytes: PCRE2 error %d", length, found);
    }
    const size_t *span = pcre2_get_ovector_pointer(match);
    *begin_out = span[0];
    *end_out = span[1];
    assert(span[1] > span[0]);
    return ST_OK;
}

/* Cuts one piece by the stages from `stage` on.  Recursion is as deep as there are stages. */
static enum status
cut(const struct split *split, size_t stage, const char *text, size_t length)
{
    size_t from = 0;

    if (stage == split->pretokenizer->stage_count) {
        return split->word(split->arg, text, length);
    }
    while (from < length) {
        size_t begin, end;

        TRY(find_match(split, stage, text, length, from, &begin, &end));
        if (begin > from) {
            TRY(cut(split, stage + 1, text + from, begin - from));
        }
        if (end > begin) {
            TRY(cut(split, stage + 1, text + begin, end - begin));
        }
        from = end;
    }
    return ST_OK;
}

enum status
pretokenizer_split(const struct pretokenizer *pretokenizer, struct pretokenizer_scratch *scratch,
                   const char *text, size_t length, pretokenizer_word_fn word, void *arg)
{
    struct split split = {pretokenizer, scratch, word, arg};

    (void)pcre2_set_match_limit(scratch->limits, pretokenizer->match_limit);
    return cut(&split, 0, text, length);
}
