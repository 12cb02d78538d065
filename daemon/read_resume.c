/* SPDX-License-Identifier: Apache-2.0 */
/* The answer goes on after what an earlier attempt has brought.  Drawing the same again takes the
 * same seed, and only who named it knows it. */
#include "daemon/read_resume.h"

#include "common/mem.h"
#include "daemon/segment.h"

enum status
read_resume(const Kvasir__V1__GenerateRequest *request, uint32_t vocab_size, struct prompt *prompt)
{
    const Kvasir__V1__Resume *resume = request->resume;

    prompt->is_retry = resume != NULL;
    if (resume == NULL || resume->n_token_ids == 0) {
        return ST_OK;
    }
    if (resume->n_token_ids >= prompt->sampling.max_tokens) {
        return ERR(ST_INVALID, "resume with %zu tokens: max_tokens is %u", resume->n_token_ids,
                   prompt->sampling.max_tokens);
    }
    if (prompt->sampling.temperature > 0 && !request->sampling->has_seed) {
        return ERR(ST_INVALID, "resume of a drawn answer needs the seed that it was drawn with");
    }
    TRY(segment_check_ids(vocab_size, resume->token_ids, resume->n_token_ids));
    prompt->resume_ids =
        mem_dup(resume->token_ids, resume->n_token_ids * sizeof(resume->token_ids[0]));
    if (prompt->resume_ids == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for %zu tokens", resume->n_token_ids);
    }
    prompt->resume_count = (uint32_t)resume->n_token_ids;
    prompt->resume_text_bytes = resume->text_bytes;
    return ST_OK;
}
