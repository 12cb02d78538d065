/* SPDX-License-Identifier: Apache-2.0 */
/* file_map - a file's bytes, mapped for reading.
 *
 * A file cut while it is mapped would fault: checkpoints are not to be written in place. */
#ifndef MODEL_FILE_MAP_H
#define MODEL_FILE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

/* What the system says of a file.  Two openings of one host that are told the same have the same
 * bytes, as long as nobody writes a file in place and sets the clock back. */
struct file_identity {
    uint64_t device, inode, length;
    int64_t written_ns, changed_ns;
};

struct file_map {
    const uint8_t *bytes;
    size_t length;
    struct file_identity identity;
};

#define FILE_MAP_LEAF ((size_t)128 << 20) /* bytes */

/* ST_INVALID: no regular file, or empty; ST_NOT_FOUND; ST_SYSTEM if it can't be opened or mapped.
 */
enum status file_map_open(const char *path, struct file_map *map_out);

/* A zeroed map is fine. */
void file_map_close(struct file_map *map);

/* SHA-256 over `length` bytes; of more than FILE_MAP_LEAF bytes, SHA-256 over the length and the
 * SHA-256 of each piece of that size, which threads share.  `path` is for the message. */
enum status file_map_digest(const char *path, const void *bytes, size_t length,
                            uint8_t digest_out[32]);

#endif
