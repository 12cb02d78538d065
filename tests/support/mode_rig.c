/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/mode_rig.h"

#include <check.h>

#include "common/mem.h"

struct rig_config
modes_config(void)
{
    return (struct rig_config){
        .block_tokens = 32, .block_count = 128, .step_tokens = 48, .seqs_max = 8};
}

void
make_docs(struct rig *rig, const struct cut *cut, enum mode mode, struct rig_doc docs[DOCS_MAX])
{
    uint32_t offset = 0;

    for (uint32_t d = 0; d < cut->n_docs; d++) {
        uint32_t n = cut->lengths[d];

        docs[d] = (struct rig_doc){
            .ids = cut->ids + offset, .n_ids = n, .blocks = rig_blocks(rig, n), .build = d + 1};
        if (mode == MODE_PREFIX) {
            docs[d].place.context = d;
            docs[d].place.position = offset;
        } else if (mode == MODE_REENCODE && n > 0) {
            struct rig_doc source = docs[d];

            source.build = 11 + d;
            source.blocks = rig_blocks(rig, n);
            rig_assign(rig, &(struct rig_request){.docs = &source, .n_docs = 1, .order = 1});
            docs[d].place.source_blocks = source.blocks;
            docs[d].place.source_build = source.build;
            docs[d].place.position = offset;
        }
        offset += n;
    }
}

void
free_docs(struct rig_doc *docs, uint32_t count)
{
    for (uint32_t d = 0; d < count; d++) {
        mem_free(docs[d].blocks);
        if (docs[d].place.source_blocks != NULL) {
            mem_free((void *)(uintptr_t)docs[d].place.source_blocks);
        }
    }
}

void
run_mode(struct rig *rig, const struct cut *cut, enum mode mode, struct rig_request request)
{
    struct rig_config config = rig->config;
    struct rig_doc docs[DOCS_MAX];
    uint32_t doc_tokens = 0;

    rig_restart(rig, &config);
    for (uint32_t d = 0; d < cut->n_docs; d++) {
        doc_tokens += cut->lengths[d];
    }
    request.id = 1;
    request.query = cut->ids + doc_tokens;
    request.n_query = cut->count - doc_tokens;
    request.ignores_end = true;
    if (mode == MODE_NONE) {
        request.query = cut->ids;
        request.n_query = cut->count;
        request.own_document_tokens = doc_tokens;
        rig_assign(rig, &request);
        rig_run(rig);
    } else {
        make_docs(rig, cut, mode, docs);
        request.docs = docs;
        request.n_docs = cut->n_docs;
        rig_assign(rig, &request);
        rig_run(rig);
        ck_assert_uint_eq(rig->heard[1].tokens_reused, doc_tokens);
        free_docs(docs, cut->n_docs);
    }
    ck_assert_str_eq(rig->heard[1].error, "");
}
