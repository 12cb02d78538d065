/* SPDX-License-Identifier: Apache-2.0 */
/* Replays a fuzz target's corpus: the files named in argv, or all of tests/fuzz/corpus/NAME for a
 * program called fuzz_NAME.  Every input also runs cut short at several lengths: most bugs of
 * parsers are there. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

#define INPUT_BYTES_MAX (64u << 20)
#define CUTS            16

static void
feed(const uint8_t *bytes, size_t length)
{
    /* An exact copy, so that a sanitizer sees a read past the end. */
    uint8_t *copy = malloc(length == 0 ? 1 : length);

    if (copy == NULL) {
        perror("replay");
        exit(EXIT_FAILURE);
    }
    memcpy(copy, bytes, length);
    (void)LLVMFuzzerTestOneInput(copy, length);
    free(copy);
}

static void
replay(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc(INPUT_BYTES_MAX);

    if (file == NULL || bytes == NULL) {
        perror(path);
        exit(EXIT_FAILURE);
    }
    size_t length = fread(bytes, 1, INPUT_BYTES_MAX, file);
    (void)fclose(file);
    feed(bytes, length);
    for (size_t cut = 0; cut < CUTS; cut++) {
        feed(bytes, length * cut / CUTS);
    }
    free(bytes);
}

static size_t
replay_folder(const char *program)
{
    const char *name = strrchr(program, '/');
    const char *srcdir = getenv("KVASIR_SRCDIR");
    char path[4096];
    size_t count = 0;

    name = strstr(name == NULL ? program : name, "fuzz_");
    (void)snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/%s", srcdir == NULL ? "." : srcdir,
                   name == NULL ? program : name + strlen("fuzz_"));
    DIR *folder = opendir(path);
    if (folder == NULL) {
        (void)fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 0;
    }
    size_t folder_length = strlen(path);
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        (void)snprintf(path + folder_length, sizeof(path) - folder_length, "/%s", entry->d_name);
        replay(path);
        count++;
    }
    (void)closedir(folder);
    return count;
}

int
main(int argc, char **argv)
{
    size_t count = (size_t)argc - 1;

    for (int i = 1; i < argc; i++) {
        replay(argv[i]);
    }
    if (argc == 1) {
        count = replay_folder(argv[0]);
    }
    printf("%zu inputs replayed\n", count);
    return count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
