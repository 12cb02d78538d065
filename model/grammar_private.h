/* SPDX-License-Identifier: Apache-2.0 */
/* grammar_private - the program: what the compiler writes and the matcher runs. */
#ifndef MODEL_GRAMMAR_PRIVATE_H
#define MODEL_GRAMMAR_PRIVATE_H

#include "model/grammar.h"

enum grammar_op {
    OP_CLASS, /* one byte of class a */
    OP_SPLIT, /* go on at a and at b */
    OP_JUMP,  /* go on at a */
    OP_CALL,  /* rule a, then the next instruction */
    OP_RETURN,
    OP_MATCH, /* the answer may end here */
};

struct grammar_insn {
    uint32_t op;
    uint32_t a, b;
};

struct grammar_class {
    uint32_t bits[8]; /* of 256 bytes */
};

struct grammar {
    struct grammar_insn *code;
    size_t code_count, code_capacity;
    struct grammar_class *classes;
    size_t class_count, class_capacity;
    uint32_t *rules; /* where each begins */
    size_t rule_count, rule_capacity;
    uint32_t start;
};

static inline bool
grammar_class_has(const struct grammar_class *set, uint8_t byte)
{
    return (set->bits[byte / 32] >> (byte % 32) & 1) != 0;
}

#endif
