/* gguf_corpus_main.c - writes what fuzz_gguf begins with:  gguf_corpus tests/fuzz/corpus/gguf */
#include "support/gguf_writer.h"

#include <stdio.h>

static const uint64_t eight[] = { 8 }, matrix[] = { 32, 4 }, blocks[] = { 256, 1, 1, 2 };

static void every_type(struct gguf_writer *w)
{
    static const enum md_gguf_type integers[] = { MD_GGUF_U8,  MD_GGUF_I8,  MD_GGUF_U16,
                                                  MD_GGUF_I16, MD_GGUF_U32, MD_GGUF_I32,
                                                  MD_GGUF_U64, MD_GGUF_I64, MD_GGUF_BOOL };
    for (size_t i = 0; i < sizeof integers / sizeof integers[0]; i++)
        gw_int(w, md_gguf_type_name(integers[i]), integers[i], 1);
    gw_f32(w, "f32", 0.5f);
    gw_f64(w, "f64", -1e300);
    gw_string(w, "string", "a\n\xc3\xa4\x1b\xff");
}

static void every_array(struct gguf_writer *w)
{
    static const int64_t v[] = { 1, 0, 1 };
    gw_ints(w, "u8", MD_GGUF_U8, v, 3);
    gw_ints(w, "i16", MD_GGUF_I16, v, 3);
    gw_ints(w, "i32", MD_GGUF_I32, v, 3);
    gw_ints(w, "u64", MD_GGUF_U64, v, 3);
    gw_ints(w, "bool", MD_GGUF_BOOL, v, 3);
    gw_array(w, "f32", MD_GGUF_F32, 1);
    gw_put_u32(w, 0x7fc00000); /* not a number */
    gw_strings(w, "string", (const char *[]){ "", "ab", "\xe2\x82\xac" }, 3);
    gw_ints(w, "none", MD_GGUF_U32, v, 0);
}

static void vocabulary(struct gguf_writer *w)
{
    gw_string(w, "tokenizer.ggml.model", "llama");
    gw_strings(w, "tokenizer.ggml.tokens", (const char *[]){ "<unk>", "<s>", "</s>", "a" }, 4);
    gw_ints(w, "tokenizer.ggml.token_type", MD_GGUF_I32, (const int64_t[]){ 2, 3, 3, 1 }, 4);
}

static void one_tensor(struct gguf_writer *w)
{
    gw_tensor(w, "token_embd.weight", GW_F32, eight, 1, 32);
    gw_zeros(w);
}

static void many_tensors(struct gguf_writer *w)
{
    gw_tensor(w, "a", GW_Q4_0, matrix, 2, 72);
    gw_tensor(w, "b", GW_F16, eight, 1, 16);
    gw_tensor(w, "c", 12, blocks, 4, 288); /* q4_K */
    gw_tensor(w, "d", GW_F32, eight, 0, 4);
    gw_zeros(w);
}

static void aligned(struct gguf_writer *w)
{
    gw_u32(w, "general.alignment", 64);
    w->alignment = 64;
    one_tensor(w);
}

static void split_of_one(struct gguf_writer *w)
{
    gw_int(w, "split.no", MD_GGUF_U16, 0);
    gw_int(w, "split.count", MD_GGUF_U16, 1);
    gw_int(w, "split.tensors.count", MD_GGUF_I32, 1);
    one_tensor(w);
}

static void split_of_two(struct gguf_writer *w)
{
    gw_int(w, "split.no", MD_GGUF_U16, 0);
    gw_int(w, "split.count", MD_GGUF_U16, 2);
}

static void layers(struct gguf_writer *w)
{
    static const int64_t v[] = { 4, 4, 0, 4, 1, 4 }, pattern[] = { 1, 1, 1, 0, 1, 1 };
    gw_string(w, "general.architecture", "llama");
    gw_u32(w, "llama.block_count", 6);
    gw_ints(w, "llama.attention.head_count_kv", MD_GGUF_I32, v, 6);
    gw_u32(w, "llama.attention.sliding_window", 256);
    gw_ints(w, "llama.attention.sliding_window_pattern", MD_GGUF_BOOL, pattern, 6);
}

static void nothing(struct gguf_writer *w)
{
    (void)w;
}

static void version_2(struct gguf_writer *w)
{
    w->buf.data[4] = 2;
    gw_u32(w, "k", 1);
}

static void base12_and_data(struct gguf_writer *w)
{
    gw_done(w);
    gw_base12(w);
    one_tensor(w);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*fill)(struct gguf_writer *w);
    } all[] = {
        { "nothing", nothing },   { "version-2", version_2 },  { "base12", base12_and_data },
        { "types", every_type },  { "arrays", every_array },   { "vocabulary", vocabulary },
        { "tensor", one_tensor }, { "tensors", many_tensors }, { "alignment", aligned },
        { "layers", layers },     { "split-1", split_of_one }, { "split-2", split_of_two },
    };
    if (argc != 2) {
        fprintf(stderr, "usage: gguf_corpus FOLDER\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct gguf_writer w;
        struct md_err err;
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", argv[1], all[i].name);
        gw_init(&w);
        all[i].fill(&w);
        enum md_status s = gw_save(&w, path, &err);
        gw_done(&w);
        if (s != MD_OK) {
            fprintf(stderr, "gguf_corpus: %s\n", err.text);
            return 1;
        }
    }
    return 0;
}
