/* SPDX-License-Identifier: Apache-2.0 */
/* file_map - a file's bytes, mapped for reading.
 *
 * A file cut while it is mapped would fault: checkpoints are not to be written in place. */
#ifndef MODEL_FILE_MAP_H
#define MODEL_FILE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct file_map {
    const uint8_t *bytes;
    size_t length;
};

/* ST_INVALID: no regular file, or empty; ST_NOT_FOUND; ST_SYSTEM if it can't be opened or mapped.
 */
enum status file_map_open(const char *path, struct file_map *map_out);

/* A zeroed map is fine. */
void file_map_close(struct file_map *map);

/* SHA-256 over `length` bytes; `path` is for the message. */
enum status file_map_digest(const char *path, const void *bytes, size_t length,
                            uint8_t digest_out[32]);

#endif
