/* SPDX-License-Identifier: Apache-2.0 */
/* docs - the documents a command line names: files, folders, lines of JSON.  Whatever is wrong with
 * them is said with file, line and limit. */
#ifndef CLIENT_DOCS_H
#define CLIENT_DOCS_H

#include <stddef.h>

#include "common/status.h"
#include "kvasir/v1/rag.pb-c.h"

struct json_object; /* of json-c */

#define DOCS_MAX            4096
#define DOCS_BYTES_MAX      (16u << 20) /* of one file: a request holds no more in all */
#define DOCS_JSON_DEPTH_MAX 8

struct docs {
    Kvasir__V1__Segment **segments; /* [count]; with id, title and text */
    size_t count;
    size_t capacity;
};

/* Adds a file, or all files of a folder whose names end in one of `suffixes` (".txt,.md"), sorted
 * by name, folders inside left out.  id is the path, title the name without its suffix. */
enum status docs_add_path(struct docs *docs, const char *path, const char *suffixes);

/* Adds one document a line: {"text": "...", "id": "...", "title": "..."}; only text must be there,
 * other members are skipped.  "-" is stdin. */
enum status docs_add_jsonl(struct docs *docs, const char *path);

void docs_deinit(struct docs *docs);

/* A member of a JSON object as borrowed text; *text_out stays as it is if there is none.  Errors
 * begin with `where`. */
enum status docs_string_member(struct json_object *object, const char *name, const char *where,
                               const char **text_out);

/* Reads a whole text file, "-" for stdin, as UTF-8; the caller frees it with mem_free. */
enum status docs_read_text(const char *path, char **text_out, size_t *length_out);

#endif
