/* SPDX-License-Identifier: Apache-2.0 */
/* conf_folder - a folder of files NAME.conf, each about one thing. */
#ifndef DAEMON_CONF_FOLDER_H
#define DAEMON_CONF_FOLDER_H

#include <stddef.h>

#include "common/status.h"

/* Takes one file; the name is without its suffix. */
typedef enum status (*conf_folder_fn)(void *arg, const char *path, const char *name);

/* Each file by name, until one is refused; hidden ones and other suffixes are none.  ST_NOT_FOUND:
 * no such folder; ST_INVALID: more than `max` files; ST_SYSTEM. */
enum status conf_folder_each(const char *folder, size_t max, conf_folder_fn take, void *arg);

#endif
