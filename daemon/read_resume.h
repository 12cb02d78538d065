/* SPDX-License-Identifier: Apache-2.0 */
/* read_resume - a retry: what a client has of an answer, checked. */
#ifndef DAEMON_READ_RESUME_H
#define DAEMON_READ_RESUME_H

#include "common/status.h"
#include "daemon/prompt.h"

#include "kvasir/v1/rag.pb-c.h"

/* Into the prompt, whose sampling is read already.  ST_INVALID names what is wrong. */
enum status read_resume(const Kvasir__V1__GenerateRequest *request, uint32_t vocab_size,
                        struct prompt *prompt);

#endif
