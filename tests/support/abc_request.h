/* SPDX-License-Identifier: Apache-2.0 */
/* abc_request - the request that most tests of the engine ask: a query over three documents. */
#ifndef TESTS_SUPPORT_ABC_REQUEST_H
#define TESTS_SUPPORT_ABC_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include "tests/support/engine_rig.h"

#define ANSWER_TOKENS 24

/* Token ids of five documents and a query; fill_all gives them their values. */
extern uint32_t doc_a[37], doc_b[16], doc_c[61], doc_d[1], doc_e[48];
extern uint32_t query[11];

void fill_all(void);
void fill_ids(uint32_t *ids, size_t count, uint32_t seed);

/* A request over documents a, b, c, all built by its Assign as builds 1, 2, 3. */
struct abc {
    struct rig_doc docs[3];
};

struct abc abc_new(struct rig *rig);
void abc_free(struct abc *abc);
struct rig_request abc_request(const struct abc *abc, uint64_t id);

/* The answer of request 1 when it is alone and nothing disturbs it.  Restarts the rig. */
void run_alone(struct rig *rig, struct rig_heard *heard_out);

void check_same_answer(const struct rig_heard *a, const struct rig_heard *b);

#endif
