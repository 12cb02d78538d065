/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding.  Special tokens cut a text into runs; BPE cuts a run into words by its split pattern,
 * SPM where no token reaches across; the symbols of a word are merged.  Words repeat, so each
 * scratch remembers those it has seen in a table of one cache line a word.  No allocation but for
 * growing scratch. */
#include "model/tokenizer.h"

#include <assert.h>
#include <string.h>
#include <utf8proc.h>

#include "common/mem.h"
#include "common/utf8.h"
#include "model/tokenizer_private.h"

#define WORD_BYTES_MAX 22 /* what fits with its ids in a cache line; nearly all words of text do */
#define WORD_IDS_MAX   8
#define WORD_SLOTS     16384u /* 1 MiB a thread */

#define SCRATCH_KEEP_BYTES (16u << 20) /* a larger buffer is given back at the next call */

#define MARKS_MAX 256 /* on one character; the wildest real text has some dozens */

struct known_word {
    uint8_t length; /* 0 = free */
    uint8_t id_count;
    char text[WORD_BYTES_MAX];
    uint32_t ids[WORD_IDS_MAX];
};

static_assert(sizeof(struct known_word) <= 64, "one cache line");

struct tokenizer_scratch {
    struct grow text;        /* the run under way */
    struct grow plain;       /* the same after normalisation */
    struct grow code_points; /* of normalisation */
    struct grow symbols;     /* of one word */
    struct grow ids;
    size_t id_count;
    struct merger merger;
    struct pretokenizer_scratch *split;
    struct known_word *words; /* [WORD_SLOTS] of words_of */
    uint8_t words_of[32];     /* fingerprint of a tokenizer */
};

/* One encoding under way. */
struct encoding {
    const struct tokenizer *tokenizer;
    struct tokenizer_scratch *scratch;
    bool has_special; /* a special token is in front of the run at hand */
};

enum status
tokenizer_scratch_new(struct tokenizer_scratch **scratch_out)
{
    struct tokenizer_scratch *scratch = mem_zalloc(1, sizeof(*scratch));

    if (scratch == NULL) {
        return ERR(ST_NO_MEMORY, "tokenizer scratch: out of memory");
    }
    enum status st = pretokenizer_scratch_new(&scratch->split);
    scratch->words = mem_zalloc(WORD_SLOTS, sizeof(scratch->words[0]));
    if (st == ST_OK && scratch->words == NULL) {
        st = ERR(ST_NO_MEMORY, "tokenizer scratch: out of memory");
    }
    if (st != ST_OK) {
        tokenizer_scratch_destroy(&scratch);
        return st;
    }
    *scratch_out = scratch;
    return ST_OK;
}

void
tokenizer_scratch_destroy(struct tokenizer_scratch **scratch)
{
    if (*scratch == NULL) {
        return;
    }
    grow_deinit(&(*scratch)->text);
    grow_deinit(&(*scratch)->plain);
    grow_deinit(&(*scratch)->code_points);
    grow_deinit(&(*scratch)->symbols);
    grow_deinit(&(*scratch)->ids);
    merger_deinit(&(*scratch)->merger);
    pretokenizer_scratch_destroy(&(*scratch)->split);
    MEM_FREE((*scratch)->words);
    MEM_FREE(*scratch);
}

/* Makes the scratch ready for one text: nothing huge kept, no words of another tokenizer. */
static void
begin(struct tokenizer_scratch *scratch, const struct tokenizer *tokenizer)
{
    struct grow *buffers[] = {&scratch->text,       &scratch->plain, &scratch->code_points,
                              &scratch->symbols,    &scratch->ids,   &scratch->merger.links,
                              &scratch->merger.heap};

    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        if (buffers[i]->bytes > SCRATCH_KEEP_BYTES) {
            grow_deinit(buffers[i]);
        }
    }
    if (memcmp(scratch->words_of, tokenizer->fingerprint, sizeof(scratch->words_of)) != 0) {
        memset(scratch->words, 0, WORD_SLOTS * sizeof(scratch->words[0]));
        memcpy(scratch->words_of, tokenizer->fingerprint, sizeof(scratch->words_of));
    }
    scratch->id_count = 0;
}

static enum status
append_id(struct tokenizer_scratch *scratch, uint32_t id)
{
    TRY(grow_reserve(&scratch->ids, scratch->id_count + 1, sizeof(uint32_t)));
    ((uint32_t *)scratch->ids.items)[scratch->id_count++] = id;
    return ST_OK;
}

/* A byte that no other token covers. */
static enum status
append_byte(const struct encoding *enc, uint8_t byte)
{
    uint32_t id = enc->tokenizer->byte_ids[byte];

    id = id == TOKENIZER_NONE ? enc->tokenizer->unknown : id;
    return id == TOKENIZER_NONE ? ST_OK : append_id(enc->scratch, id);
}

/* Appends what merging left; a character without a token falls back to its bytes. */
static enum status
append_symbols(const struct encoding *enc, const uint32_t *symbols, size_t count)
{
    struct tokenizer_scratch *scratch = enc->scratch;
    uint32_t vocab_size = enc->tokenizer->vocab_size;

    for (size_t i = 0; i < count; i++) {
        char bytes[4];

        if (symbols[i] < vocab_size) {
            TRY(append_id(scratch, symbols[i]));
            continue;
        }
        size_t length = utf8_encode(symbols[i] - vocab_size, bytes);
        for (size_t b = 0; b < length; b++) {
            TRY(append_byte(enc, (uint8_t)bytes[b]));
        }
    }
    return ST_OK;
}

/* Fills the scratch's symbols with those of a word; returns how many. */
static size_t
word_symbols(const struct tokenizer *tokenizer, const char *word, size_t length, uint32_t *symbols)
{
    size_t count = 0;

    for (size_t at = 0, bytes = 1; at < length; at += bytes) {
        if (tokenizer->kind == TOKENIZER_SPM) {
            uint32_t code_point = utf8_decode(word + at, &bytes);

            symbols[count++] = tokenizer_symbol(tokenizer, word + at, bytes, code_point);
        } else if (tokenizer->byte_ids[(uint8_t)word[at]] != TOKENIZER_NONE) {
            symbols[count++] = tokenizer->byte_ids[(uint8_t)word[at]];
        }
    }
    return count;
}

static enum status
merge_word(const struct encoding *enc, const char *word, size_t length)
{
    const struct tokenizer *tokenizer = enc->tokenizer;
    struct tokenizer_scratch *scratch = enc->scratch;

    if (tokenizer->pretokenizer != NULL
        && pretokenizer_traits(tokenizer->pretokenizer).takes_whole_words) {
        uint32_t id = text_index_find(&tokenizer->index, &tokenizer->texts, word, length);

        if (id != TOKENIZER_NONE) {
            return append_id(scratch, id);
        }
    }
    TRY(grow_reserve(&scratch->symbols, length, sizeof(uint32_t)));
    uint32_t *symbols = scratch->symbols.items;
    size_t count = word_symbols(tokenizer, word, length, symbols);
    TRY(merge_symbols(&scratch->merger, &tokenizer->pairs, symbols, &count));
    return append_symbols(enc, symbols, count);
}

/* Encodes one word, from memory if it is there. */
static enum status
encode_word(void *arg, const char *word, size_t length)
{
    const struct encoding *enc = arg;
    struct tokenizer_scratch *scratch = enc->scratch;

    if (length > WORD_BYTES_MAX) {
        return merge_word(enc, word, length);
    }
    struct known_word *known = &scratch->words[text_hash(word, length) % WORD_SLOTS];
    if (known->length == length && memcmp(known->text, word, length) == 0) {
        TRY(grow_reserve(&scratch->ids, scratch->id_count + WORD_IDS_MAX, sizeof(uint32_t)));
        uint32_t *ids = (uint32_t *)scratch->ids.items + scratch->id_count;
        memcpy(ids, known->ids, known->id_count * sizeof(ids[0]));
        scratch->id_count += known->id_count;
        return ST_OK;
    }
    size_t first = scratch->id_count;
    TRY(merge_word(enc, word, length));
    if (scratch->id_count - first <= WORD_IDS_MAX) {
        const uint32_t *ids = (const uint32_t *)scratch->ids.items + first;

        known->length = (uint8_t)length;
        known->id_count = (uint8_t)(scratch->id_count - first);
        memcpy(known->text, word, length);
        memcpy(known->ids, ids, known->id_count * sizeof(ids[0]));
    }
    return ST_OK;
}

/* Refuses what would make the sorting of marks, which is quadratic in them, a trap. */
static enum status
check_marks(const char *text, size_t length)
{
    size_t marks = 0;

    for (size_t at = 0, bytes; at < length; at += bytes) {
        uint32_t code_point = utf8_decode(text + at, &bytes);
        bool is_mark = utf8proc_get_property((utf8proc_int32_t)code_point)->combining_class != 0;

        marks = is_mark ? marks + 1 : 0;
        if (marks > MARKS_MAX) {
            return ERR(ST_INVALID, "text has more than %d combining marks in a row", MARKS_MAX);
        }
    }
    return ST_OK;
}

/* Brings text to NFC.  Below U+0300 everything is composed already, which is nearly all text. */
static enum status
compose(struct tokenizer_scratch *scratch, const char **text, size_t *length)
{
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    const utf8proc_uint8_t *from = (const utf8proc_uint8_t *)*text;
    size_t plain = 0;

    while (plain < *length && from[plain] < 0xCC) { /* CC 80 is U+0300 */
        plain++;
    }
    if (plain == *length) {
        return ST_OK;
    }
    TRY(check_marks(*text, *length));
    utf8proc_ssize_t count = utf8proc_decompose(from, (utf8proc_ssize_t)*length, NULL, 0, options);
    if (count < 0) {
        return ERR(ST_INVALID, "text of %zu bytes: %s", *length, utf8proc_errmsg(count));
    }
    /* utf8proc_reencode writes the bytes over the code points, and a zero after them. */
    TRY(grow_reserve(&scratch->code_points, (size_t)count + 1, sizeof(utf8proc_int32_t)));
    utf8proc_int32_t *points = scratch->code_points.items;
    count = utf8proc_decompose(from, (utf8proc_ssize_t)*length, points, count, options);
    count = utf8proc_reencode(points, count, options);
    assert(count >= 0);
    *text = scratch->code_points.items;
    *length = (size_t)count;
    return ST_OK;
}

/* Whether a space goes in front of a run. */
static bool
needs_space(const struct encoding *enc, const char *text)
{
    size_t bytes;
    uint32_t first = utf8_decode(text, &bytes);
    bool has_space = first == ' ' || first == SPM_SPACE;

    switch (enc->tokenizer->space_prefix) {
    case SPACE_PREFIX_NONE: return false;
    case SPACE_PREFIX_EACH_RUN: return true;
    case SPACE_PREFIX_IF_NONE: return !has_space;
    case SPACE_PREFIX_FIRST_RUN: return !has_space && !enc->has_special;
    }
    assert(false);
    return false;
}

/* SentencePiece: a run with its spaces as tokens have them, cut where no token reaches across. */
static enum status
encode_spm_run(struct encoding *enc, const char *text, size_t length)
{
    const struct tokenizer *tokenizer = enc->tokenizer;
    struct tokenizer_scratch *scratch = enc->scratch;

    TRY(grow_reserve(&scratch->plain, length + 1, 1));
    char *plain = scratch->plain.items;
    size_t plain_length = 0;
    size_t word = 0;
    uint32_t previous = ' ';

    if (needs_space(enc, text)) {
        plain[plain_length++] = ' ';
    }
    for (size_t at = 0, bytes; at < length; at += bytes) {
        uint32_t code_point = utf8_decode(text + at, &bytes);

        code_point = code_point == SPM_SPACE ? ' ' : code_point;
        uint32_t bit = join_bit(previous, code_point);
        if ((tokenizer->joins[bit / 64] >> bit % 64 & 1) == 0 && plain_length > word) {
            TRY(encode_word(enc, plain + word, plain_length - word));
            word = plain_length;
        }
        plain_length += utf8_encode(code_point, plain + plain_length);
        previous = code_point;
    }
    return encode_word(enc, plain + word, plain_length - word);
}

/* Encodes what stands between two special tokens. */
static enum status
encode_run(struct encoding *enc, const char *text, size_t length)
{
    const struct tokenizer *tokenizer = enc->tokenizer;

    if (length == 0) {
        return ST_OK;
    }
    if (tokenizer->kind == TOKENIZER_SPM) {
        return encode_spm_run(enc, text, length);
    }
    if (tokenizer->kind == TOKENIZER_BYTES) {
        for (size_t i = 0; i < length; i++) {
            TRY(append_byte(enc, (uint8_t)text[i]));
        }
        return ST_OK;
    }
    if (pretokenizer_traits(tokenizer->pretokenizer).composes) {
        TRY(compose(enc->scratch, &text, &length));
    }
    return pretokenizer_split(tokenizer->pretokenizer, enc->scratch->split, text, length,
                              encode_word, enc);
}

static enum status
check_pieces(const struct tokenizer_piece *pieces, size_t piece_count, size_t *total_out)
{
    size_t total = 0;

    for (size_t i = 0; i < piece_count; i++) {
        if (pieces[i].length > TOKENIZER_TEXT_BYTES_MAX - total) {
            return ERR(ST_INVALID, "text is longer than %u bytes", TOKENIZER_TEXT_BYTES_MAX);
        }
        size_t good = utf8_check(pieces[i].text, pieces[i].length);
        if (good < pieces[i].length) {
            return ERR(ST_INVALID, "text is not UTF-8 at byte %zu", good);
        }
        total += pieces[i].length;
    }
    *total_out = total;
    return ST_OK;
}

enum status
tokenizer_encode_pieces(const struct tokenizer *tokenizer, struct tokenizer_scratch *scratch,
                        const struct tokenizer_piece *pieces, size_t piece_count,
                        const uint32_t **ids_out, size_t *count_out)
{
    struct encoding enc = {.tokenizer = tokenizer, .scratch = scratch};
    size_t total;
    size_t run_length = 0;

    TRY(check_pieces(pieces, piece_count, &total));
    begin(scratch, tokenizer);
    TRY(grow_reserve(&scratch->text, total, 1));
    TRY(grow_reserve(&scratch->ids, total / 4 + 16, sizeof(uint32_t)));
    char *run = scratch->text.items;

    for (size_t i = 0; i < piece_count; i++) {
        const struct tokenizer_piece *piece = &pieces[i];

        for (size_t at = 0; at < piece->length;) {
            size_t special_at = piece->length, special_length = 0;
            uint32_t id =
                special_index_find(&tokenizer->specials, piece->parse_special, piece->text,
                                   piece->length, at, &special_at, &special_length);

            memcpy(run + run_length, piece->text + at, special_at - at);
            run_length += special_at - at;
            at = special_at + special_length;
            if (id != TOKENIZER_NONE) {
                TRY(encode_run(&enc, run, run_length));
                TRY(append_id(scratch, id));
                enc.has_special = true;
                run_length = 0;
            }
        }
    }
    TRY(encode_run(&enc, run, run_length));
    *ids_out = scratch->ids.items;
    *count_out = scratch->id_count;
    return ST_OK;
}

enum status
tokenizer_encode(const struct tokenizer *tokenizer, struct tokenizer_scratch *scratch,
                 const char *text, size_t length, bool parse_special, const uint32_t **ids_out,
                 size_t *count_out)
{
    struct tokenizer_piece piece = {text, length, parse_special};

    return tokenizer_encode_pieces(tokenizer, scratch, &piece, 1, ids_out, count_out);
}

uint32_t
tokenizer_symbol(const struct tokenizer *tokenizer, const char *text, size_t length,
                 uint32_t code_point)
{
    uint32_t id = text_index_find(&tokenizer->index, &tokenizer->texts, text, length);

    return id != TOKENIZER_NONE ? id : tokenizer->vocab_size + code_point;
}

void
tokenizer_fingerprint(const struct tokenizer *tokenizer, uint8_t fingerprint_out[32])
{
    memcpy(fingerprint_out, tokenizer->fingerprint, sizeof(tokenizer->fingerprint));
}

uint32_t
tokenizer_vocab_size(const struct tokenizer *tokenizer)
{
    return tokenizer->vocab_size;
}

uint32_t
tokenizer_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->bos;
}

bool
tokenizer_adds_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->adds_bos;
}

bool
tokenizer_is_end(const struct tokenizer *tokenizer, uint32_t id)
{
    return id < tokenizer->vocab_size && tokenizer->is_end[id];
}

bool
tokenizer_is_control(const struct tokenizer *tokenizer, uint32_t id)
{
    return id < tokenizer->vocab_size
           && (tokenizer->types[id] == TOKEN_CONTROL || tokenizer->types[id] == TOKEN_UNKNOWN);
}

uint32_t
tokenizer_find(const struct tokenizer *tokenizer, const char *text)
{
    size_t length = strlen(text);
    size_t at, found_length;
    uint32_t id =
        special_index_find(&tokenizer->specials, true, text, length, 0, &at, &found_length);

    if (id != TOKENIZER_NONE && at == 0 && found_length == length) {
        return id;
    }
    return text_index_find(&tokenizer->index, &tokenizer->texts, text, length);
}

const char *
tokenizer_chat_template(const struct tokenizer *tokenizer, size_t *length_out)
{
    *length_out = tokenizer->chat_template_bytes;
    return tokenizer->chat_template;
}

void
tokenizer_destroy(struct tokenizer **tokenizer)
{
    if (*tokenizer == NULL) {
        return;
    }
    MEM_FREE((*tokenizer)->texts.bytes);
    MEM_FREE((*tokenizer)->texts.offsets);
    MEM_FREE((*tokenizer)->types);
    MEM_FREE((*tokenizer)->is_end);
    text_index_deinit(&(*tokenizer)->index);
    pair_index_deinit(&(*tokenizer)->pairs);
    special_index_deinit(&(*tokenizer)->specials);
    pretokenizer_destroy(&(*tokenizer)->pretokenizer);
    MEM_FREE((*tokenizer)->joins);
    MEM_FREE((*tokenizer)->chat_template);
    MEM_FREE(*tokenizer);
}
