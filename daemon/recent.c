/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/recent.h"

#include <stdio.h>
#include <string.h>

#include "common/mem.h"

static void
clear(struct recent_request *request)
{
    for (uint32_t i = 0; i < request->document_count; i++) {
        mem_free(request->documents[i].name);
    }
    mem_free(request->documents);
    *request = (struct recent_request){0};
}

void
recent_deinit(struct recent *recent)
{
    for (size_t i = 0; i < RECENT_REQUESTS_MAX; i++) {
        clear(&recent->requests[i]);
    }
}

static void
note_documents(struct recent_request *request, const struct session *session)
{
    size_t count = session->prompt.document_count < RECENT_DOCUMENTS_MAX
                       ? session->prompt.document_count
                       : RECENT_DOCUMENTS_MAX;

    request->documents = mem_zalloc(count, sizeof(request->documents[0]));
    request->document_count = request->documents == NULL ? 0 : (uint32_t)count;
    for (uint32_t i = 0; i < request->document_count; i++) {
        const struct prompt_document *from = &session->prompt.documents[i];

        request->documents[i] = (struct recent_document){
            .key = from->key,
            .tokens = tokens_count(from->tokens),
            .tokens_reused = session->documents[i].tokens_ready,
            .reason = session->documents[i].reason,
            .is_copied = session->documents[i].is_copied,
            .name = from->name == NULL ? NULL : mem_strdup(from->name),
        };
    }
}

void
recent_note(struct recent *recent, const struct call *call, const struct sched_action *action,
            uint64_t now_us)
{
    struct recent_request *request = &recent->requests[recent->count++ % RECENT_REQUESTS_MAX];

    clear(request);
    request->id = action->request;
    request->end = action->end;
    (void)snprintf(request->message, sizeof(request->message), "%s", action->message);
    request->arrival_us = call->arrival_us;
    request->ended_us = now_us;
    request->trace = call->trace;
    request->usage = action->usage;
    request->reuse = action->session->prompt.reuse;
    request->is_admitted = action->session->admitted_us > 0;
    note_documents(request, action->session);
}

const struct recent_request *
recent_find(const struct recent *recent, uint64_t id)
{
    uint64_t kept = recent->count < RECENT_REQUESTS_MAX ? recent->count : RECENT_REQUESTS_MAX;

    for (uint64_t i = 0; i < kept; i++) {
        if (recent->requests[i].id == id) {
            return &recent->requests[i];
        }
    }
    return NULL;
}

const struct recent_request *
recent_last(const struct recent *recent)
{
    return recent->count == 0 ? NULL : &recent->requests[(recent->count - 1) % RECENT_REQUESTS_MAX];
}
