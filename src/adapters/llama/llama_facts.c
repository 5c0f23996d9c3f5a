/* llama_facts.c - what a model file's header says, and what this engine makes of it: the answer of probe().
 * How its layers lie in the KV cache is llama_layout.c's. */
#include "adapters/llama/llama_arch.h"
#include "adapters/llama/llama_check.h"
#include "adapters/llama/llama_internal.h"
#include "host/gguf.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what people read ---- */

/* Indexes are llama.h's enum llama_ftype; the library has no call for its names without a model. */
static const char *const file_types[] = {
    "F32",   "F16",     "Q4_0",   "Q4_1",   NULL,     NULL,      NULL,     "Q8_0",   "Q5_0",
    "Q5_1",  "Q2_K",    "Q3_K_S", "Q3_K_M", "Q3_K_L", "Q4_K_S",  "Q4_K_M", "Q5_K_S", "Q5_K_M",
    "Q6_K",  "IQ2_XXS", "IQ2_XS", "Q2_K_S", "IQ3_XS", "IQ3_XXS", "IQ1_S",  "IQ4_NL", "IQ3_S",
    "IQ3_M", "IQ2_S",   "IQ2_M",  "IQ4_XS", "IQ1_M",  "BF16",    NULL,     NULL,     NULL,
    "TQ1_0", "TQ2_0",   "MXFP4",  "NVFP4",  "Q1_0",   "Q2_0",
};

/* The declared mix, or the type that has most of the bytes. */
static const char *quantisation(struct md_gguf *file)
{
    int64_t type = -1;
    if (md_gguf_int(file, "general.file_type", 0, 1024, &type, NULL) == MD_OK &&
        type < (int64_t)(sizeof file_types / sizeof file_types[0]) && file_types[type] != NULL)
        return file_types[type];
    enum { TYPES_MAX = 64 }; /* more than the format has */
    struct {
        const char *name;
        int64_t bytes;
    } sums[TYPES_MAX] = { 0 };
    int most = 0;
    for (size_t i = 0; i < md_gguf_tensor_count(file); i++) {
        const struct md_gguf_tensor *t = md_gguf_tensor_at(file, i);
        int k = 0;
        while (k < TYPES_MAX - 1 && sums[k].name != NULL && strcmp(sums[k].name, t->type) != 0)
            k++;
        sums[k].name = t->type;
        sums[k].bytes += t->bytes;
        most = sums[k].bytes > sums[most].bytes ? k : most;
    }
    return sums[most].name == NULL ? "" : sums[most].name;
}

static void optional_text(struct md_gguf *file, const char *key, char *out, size_t out_bytes)
{
    out[0] = '\0';
    if (md_gguf_find(file, key) != NULL && md_gguf_string(file, key, out, out_bytes, NULL) != MD_OK)
        out[0] = '\0';
    for (char *c = out; *c != '\0'; c++)
        *c = iscntrl((unsigned char)*c) ? '?' : *c; /* it may be printed */
}

/* "smollm2 135M Q4_1" */
static void describe(struct md_gguf *file, const char *arch, char *out, size_t out_bytes)
{
    char name[64], size[24], type[16];
    optional_text(file, "general.basename", name, sizeof name);
    if (name[0] == '\0')
        optional_text(file, "general.name", name, sizeof name);
    optional_text(file, "general.size_label", size, sizeof size);
    snprintf(type, sizeof type, "%s", quantisation(file));
    for (char *c = type; *c != '\0'; c++)
        *c = (char)toupper((unsigned char)*c);
    const bool said = size[0] == '\0' || strstr(name, size) != NULL;
    snprintf(out, out_bytes, "%s%s%s%s%s", name[0] != '\0' ? name : arch, said ? "" : " ", said ? "" : size,
             type[0] != '\0' ? " " : "", type);
}

static void read_vocabulary(struct md_gguf *file, struct md_model_facts *facts)
{
    const struct md_gguf_entry *e = md_gguf_find(file, "tokenizer.ggml.tokens");
    if (e != NULL && e->is_array && e->count <= INT32_MAX)
        facts->vocab_count = (int32_t)e->count;
}

/* Templates are programs; which features one has shows only in the names it uses. */
static void read_template(struct md_gguf *file, struct md_template_facts *t)
{
    enum { BYTES = 64 << 10 };
    char *text = malloc(BYTES);
    if (text != NULL && md_gguf_string(file, "tokenizer.chat_template", text, BYTES, NULL) == MD_OK)
        *t = (struct md_template_facts){ .present = true,
                                         .tools = strstr(text, "tools") != NULL,
                                         .thinking = strstr(text, "enable_thinking") != NULL ||
                                                     strstr(text, "<think>") != NULL,
                                         .effort = strstr(text, "reasoning_effort") != NULL,
                                         .think_tag = strstr(text, "<think>") != NULL };
    free(text);
}

/* ---- what becomes of it ---- */

void md_llama_refuse_to_load(struct md_model_facts *facts, const char *code)
{
    int n = 0;
    while (facts->unsupported[n] != NULL)
        n++;
    facts->unsupported[n] = code;
    facts->loadable = false;
}

/* What the library would stop the process for can still be planned, but not opened. */
static enum md_status judge(struct md_gguf *file, const struct md_llama_arch *arch,
                            struct md_model_facts *facts, struct md_err *err)
{
    struct md_err why;
    enum md_status s = md_llama_check(file, arch, facts, &why);
    if (s != MD_INVALID)
        return s == MD_OK ? MD_OK : md_fail(err, s, "%s", why.text);
    md_llama_refuse_to_load(facts, "invalid_for_engine");
    snprintf(facts->refusal, sizeof facts->refusal, "%.390s", why.text);
    return MD_OK;
}

static enum md_status read_architecture(struct md_gguf *file, struct md_model_facts *facts,
                                        struct md_err *err)
{
    static const char key[] = "general.architecture";
    if (md_gguf_find(file, key) == NULL)
        return md_fail(err, MD_INVALID, "model '%s': '%s' is missing", md_gguf_path(file), key);
    enum md_status s = md_gguf_string(file, key, facts->architecture, sizeof facts->architecture, err);
    if (s == MD_OK && facts->architecture[0] == '\0')
        return md_fail(err, MD_INVALID, "model '%s': '%s' is empty", md_gguf_path(file), key);
    return s;
}

/* ---- the door ---- */

enum md_status md_llama_read_facts(struct md_gguf *file, struct md_model_facts *ret_facts, struct md_err *err)
{
    struct md_model_facts facts = { .loadable = true, .file_bytes = md_gguf_file_bytes(file) };
    enum md_status s = read_architecture(file, &facts, err);
    if (s != MD_OK)
        return s;
    const struct md_llama_arch *arch = md_llama_arch_find(facts.architecture);
    if (arch->memory == MD_LLAMA_MEMORY_UNKNOWN)
        return md_fail(err, MD_UNSUPPORTED, "model '%s': KV layout of architecture '%s' is not known",
                       md_gguf_path(file), facts.architecture);
    describe(file, facts.architecture, facts.description, sizeof facts.description);
    if (arch->code != NULL)
        md_llama_refuse_to_load(&facts, arch->code);
    if (arch->memory != MD_LLAMA_MEMORY_NONE)
        s = md_llama_read_layout(file, arch, &facts, err);
    if (s == MD_OK && arch->memory != MD_LLAMA_MEMORY_NONE)
        s = md_llama_read_rope(file, arch, &facts, err);
    read_vocabulary(file, &facts);
    read_template(file, &facts.chat_template);
    if (s == MD_OK && facts.loadable)
        s = judge(file, arch, &facts, err);
    if (s == MD_INVALID && arch->window.pattern == MD_LLAMA_PATTERN_DECLARED && err != NULL) {
        struct md_err missing = *err; /* an architecture without a row may have no such key */
        return md_fail(err, MD_UNSUPPORTED, "architecture '%s' is not known, and %s", facts.architecture,
                       missing.text);
    }
    if (s == MD_OK)
        *ret_facts = facts;
    return s;
}

enum md_status md_llama_probe(const char *model_path, struct md_model_facts *ret_facts, struct md_err *err)
{
    struct md_gguf *file = NULL;
    enum md_status s = md_llama_file_open(model_path, &file, err);
    if (s == MD_OK)
        s = md_llama_read_facts(file, ret_facts, err);
    md_gguf_close(file);
    return s;
}
