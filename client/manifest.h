/* SPDX-License-Identifier: Apache-2.0 */
/* manifest - what a corpus is to hold: a JSON object a line.
 *
 *   {"id": "faq/7", "version": "2026-11-29", "path": "faq/7.md", "weight": 3, "pin": true,
 *    "ttl": "12h"}
 *
 * `id` names the document for good.  Exactly one of `path` (relative to the manifest's folder),
 * `text` and `tokens` says what it is; `title` goes with text and path.  `version` is the client's
 * own; as long as it stays the same the file is not even read.  `weight` (1) is how often it is
 * expected to be asked for beside the others; `pin` keeps it resident, `ttl` until then. */
#ifndef CLIENT_MANIFEST_H
#define CLIENT_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define MANIFEST_LINE_MAX (16u << 20) /* bytes */

struct manifest_document {
    char *id; /* all strings are owned; NULL if absent, but for id */
    char *version, *path, *text, *title;
    uint32_t *tokens; /* [token_count], owned */
    size_t token_count;
    double weight;
    bool is_pinned;
    uint64_t ttl_ms; /* 0: none */
};

/* Parses one line; `where` ("FILE:LINE") begins every refusal.  ST_INVALID, ST_NO_MEMORY. */
enum status manifest_parse(const char *line, size_t length, const char *where,
                           struct manifest_document *document_out);

/* Frees what it owns; a zeroed one is fine. */
void manifest_deinit(struct manifest_document *document);

#endif
