/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/mem.h"
#include "model/grammar_write.h"

static enum status
grow(void **array, size_t *capacity, size_t count, size_t size)
{
    void *grown;

    if (count < *capacity) {
        return ST_OK;
    }
    grown = mem_realloc(*array, *capacity == 0 ? 64 : 2 * *capacity, size);
    if (grown == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for a grammar");
    }
    *array = grown;
    *capacity = *capacity == 0 ? 64 : 2 * *capacity;
    return ST_OK;
}

uint32_t
grammar_here(const struct compiler *c)
{
    return (uint32_t)c->grammar->code_count;
}

enum status
grammar_emit(struct compiler *c, enum grammar_op op, uint32_t a, uint32_t b)
{
    struct grammar *g = c->grammar;

    if (g->code_count == GRAMMAR_CODE_MAX) {
        return ERR(ST_INVALID, "json_schema: its program has more than %d instructions",
                   GRAMMAR_CODE_MAX);
    }
    TRY(grow((void **)&g->code, &g->code_capacity, g->code_count, sizeof(*g->code)));
    g->code[g->code_count++] = (struct grammar_insn){op, a, b};
    return ST_OK;
}

enum status
grammar_emit_class(struct compiler *c, const struct grammar_class *set)
{
    struct grammar *g = c->grammar;
    size_t i = 0;

    while (i < g->class_count && memcmp(&g->classes[i], set, sizeof(*set)) != 0) {
        i++;
    }
    if (i == g->class_count) {
        TRY(grow((void **)&g->classes, &g->class_capacity, g->class_count, sizeof(*g->classes)));
        g->classes[g->class_count++] = *set;
    }
    return grammar_emit(c, OP_CLASS, (uint32_t)i, 0);
}

void
grammar_add_range(struct grammar_class *set, unsigned first, unsigned last)
{
    for (unsigned b = first; b <= last; b++) {
        set->bits[b / 32] |= 1u << (b % 32);
    }
}

enum status
grammar_emit_range(struct compiler *c, unsigned first, unsigned last)
{
    struct grammar_class set = {0};

    grammar_add_range(&set, first, last);
    return grammar_emit_class(c, &set);
}

enum status
grammar_emit_any_of(struct compiler *c, const char *bytes)
{
    struct grammar_class set = {0};

    for (; *bytes != '\0'; bytes++) {
        grammar_add_range(&set, (uint8_t)*bytes, (uint8_t)*bytes);
    }
    return grammar_emit_class(c, &set);
}

enum status
grammar_emit_text(struct compiler *c, const char *text)
{
    for (; *text != '\0'; text++) {
        TRY(grammar_emit_range(c, (uint8_t)*text, (uint8_t)*text));
    }
    return ST_OK;
}

enum status
grammar_new_rule(struct compiler *c, uint32_t *rule_out)
{
    struct grammar *g = c->grammar;

    TRY(grow((void **)&g->rules, &g->rule_capacity, g->rule_count, sizeof(*g->rules)));
    g->rules[g->rule_count] = NO_RULE;
    *rule_out = (uint32_t)g->rule_count++;
    return ST_OK;
}

enum status
grammar_call(struct compiler *c, uint32_t rule)
{
    return grammar_emit(c, OP_CALL, rule, 0);
}

/* A jump or the second way of a split that is set when its place is known. */
enum status
grammar_open_jump(struct compiler *c, uint32_t *at_out)
{
    *at_out = grammar_here(c);
    return grammar_emit(c, OP_JUMP, 0, 0);
}

/* Goes on with the next instruction, or elsewhere. */
enum status
grammar_open_split(struct compiler *c, uint32_t *at_out)
{
    *at_out = grammar_here(c);
    return grammar_emit(c, OP_SPLIT, grammar_here(c) + 1, 0);
}

void
grammar_close_here(struct compiler *c, uint32_t at)
{
    struct grammar_insn *insn = &c->grammar->code[at];

    *(insn->op == OP_JUMP ? &insn->a : &insn->b) = grammar_here(c);
}

enum status
grammar_begin_alternative(struct compiler *c, struct alternatives *a, bool is_last)
{
    if (a->count == GRAMMAR_ALTERNATIVES_MAX) {
        return ERR(ST_INVALID, "json_schema: more than %d alternatives", GRAMMAR_ALTERNATIVES_MAX);
    }
    a->split = NO_RULE;
    return is_last ? ST_OK : grammar_open_split(c, &a->split);
}

enum status
grammar_end_alternative(struct compiler *c, struct alternatives *a)
{
    if (a->split != NO_RULE) {
        TRY(grammar_open_jump(c, &a->exits[a->count++]));
        grammar_close_here(c, a->split);
        return ST_OK;
    }
    for (size_t i = 0; i < a->count; i++) {
        grammar_close_here(c, a->exits[i]);
    }
    return ST_OK;
}

/* A rule's code stands where it is first asked for, behind a jump over it. */
enum status
grammar_begin_rule(struct compiler *c, uint32_t *rule_out, uint32_t *over_out)
{
    TRY(grammar_new_rule(c, rule_out));
    TRY(grammar_open_jump(c, over_out));
    c->grammar->rules[*rule_out] = grammar_here(c);
    return ST_OK;
}

enum status
grammar_end_rule(struct compiler *c, uint32_t over)
{
    TRY(grammar_emit(c, OP_RETURN, 0, 0));
    grammar_close_here(c, over);
    return ST_OK;
}
