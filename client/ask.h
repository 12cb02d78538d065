/* SPDX-License-Identifier: Apache-2.0 */
/* ask - the command `kvasir ask`. */
#ifndef CLIENT_ASK_H
#define CLIENT_ASK_H

#include "client/cli.h"
#include "client/docs.h"

/* Options of ask beside those of the documents, for the command table. */
#define ASK_OPTIONS                                                                                \
    "system raw max-tokens temperature top-k top-p min-p repetition-penalty seed stop logprobs "   \
    "priority reuse ignore-end stream-json usage trace quiet"

int ask_run(const struct cli_args *args);

/* Adds what --docs, --jsonl and --suffixes name, in the order given. */
enum status ask_load_docs(const struct cli_args *args, struct docs *docs);

#endif
