/* sections_corpus_main.c - writes what fuzz_sections begins with:  sections_corpus tests/fuzz/corpus/sections
 * */
#include "support/sections_spec.h"

#include <stdio.h>

static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";

static void nothing(struct sections_spec *f)
{
    (void)f;
}

static void one_empty(struct sections_spec *f)
{
    ss_section(f, "TAPE", 0, NULL, 0);
}

static void one_byte(struct sections_spec *f)
{
    ss_section(f, "TAPE", 0, letters, 1);
}

static void seven_bytes(struct sections_spec *f)
{
    ss_section(f, "META", 0, letters, 7);
}

static void eight_bytes(struct sections_spec *f)
{
    ss_section(f, "META", 0, letters, 8);
}

static void spaces(struct sections_spec *f)
{
    ss_section(f, "A  B", 0, letters, 9);
}

static void each_type(struct sections_spec *f)
{
    ss_section(f, "META", 0, letters, 3);
    ss_section(f, "TAPE", 0, letters, 16);
    ss_section(f, "KVKV", 0, letters, 36);
    ss_section(f, "A  B", 0, letters, 5);
}

static void one_type(struct sections_spec *f)
{
    for (size_t i = 0; i < 9; i++)
        ss_section(f, "KVKV", 0, letters + i, i);
}

static void long_one(struct sections_spec *f)
{
    char payload[600];
    for (size_t i = 0; i < sizeof payload; i++)
        payload[i] = (char)(i * 7);
    ss_section(f, "KVKV", 0, payload, sizeof payload);
    ss_section(f, "TAPE", 0, letters, 2);
}

/* A section that looks like the end of a file. */
static void end_inside(struct sections_spec *f)
{
    ss_section(f, "META", 0, "END \0\0\0\0\30\0\0\0\0\0\0\0", 16);
}

static void unknown(struct sections_spec *f)
{
    ss_section(f, "XXXX", 0, letters, 4);
}

static void flags(struct sections_spec *f)
{
    ss_section(f, "TAPE", 1, letters, 4);
}

static void too_long(struct sections_spec *f)
{
    ss_section(f, "TAPE", 0, letters, 4);
    f->buf.data[SS_HEADER_BYTES + 12] = 1; /* 2^32 more than are there */
}

static void second_version(struct sections_spec *f)
{
    f->buf.data[8] = 2;
}

static void other_kind(struct sections_spec *f)
{
    f->buf.data[12]++;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*fill)(struct sections_spec *f);
    } all[] = {
        { "nothing", nothing },       { "empty", one_empty },        { "one", one_byte },
        { "seven", seven_bytes },     { "eight", eight_bytes },      { "spaces", spaces },
        { "each-type", each_type },   { "one-type", one_type },      { "long", long_one },
        { "end-inside", end_inside }, { "unknown", unknown },        { "flags", flags },
        { "too-long", too_long },     { "version", second_version }, { "kind", other_kind },
    };
    if (argc != 2) {
        fprintf(stderr, "usage: sections_corpus FOLDER\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct sections_spec f;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], all[i].name);
        FILE *out = fopen(path, "wb");
        ss_begin(&f, 1, SS_KIND);
        all[i].fill(&f);
        ss_end(&f);
        const bool good = out != NULL && fwrite(f.buf.data, 1, f.buf.len, out) == f.buf.len;
        ss_done(&f);
        if ((out != NULL && fclose(out) != 0) || !good) {
            fprintf(stderr, "sections_corpus: cannot write '%s'\n", path);
            return 1;
        }
    }
    return 0;
}
