/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/device.h"

#include <string.h>
#include <unistd.h>

enum status
device_create_arena(const struct device *device, const char *label, size_t bytes,
                    struct arena **arena_out)
{
    enum status st = ST_UNAVAILABLE;

    for (size_t i = 0; device->kind->arenas[i] != NULL && st == ST_UNAVAILABLE; i++) {
        st = device->kind->arenas[i]->create(label, bytes, arena_out);
    }
    return st;
}

enum status
device_import_arena(const struct device *device, const char *mechanism, int fd, size_t bytes,
                    bool is_writable, struct arena **arena_out)
{
    for (size_t i = 0; device->kind->arenas[i] != NULL; i++) {
        if (strcmp(device->kind->arenas[i]->name, mechanism) == 0) {
            return device->kind->arenas[i]->import(fd, bytes, is_writable, arena_out);
        }
    }
    (void)close(fd);
    return ERR(ST_INVALID, "an arena made by \"%s\": device %s does not know that", mechanism,
               device->name);
}
