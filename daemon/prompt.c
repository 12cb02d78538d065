/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/prompt.h"

#include "common/mem.h"

void
prompt_deinit(struct prompt *prompt)
{
    for (size_t i = 0; i < prompt->document_count; i++) {
        tokens_release(&prompt->documents[i].tokens);
        mem_free(prompt->documents[i].name);
    }
    mem_free(prompt->documents);
    mem_free(prompt->turn_keys);
    tokens_release(&prompt->query);
    mem_free(prompt->resume_ids);
    for (uint32_t i = 0; i < prompt->sampling.stop_count; i++) {
        mem_free(prompt->sampling.stops[i]);
    }
    mem_free(prompt->sampling.biases);
    mem_free(prompt->sampling.json_schema);
    *prompt = (struct prompt){0};
}
