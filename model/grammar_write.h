/* SPDX-License-Identifier: Apache-2.0 */
/* grammar_write - how the compiler of schemas writes its program. */
#ifndef MODEL_GRAMMAR_WRITE_H
#define MODEL_GRAMMAR_WRITE_H

#include <json-c/json.h>

#include "model/grammar_private.h"

#define GRAMMAR_REFS_MAX         256
#define GRAMMAR_ALTERNATIVES_MAX 1024
#define NO_RULE                  UINT32_MAX

/* Rules that any schema may use; made when first asked for. */
enum common_rule {
    RULE_SPACE,
    RULE_CHARACTER,
    RULE_STRING,
    RULE_INTEGER,
    RULE_NUMBER,
    RULE_VALUE,
    RULE_OBJECT,
    RULE_ARRAY,
    COMMON_RULES,
};

struct ref {
    const char *name; /* "#/$defs/x", borrowed from the schema */
    uint32_t rule;
};

struct compiler {
    struct grammar *grammar;
    struct json_object *root;
    uint32_t common[COMMON_RULES];
    struct ref refs[GRAMMAR_REFS_MAX];
    size_t ref_count;
    size_t ref_done; /* their rules are compiled */
};

/* Alternatives, one written after the other; all of them go on behind the last. */
struct alternatives {
    uint32_t exits[GRAMMAR_ALTERNATIVES_MAX];
    size_t count;
    uint32_t split; /* of the alternative under way */
};

/* ---- grammar_code.c: instructions ------------------------------------------------------------ */

/* The place of the next instruction. */
uint32_t grammar_here(const struct compiler *c);
enum status grammar_emit(struct compiler *c, enum grammar_op op, uint32_t a, uint32_t b);
enum status grammar_emit_class(struct compiler *c, const struct grammar_class *set);
void grammar_add_range(struct grammar_class *set, unsigned first, unsigned last);
enum status grammar_emit_range(struct compiler *c, unsigned first, unsigned last);
enum status grammar_emit_any_of(struct compiler *c, const char *bytes);
enum status grammar_emit_text(struct compiler *c, const char *text);
enum status grammar_new_rule(struct compiler *c, uint32_t *rule_out);
enum status grammar_call(struct compiler *c, uint32_t rule);
/* A jump, or the second way of a split, that is set when its place is known: grammar_close_here. */
enum status grammar_open_jump(struct compiler *c, uint32_t *at_out);
enum status grammar_open_split(struct compiler *c, uint32_t *at_out);
void grammar_close_here(struct compiler *c, uint32_t at);
enum status grammar_begin_alternative(struct compiler *c, struct alternatives *a, bool is_last);
enum status grammar_end_alternative(struct compiler *c, struct alternatives *a);
/* A rule's code stands where it is first asked for, behind a jump over it. */
enum status grammar_begin_rule(struct compiler *c, uint32_t *rule_out, uint32_t *over_out);
enum status grammar_end_rule(struct compiler *c, uint32_t over);

/* ---- grammar_common.c ------------------------------------------------------------------------ */

/* A common rule, made when it is first asked for. */
enum status grammar_common_rule(struct compiler *c, enum common_rule kind, uint32_t *rule_out);
enum status grammar_call_common(struct compiler *c, enum common_rule kind);
/* Characters between quotes; `max` UINT32_MAX: any number. */
enum status grammar_write_string(struct compiler *c, uint32_t min, uint32_t max);
/* An object of any keys, and values of a rule. */
enum status grammar_write_map(struct compiler *c, uint32_t value);
/* An array of items of a rule; `max` UINT32_MAX: any number. */
enum status grammar_write_list(struct compiler *c, uint32_t item, uint32_t min, uint32_t max);

#endif
