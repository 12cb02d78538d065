/* SPDX-License-Identifier: Apache-2.0 */
/* The matcher: a Pike machine with calls, whose states are remembered.
 *
 * A thread is an instruction and a stack of return addresses; stacks are shared and interned, so
 * two equal ones have one number.  A state is a sorted set of threads that wait for a byte, or
 * match.  States, threads and stacks have fixed room: when it is full everything but the present
 * state is forgotten and found again when needed. */
#include "model/grammar.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "model/grammar_private.h"

#define STATES_MAX  1024
#define THREADS_MAX 32768 /* of all states */
#define STACKS_MAX  16384
#define SET_MAX     2048 /* threads of one state, and what was looked at to find them */
#define MASKS_MAX   8    /* remembered */
#define BUCKETS     2048 /* of the tables of states and stacks; a power of two */

#define NO_STATE    UINT16_MAX /* not known yet */
#define DEAD        (UINT16_MAX - 1)
#define NO_STACK    UINT32_MAX
#define STACK_EMPTY 0u

struct stack {
    uint32_t return_to;
    uint32_t below;
    uint32_t next; /* of its bucket */
};

struct thread {
    uint32_t pc;
    uint32_t stack;
};

struct state {
    uint32_t thread_first, thread_count;
    uint16_t next; /* of its bucket */
    bool is_match;
};

struct mask {
    uint16_t state; /* NO_STATE: free */
    uint32_t *words;
};

struct grammar_matcher {
    const struct grammar *grammar;
    const struct grammar_vocabulary *vocabulary;
    struct stack *stacks; /* [STACKS_MAX]; 0 is the empty one */
    uint32_t stack_count;
    uint32_t stack_buckets[BUCKETS];
    uint32_t *unwound;        /* [STACKS_MAX], while a stack is made again */
    struct stack *old_stacks; /* [STACKS_MAX], likewise */
    struct thread *threads;   /* [THREADS_MAX] */
    uint32_t thread_count;
    struct state *states; /* [STATES_MAX] */
    uint16_t state_count;
    uint16_t state_buckets[BUCKETS];
    uint16_t (*steps)[256]; /* [STATES_MAX] */
    uint16_t now;
    bool is_full; /* something did not fit since the last reset */

    struct thread set[SET_MAX]; /* being collected: those that wait, from the front; */
    uint32_t set_count;
    struct thread seen[SET_MAX]; /* all that were looked at */
    uint32_t seen_count;

    struct mask masks[MASKS_MAX];
    uint32_t mask_next;
    uint16_t *path; /* states after each byte of a token, [bytes_max + 1] */
};

/* ---- the vocabulary -------------------------------------------------------------------------- */

struct entry {
    const char *bytes;
    uint32_t length;
    uint32_t id;
    uint32_t shared; /* leading bytes that it has in common with the one before */
};

struct grammar_vocabulary {
    struct entry *entries; /* in the order of their bytes */
    size_t count;
    uint32_t *ends; /* ids that end an answer */
    size_t end_count;
    const struct tokenizer *tokenizer;
    uint32_t vocab_size;
    uint32_t bytes_max;
};

static int
by_bytes(const void *a, const void *b)
{
    const struct entry *left = a, *right = b;
    uint32_t common = left->length < right->length ? left->length : right->length;
    int order = memcmp(left->bytes, right->bytes, common);

    return order != 0 ? order : (left->length > right->length) - (left->length < right->length);
}

static void
collect(struct grammar_vocabulary *v)
{
    for (uint32_t id = 0; id < v->vocab_size; id++) {
        size_t length;
        const char *bytes = tokenizer_text(v->tokenizer, id, &length);

        if (tokenizer_is_end(v->tokenizer, id)) {
            v->ends[v->end_count++] = id;
        } else if (length > 0) { /* what gives no text would be written for ever */
            v->entries[v->count++] =
                (struct entry){.bytes = bytes, .length = (uint32_t)length, .id = id};
            v->bytes_max = v->bytes_max > length ? v->bytes_max : (uint32_t)length;
        }
    }
}

static void
find_shared(struct grammar_vocabulary *v)
{
    for (size_t i = 1; i < v->count; i++) {
        const struct entry *before = &v->entries[i - 1];
        struct entry *entry = &v->entries[i];

        while (entry->shared < entry->length && entry->shared < before->length
               && entry->bytes[entry->shared] == before->bytes[entry->shared]) {
            entry->shared++;
        }
    }
}

enum status
grammar_vocabulary_new(const struct tokenizer *tokenizer,
                       struct grammar_vocabulary **vocabulary_out)
{
    struct grammar_vocabulary *v = mem_zalloc(1, sizeof(*v));

    if (v != NULL) {
        v->tokenizer = tokenizer;
        v->vocab_size = tokenizer_vocab_size(tokenizer);
        v->entries = mem_zalloc(v->vocab_size, sizeof(*v->entries));
        v->ends = mem_zalloc(v->vocab_size, sizeof(*v->ends));
    }
    if (v == NULL || v->entries == NULL || v->ends == NULL) {
        grammar_vocabulary_destroy(&v);
        return ERR(ST_NO_MEMORY, "no memory for a sorted vocabulary");
    }
    collect(v);
    qsort(v->entries, v->count, sizeof(*v->entries), by_bytes);
    find_shared(v);
    *vocabulary_out = v;
    return ST_OK;
}

void
grammar_vocabulary_destroy(struct grammar_vocabulary **vocabulary)
{
    if (*vocabulary == NULL) {
        return;
    }
    mem_free((*vocabulary)->entries);
    mem_free((*vocabulary)->ends);
    MEM_FREE(*vocabulary);
}

size_t
grammar_mask_words(const struct grammar_vocabulary *vocabulary)
{
    return ((size_t)vocabulary->vocab_size + 31) / 32;
}

/* ---- stacks ---------------------------------------------------------------------------------- */

static uint32_t
bucket_of(uint32_t a, uint32_t b)
{
    uint64_t mixed = ((uint64_t)a << 32 | b) * 0x9E3779B97F4A7C15u;

    return (uint32_t)(mixed >> 40) & (BUCKETS - 1);
}

static uint32_t
push(struct grammar_matcher *m, uint32_t return_to, uint32_t below)
{
    uint32_t *bucket = &m->stack_buckets[bucket_of(return_to, below)];

    for (uint32_t i = *bucket; i != NO_STACK; i = m->stacks[i].next) {
        if (m->stacks[i].return_to == return_to && m->stacks[i].below == below) {
            return i;
        }
    }
    if (m->stack_count == STACKS_MAX) {
        m->is_full = true;
        return NO_STACK;
    }
    m->stacks[m->stack_count] = (struct stack){return_to, below, *bucket};
    *bucket = m->stack_count;
    return m->stack_count++;
}

/* ---- states ---------------------------------------------------------------------------------- */

static bool
is_seen(const struct grammar_matcher *m, struct thread t)
{
    for (uint32_t i = 0; i < m->seen_count; i++) {
        if (m->seen[i].pc == t.pc && m->seen[i].stack == t.stack) {
            return true;
        }
    }
    return false;
}

/* What was looked at is a queue as well: the front has been followed, the rest is to be. */
static void
look(struct grammar_matcher *m, uint32_t pc, uint32_t stack)
{
    struct thread t = {pc, stack};

    if (stack == NO_STACK || is_seen(m, t)) {
        return;
    }
    if (m->seen_count == SET_MAX) {
        m->is_full = true;
        return;
    }
    m->seen[m->seen_count++] = t;
}

static void
follow(struct grammar_matcher *m, struct thread t)
{
    const struct grammar_insn *insn = &m->grammar->code[t.pc];

    switch ((enum grammar_op)insn->op) {
    case OP_CLASS:
    case OP_MATCH: m->set[m->set_count++] = t; break;
    case OP_SPLIT:
        look(m, insn->a, t.stack);
        look(m, insn->b, t.stack);
        break;
    case OP_JUMP: look(m, insn->a, t.stack); break;
    case OP_CALL: look(m, m->grammar->rules[insn->a], push(m, t.pc + 1, t.stack)); break;
    case OP_RETURN:
        assert(t.stack != STACK_EMPTY);
        look(m, m->stacks[t.stack].return_to, m->stacks[t.stack].below);
        break;
    }
}

static void
follow_all(struct grammar_matcher *m)
{
    m->set_count = 0;
    for (uint32_t i = 0; i < m->seen_count; i++) {
        follow(m, m->seen[i]);
    }
}

static int
by_thread(const void *a, const void *b)
{
    const struct thread *left = a, *right = b;

    return left->pc != right->pc ? (left->pc > right->pc) - (left->pc < right->pc)
                                 : (left->stack > right->stack) - (left->stack < right->stack);
}

static bool
is_set(const struct grammar_matcher *m, const struct state *state)
{
    return state->thread_count == m->set_count
           && memcmp(&m->threads[state->thread_first], m->set, m->set_count * sizeof(m->set[0]))
                  == 0;
}

/* The number of the collected set; DEAD if it is empty or does not fit. */
static uint16_t
intern(struct grammar_matcher *m)
{
    uint32_t hash = m->set_count;
    uint16_t *bucket;

    if (m->is_full || m->set_count == 0) {
        return DEAD;
    }
    qsort(m->set, m->set_count, sizeof(m->set[0]), by_thread);
    for (uint32_t i = 0; i < m->set_count; i++) {
        hash = hash * 31 + bucket_of(m->set[i].pc, m->set[i].stack);
    }
    bucket = &m->state_buckets[hash & (BUCKETS - 1)];
    for (uint16_t i = *bucket; i != NO_STATE; i = m->states[i].next) {
        if (is_set(m, &m->states[i])) {
            return i;
        }
    }
    if (m->state_count == STATES_MAX || m->thread_count + m->set_count > THREADS_MAX) {
        m->is_full = true;
        return DEAD;
    }
    struct state *state = &m->states[m->state_count];

    *state = (struct state){m->thread_count, m->set_count, *bucket, false};
    memcpy(&m->threads[m->thread_count], m->set, m->set_count * sizeof(m->set[0]));
    m->thread_count += m->set_count;
    for (uint32_t i = 0; i < m->set_count; i++) {
        state->is_match |= m->grammar->code[m->set[i].pc].op == OP_MATCH;
    }
    memset(m->steps[m->state_count], 0xff, sizeof(m->steps[0]));
    *bucket = m->state_count;
    return m->state_count++;
}

static uint16_t
find_step(struct grammar_matcher *m, uint16_t from, uint8_t byte)
{
    const struct state *state = &m->states[from];

    m->seen_count = 0;
    for (uint32_t i = 0; i < state->thread_count; i++) {
        struct thread t = m->threads[state->thread_first + i];
        const struct grammar_insn *insn = &m->grammar->code[t.pc];

        if (insn->op == OP_CLASS && grammar_class_has(&m->grammar->classes[insn->a], byte)) {
            look(m, t.pc + 1, t.stack);
        }
    }
    follow_all(m);
    return intern(m);
}

static uint16_t
step(struct grammar_matcher *m, uint16_t from, uint8_t byte)
{
    uint16_t to = m->steps[from][byte];

    if (to == NO_STATE) {
        to = find_step(m, from, byte);
        if (!m->is_full) {
            m->steps[from][byte] = to;
        }
    }
    return to;
}

/* ---- room ------------------------------------------------------------------------------------ */

static void
forget_all(struct grammar_matcher *m)
{
    m->stack_count = 1;
    m->thread_count = 0;
    m->state_count = 0;
    m->is_full = false;
    memset(m->stack_buckets, 0xff, sizeof(m->stack_buckets));
    memset(m->state_buckets, 0xff, sizeof(m->state_buckets));
    for (int i = 0; i < MASKS_MAX; i++) {
        m->masks[i].state = NO_STATE;
    }
}

/* A stack again, bottom first; `old` is the array as it was. */
static uint32_t
push_again(struct grammar_matcher *m, const struct stack *old, uint32_t stack)
{
    uint32_t depth = 0;
    uint32_t result = STACK_EMPTY;

    for (; stack != STACK_EMPTY; stack = old[stack].below) {
        m->unwound[depth++] = old[stack].return_to;
    }
    while (depth > 0 && result != NO_STACK) {
        result = push(m, m->unwound[--depth], result);
    }
    return result;
}

/* Keeps the present state and nothing else.  False: not even that has room. */
static bool
make_room(struct grammar_matcher *m)
{
    struct state now = m->states[m->now];
    uint32_t count = now.thread_count;

    memcpy(m->old_stacks, m->stacks, m->stack_count * sizeof(*m->stacks));
    memcpy(m->seen, &m->threads[now.thread_first], count * sizeof(m->seen[0]));
    forget_all(m);
    m->set_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        m->set[m->set_count++] =
            (struct thread){m->seen[i].pc, push_again(m, m->old_stacks, m->seen[i].stack)};
    }
    m->now = intern(m);
    return m->now != DEAD;
}

static void
start(struct grammar_matcher *m)
{
    forget_all(m);
    m->seen_count = 0;
    look(m, m->grammar->start, STACK_EMPTY);
    follow_all(m);
    m->now = intern(m);
}

enum status
grammar_matcher_new(const struct grammar *grammar, const struct grammar_vocabulary *vocabulary,
                    struct grammar_matcher **matcher_out)
{
    struct grammar_matcher *m = mem_zalloc(1, sizeof(*m));
    size_t words = grammar_mask_words(vocabulary);
    bool is_ok = m != NULL;

    if (is_ok) {
        m->grammar = grammar;
        m->vocabulary = vocabulary;
        m->stacks = mem_zalloc(STACKS_MAX, sizeof(*m->stacks));
        m->old_stacks = mem_zalloc(STACKS_MAX, sizeof(*m->old_stacks));
        m->unwound = mem_zalloc(STACKS_MAX, sizeof(*m->unwound));
        m->threads = mem_zalloc(THREADS_MAX, sizeof(*m->threads));
        m->states = mem_zalloc(STATES_MAX, sizeof(*m->states));
        m->steps = mem_zalloc(STATES_MAX, sizeof(*m->steps));
        m->path = mem_zalloc(vocabulary->bytes_max + (size_t)1, sizeof(*m->path));
        is_ok = m->stacks != NULL && m->old_stacks != NULL && m->unwound != NULL
                && m->threads != NULL && m->states != NULL && m->steps != NULL && m->path != NULL;
        for (int i = 0; i < MASKS_MAX; i++) {
            m->masks[i].words = mem_zalloc(words, sizeof(uint32_t));
            is_ok = is_ok && m->masks[i].words != NULL;
        }
    }
    if (!is_ok) {
        grammar_matcher_destroy(&m);
        return ERR(ST_NO_MEMORY, "no memory for a grammar's states");
    }
    start(m);
    if (m->now == DEAD) {
        grammar_matcher_destroy(&m);
        return ERR(ST_INVALID, "json_schema: it never comes to a first character");
    }
    *matcher_out = m;
    return ST_OK;
}

void
grammar_matcher_destroy(struct grammar_matcher **matcher)
{
    struct grammar_matcher *m = *matcher;

    if (m == NULL) {
        return;
    }
    for (int i = 0; i < MASKS_MAX; i++) {
        mem_free(m->masks[i].words);
    }
    mem_free(m->stacks);
    mem_free(m->old_stacks);
    mem_free(m->unwound);
    mem_free(m->threads);
    mem_free(m->states);
    mem_free(m->steps);
    mem_free(m->path);
    MEM_FREE(*matcher);
}

/* ---- masks ----------------------------------------------------------------------------------- */

static void
allow(uint32_t *words, uint32_t id)
{
    words[id / 32] |= 1u << (id % 32);
}

/* In the order of bytes a token shares a prefix with the one before; `alive` bytes of that one were
 * followed.  Sharing more than that, it is as dead. */
static void
walk(struct grammar_matcher *m, uint32_t *words)
{
    const struct grammar_vocabulary *v = m->vocabulary;
    uint32_t alive = 0;

    m->path[0] = m->now;
    for (size_t i = 0; i < v->count; i++) {
        const struct entry *entry = &v->entries[i];

        if (i > 0 && entry->shared > alive) {
            continue;
        }
        alive = entry->shared;
        while (alive < entry->length) {
            uint16_t to = step(m, m->path[alive], (uint8_t)entry->bytes[alive]);

            if (to == DEAD) {
                break;
            }
            m->path[++alive] = to;
        }
        if (alive == entry->length) {
            allow(words, entry->id);
        }
    }
    for (size_t i = 0; i < v->end_count && m->states[m->now].is_match; i++) {
        allow(words, v->ends[i]);
    }
}

const uint32_t *
grammar_mask(struct grammar_matcher *m)
{
    size_t bytes = grammar_mask_words(m->vocabulary) * sizeof(uint32_t);

    for (int i = 0; i < MASKS_MAX; i++) {
        if (m->masks[i].state == m->now) {
            return m->masks[i].words;
        }
    }
    for (int attempt = 0; attempt < 2; attempt++) {
        struct mask *mask = &m->masks[m->mask_next++ % MASKS_MAX];

        mask->state = NO_STATE;
        memset(mask->words, 0, bytes);
        walk(m, mask->words);
        if (!m->is_full) {
            mask->state = m->now;
            return mask->words;
        }
        if (!make_room(m)) {
            return NULL;
        }
    }
    return NULL;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static bool
is_end(const struct grammar_vocabulary *v, uint32_t id)
{
    for (size_t i = 0; i < v->end_count; i++) {
        if (v->ends[i] == id) {
            return true;
        }
    }
    return false;
}

bool
grammar_accept(struct grammar_matcher *m, uint32_t id)
{
    size_t length;
    const char *bytes = tokenizer_text(m->vocabulary->tokenizer, id, &length);
    uint16_t to = m->now;

    if (is_end(m->vocabulary, id)) {
        return grammar_is_whole(m);
    }
    for (size_t i = 0; i < length && to != DEAD; i++) {
        to = step(m, to, (uint8_t)bytes[i]);
    }
    if (m->is_full && make_room(m)) {
        to = m->now;
        for (size_t i = 0; i < length && to != DEAD; i++) {
            to = step(m, to, (uint8_t)bytes[i]);
        }
    }
    if (length == 0 || to == DEAD) {
        return false;
    }
    m->now = to;
    return true;
}

bool
grammar_is_whole(const struct grammar_matcher *m)
{
    return m->states[m->now].is_match;
}
