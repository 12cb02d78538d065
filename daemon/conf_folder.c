/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/conf_folder.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX ".conf"

static int
is_entry(const struct dirent *file)
{
    size_t length = strlen(file->d_name);

    return file->d_name[0] != '.' && length > strlen(SUFFIX)
           && strcmp(file->d_name + length - strlen(SUFFIX), SUFFIX) == 0;
}

static enum status
take_file(const char *folder, const char *file, conf_folder_fn take, void *arg)
{
    char path[PATH_MAX], name[NAME_MAX + 1];

    (void)snprintf(path, sizeof(path), "%s/%s", folder, file);
    (void)snprintf(name, sizeof(name), "%.*s", (int)(strlen(file) - strlen(SUFFIX)), file);
    return take(arg, path, name);
}

enum status
conf_folder_each(const char *folder, size_t max, conf_folder_fn take, void *arg)
{
    struct dirent **files = NULL;
    int found = scandir(folder, &files, is_entry, alphasort);
    enum status st = ST_OK;

    if (found < 0) {
        return ERR(errno == ENOENT ? ST_NOT_FOUND : ST_SYSTEM, "%s: %s", folder, strerror(errno));
    }
    if ((size_t)found > max) {
        st = ERR(ST_INVALID, "%s: %d files: the limit is %zu", folder, found, max);
    }
    for (int i = 0; i < found; i++) {
        st = st != ST_OK ? st : take_file(folder, files[i]->d_name, take, arg);
        free(files[i]); /* scandir's */
    }
    free(files);
    return st;
}
