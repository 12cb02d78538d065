/* SPDX-License-Identifier: Apache-2.0 */
/* encode FILE.gguf | encode tokenizer.json VOCAB_SIZE: texts from stdin, each ended by NUL, to
 * lines of token ids; special tokens are taken where they are written.  For comparisons with other
 * tokenizers (compare_tokenizer_json.py). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/file_map.h"
#include "model/gguf.h"
#include "model/tokenizer_hf.h"

static void
must(enum status st)
{
    if (st != ST_OK) {
        (void)fprintf(stderr, "encode: %s\n", status_detail());
        exit(EXIT_FAILURE);
    }
}

static struct tokenizer *
open_gguf(const char *path)
{
    struct tokenizer *tokenizer = NULL;
    struct gguf *gguf = NULL;

    must(gguf_open(path, &gguf));
    must(tokenizer_new(gguf, &tokenizer));
    gguf_close(&gguf);
    return tokenizer;
}

static struct tokenizer *
open_json(const char *path, const char *vocab_size)
{
    struct tokenizer *tokenizer = NULL;
    struct json_object *root = NULL;
    struct file_map map;

    must(file_map_open(path, &map));
    must(json_parse(path, (const char *)map.bytes, map.length, &root));
    struct tokenizer_hf files = {.tokenizer = json_root(path, root),
                                 .vocab_size = (uint32_t)strtoul(vocab_size, NULL, 10)};
    must(tokenizer_new_hf(&files, &tokenizer));
    json_release(&root);
    file_map_close(&map);
    return tokenizer;
}

int
main(int argc, char **argv)
{
    struct tokenizer_scratch *scratch = NULL;
    char *text = NULL;
    size_t room = 0;
    ssize_t length;

    if (argc != 2 && argc != 3) {
        (void)fprintf(stderr, "usage: encode FILE.gguf | encode tokenizer.json VOCAB_SIZE\n");
        return 2;
    }
    struct tokenizer *tokenizer = argc == 2 ? open_gguf(argv[1]) : open_json(argv[1], argv[2]);
    must(tokenizer_scratch_new(&scratch));
    while ((length = getdelim(&text, &room, '\0', stdin)) > 0) {
        const uint32_t *ids;
        size_t count;

        must(tokenizer_encode(tokenizer, scratch, text, (size_t)length - 1, true, &ids, &count));
        for (size_t i = 0; i < count; i++) {
            (void)printf("%s%" PRIu32, i == 0 ? "" : " ", ids[i]);
        }
        (void)printf("\n");
    }
    tokenizer_scratch_destroy(&scratch);
    tokenizer_destroy(&tokenizer);
    free(text);
    return EXIT_SUCCESS;
}
