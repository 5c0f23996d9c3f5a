/* record_corpus_main.c - writes what fuzz_record begins with:  record_corpus tests/fuzz/corpus/record */
#include "support/record_spec.h"

#include <stdio.h>

enum { TOKENS = 64, SEGMENTS = 5, BLOCKS = 8 };

static md_token tokens[TOKENS];
static struct md_segment segments[SEGMENTS];
static struct md_record_block blocks[BLOCKS];

static void fill(void)
{
    for (int32_t i = 0; i < TOKENS; i++)
        tokens[i] = i * 37 % 257;
    for (int32_t i = 0; i < SEGMENTS; i++) {
        segments[i] = (struct md_segment){ .range = { i * 4, i * 4 + i },
                                           .kind = (enum md_segment_kind)(i * 3),
                                           .cls = (enum md_cache_class)(i % MD_CLASS_COUNT),
                                           .invalidation = (enum md_invalidation)(i % 3),
                                           .stable = i < 2 };
        snprintf(segments[i].name, sizeof segments[i].name, "name %d", i);
    }
    for (int32_t i = 0; i < BLOCKS; i++)
        blocks[i] = (struct md_record_block){ .cls = (enum md_cache_class)(i % MD_CLASS_COUNT),
                                              .provenance = { (enum md_provenance_kind)(i % 3),
                                                              (uint64_t)(i % 3) * 0x0123456789abcdef },
                                              .lost = i % 4 == 1,
                                              .held_out = i % 4 > 1 };
}

struct row {
    const char *name;
    int32_t block_tokens, prefix, context, tape, common, segments;
    int32_t at, value; /* a field of the head that is changed afterwards; at 0: none */
};

static const struct row rows[] = {
    { "empty", 8, 0, 0, 0, 0, 0, 0, 0 },
    { "context", 64, 0, 3, 0, 0, 0, 0, 0 },
    { "tape", 16, 0, 0, 20, 0, 0, 0, 0 },
    { "answered", 16, 0, 21, 20, 20, 0, 0, 0 },
    { "prefix", 8, 10, 21, 20, 20, 0, 0, 0 },
    { "longer-tape", 8, 10, 10, 40, 10, 0, 0, 0 },
    { "in-part", 8, 0, 30, 20, 7, 0, 0, 0 },
    { "whole-block", 8, 0, 17, 16, 16, 0, 0, 0 },
    { "segments", 8, 4, 33, 32, 32, SEGMENTS, 0, 0 },
    { "many-blocks", 8, 64, 64, 64, 64, 2, 0, 0 },
    { "large-blocks", 4096, 1, 2, 1, 1, 1, 0, 0 },
    { "version", 8, 0, 3, 2, 2, 0, RS_VERSION, 2 },
    { "too-many-tokens", 8, 0, 3, 2, 2, 0, RS_CONTEXT, 0x40000000 },
    { "too-many-segments", 8, 0, 3, 2, 2, 0, RS_SEGMENTS, 0x7fffffff },
    { "common", 8, 0, 3, 2, 2, 0, RS_COMMON, 3 },
    { "flags", 8, 0, 3, 2, 2, 0, RS_FLAGS, 4 },
};

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: record_corpus FOLDER\n");
        return 2;
    }
    fill();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct row *w = &rows[i];
        const struct md_record r = { .id = (int64_t)i + 1,
                                     .parent = (int64_t)i / 2,
                                     .kept = i % 2 == 1,
                                     .bound = i % 3 == 1,
                                     .block_tokens = w->block_tokens,
                                     .prefix_count = w->prefix,
                                     .context = { tokens, w->context, segments, (size_t)w->segments },
                                     .tape = tokens,
                                     .tape_count = w->tape,
                                     .blocks = blocks,
                                     .block_count =
                                         (size_t)((w->tape + w->block_tokens - 1) / w->block_tokens) };
        struct md_buf bytes;
        char path[4096];
        md_buf_init(&bytes, NULL, 4096);
        rs_write(&r, w->common, &bytes);
        if (w->at != 0 || w->value != 0)
            rs_put(bytes.data, (size_t)w->at, w->value, 4);
        snprintf(path, sizeof path, "%s/%s", argv[1], w->name);
        FILE *out = fopen(path, "wb");
        const bool good = out != NULL && fwrite(bytes.data, 1, bytes.len, out) == bytes.len;
        md_buf_done(&bytes);
        if ((out != NULL && fclose(out) != 0) || !good) {
            fprintf(stderr, "record_corpus: cannot write '%s'\n", path);
            return 1;
        }
    }
    return 0;
}
