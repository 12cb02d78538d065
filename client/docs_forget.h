/* SPDX-License-Identifier: Apache-2.0 */
/* docs_forget - drops one document and says what was erased; of kvasir and kvasirctl. */
#ifndef CLIENT_DOCS_FORGET_H
#define CLIENT_DOCS_FORGET_H

#include "client/cli.h"

#define DOCS_FORGET_OPTIONS "abort json"

/* Waits for requests that read it, or with --abort ends them.  Returns the exit code. */
int docs_forget(const struct cli_args *args, struct rpc *rpc, const uint8_t key[32]);

#endif
