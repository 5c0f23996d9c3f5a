/* llama_model.c - the shared library's start and a model file's way into memory.
 *
 * A file is looked at by our own reader before the loader sees it: the loader maps tensors, so that a cut
 * file would be met only when its missing pages are touched, and asserts on values it does not like. */
#include "adapters/llama/llama_internal.h"
#include "host/gguf.h"
#include "host/paths.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#ifndef MODELD_LLAMA_LIBDIR
#define MODELD_LLAMA_LIBDIR ""
#endif
#ifndef MODELD_LLAMA_LIBDIR_INSTALLED
#define MODELD_LLAMA_LIBDIR_INSTALLED "../lib/modeld"
#endif

enum { PATH_BYTES = 4096 };

static pthread_once_t library_once = PTHREAD_ONCE_INIT;
static char library_dir[PATH_BYTES];

/* The environment wins, then the folder an installed program brings, then the build's own. */
static void find_library_dir(char *out, size_t out_bytes)
{
    const char *env = getenv("MODELD_LLAMA_LIBDIR");
    if (env != NULL && env[0] != '\0') {
        snprintf(out, out_bytes, "%s", env);
        return;
    }
    char exe[PATH_BYTES];
    if (md_paths_program_folder(exe, sizeof exe)) {
        int m = snprintf(out, out_bytes, "%s/%s", exe, MODELD_LLAMA_LIBDIR_INSTALLED);
        struct stat st;
        if (m > 0 && (size_t)m < out_bytes && stat(out, &st) == 0 && S_ISDIR(st.st_mode))
            return;
    }
    snprintf(out, out_bytes, "%s", MODELD_LLAMA_LIBDIR);
}

static void library_start(void)
{
    md_llama_log_install();
    find_library_dir(library_dir, sizeof library_dir);
    if (library_dir[0] != '\0')
        ggml_backend_load_all_from_path(library_dir);
    llama_backend_init();
}

enum md_status md_llama_library_ready(struct md_err *err)
{
    pthread_once(&library_once, library_start);
    if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) == NULL)
        return md_fail(err, MD_UNSUPPORTED,
                       "no processor library of llama.cpp in '%s': set MODELD_LLAMA_LIBDIR to its folder",
                       library_dir);
    return MD_OK;
}

static int gpu_count(void)
{
    int n = 0;
    for (size_t i = 0; i < ggml_backend_dev_count(); i++) {
        enum ggml_backend_dev_type t = ggml_backend_dev_type(ggml_backend_dev_get(i));
        n += t == GGML_BACKEND_DEVICE_TYPE_GPU || t == GGML_BACKEND_DEVICE_TYPE_IGPU;
    }
    return n;
}

enum md_status md_llama_file_open(const char *path, struct md_gguf **ret_file, struct md_err *err)
{
    if (path == NULL || path[0] == '\0')
        return md_fail(err, MD_INVALID, "no model file is named");
    return md_gguf_open(path, ret_file, err);
}

static bool ends_with(const char *s, const char *tail)
{
    size_t a = strlen(s), b = strlen(tail);
    return a >= b && strcmp(s + a - b, tail) == 0;
}

/* ---- values the library asserts on instead of refusing (load_hparams) ---- */

static enum md_status check_scaling(struct md_gguf *f, const char *arch, struct md_err *err)
{
    static const char *const known[] = { "none", "linear", "yarn", "longrope" };
    char key[160], type[40];
    snprintf(key, sizeof key, "%s.rope.scaling.type", arch);
    if (md_gguf_find(f, key) == NULL)
        return MD_OK;
    enum md_status s = md_gguf_string(f, key, type, sizeof type, err);
    for (size_t i = 0; i < sizeof known / sizeof known[0] && s == MD_OK; i++)
        if (strcmp(type, known[i]) == 0)
            return MD_OK;
    return s != MD_OK ? s
                      : md_fail(err, MD_UNSUPPORTED,
                                "model '%s' scales its positions in the way '%s': none, linear, "
                                "yarn and longrope are known",
                                md_gguf_path(f), type);
}

static enum md_status refuse_value(struct md_gguf *f, const struct md_gguf_entry *e, const char *wanted,
                                   struct md_err *err)
{
    char text[48];
    md_gguf_value_text(f, e, text, sizeof text);
    return md_fail(err, MD_INVALID, "model '%s' has the value %s for '%s': %s is supported", md_gguf_path(f),
                   text, e->key, wanted);
}

static enum md_status check_values(struct md_gguf *f, struct md_err *err)
{
    char arch[64] = "";
    for (size_t i = 0; i < md_gguf_entry_count(f); i++) {
        const struct md_gguf_entry *e = md_gguf_entry_at(f, i);
        int64_t count;
        double value;
        if (ends_with(e->key, ".block_count") && !e->is_array &&
            md_gguf_int(f, e->key, 1, MD_LAYERS_MAX, &count, NULL) != MD_OK)
            return refuse_value(f, e, "1 to 512", err);
        if ((ends_with(e->key, "norm_rms_epsilon") || ends_with(e->key, "norm_epsilon")) &&
            (md_gguf_real(f, e->key, &value, NULL) != MD_OK || !(value >= 0 && value < 1)))
            return refuse_value(f, e, "0 or more and below 1", err);
    }
    enum md_status s = md_gguf_find(f, "general.architecture") == NULL
                           ? MD_OK /* the loader says so */
                           : md_gguf_string(f, "general.architecture", arch, sizeof arch, err);
    return s == MD_OK ? check_scaling(f, arch, err) : s;
}

/* ---- two tokens of one text, which it asserts on too ---- */

struct texts {
    uint64_t *hashes;
    size_t count, limit;
    bool searching, found; /* once `twice` is known: for its text */
    uint64_t twice;
    char text[48];
};

/* The library takes a text up to its first NUL, and names an empty one by its number. */
static void as_named(const char *text, size_t len, size_t index, char *name, size_t name_bytes,
                     const char **ret_text, size_t *ret_len)
{
    *ret_text = text;
    *ret_len = strnlen(text, len);
    if (*ret_len == 0) {
        *ret_text = name;
        *ret_len = (size_t)snprintf(name, name_bytes, "[EMPTY_%zu]", index);
    }
}

static enum md_status take_text(void *user, const char *text, size_t len, struct md_err *err)
{
    struct texts *t = user;
    char name[40];
    (void)err;
    as_named(text, len, t->count, name, sizeof name, &text, &len);
    const uint64_t hash = XXH3_64bits(text, len);
    if (!t->found && t->searching && hash == t->twice) {
        snprintf(t->text, sizeof t->text, "%.*s", (int)(len < 40 ? len : 40), text);
        t->found = true;
    }
    if (t->count < t->limit && !t->searching)
        t->hashes[t->count] = hash;
    t->count++;
    return MD_OK;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static enum md_status check_vocabulary(struct md_gguf *f, struct md_err *err)
{
    static const char key[] = "tokenizer.ggml.tokens";
    char tokenizer[16] = "";
    if (md_gguf_string(f, "tokenizer.ggml.model", tokenizer, sizeof tokenizer, NULL) == MD_OK)
        tokenizer[strcspn(tokenizer, "?")] = '\0'; /* it too ends at its first NUL */
    if (strcmp(tokenizer, "none") == 0 || strcmp(tokenizer, "no_vocab") == 0)
        return md_fail(err, MD_UNSUPPORTED,
                       "model '%s' has no vocabulary: its 'tokenizer.ggml.model' is '%s'", md_gguf_path(f),
                       tokenizer);
    const struct md_gguf_entry *e = md_gguf_find(f, key);
    if (e == NULL || !e->is_array || e->type != MD_GGUF_STRING || e->count == 0)
        return MD_OK; /* the loader says so in its own words */
    struct texts t = { .hashes = malloc(e->count * sizeof *t.hashes), .limit = e->count };
    if (t.hashes == NULL)
        return md_fail(err, MD_NO_MEMORY, "vocabulary of %" PRIu64 " tokens", e->count);
    enum md_status s = md_gguf_each_string(f, key, take_text, &t, err);
    const size_t taken = t.count < t.limit ? t.count : t.limit;
    qsort(t.hashes, taken, sizeof *t.hashes, by_value);
    for (size_t i = 1; i < taken && s == MD_OK; i++) {
        if (t.hashes[i - 1] != t.hashes[i])
            continue;
        t.twice = t.hashes[i];
        t.searching = true;
        t.count = 0;
        s = md_gguf_each_string(f, key, take_text, &t, err);
        if (s == MD_OK)
            s = md_fail(err, MD_INVALID, "model '%s' has the token '%s' twice", md_gguf_path(f), t.text);
    }
    free(t.hashes);
    return s;
}

static enum md_status check_kind(const char *path, const struct llama_model *m, struct md_err *err)
{
    if (llama_model_has_encoder(m) || !llama_model_has_decoder(m))
        return md_fail(err, MD_UNSUPPORTED, "model '%s' has an encoder: only text generators are supported",
                       path);
    if (llama_model_is_diffusion(m))
        return md_fail(err, MD_UNSUPPORTED, "model '%s' is a diffusion model: it has no KV to keep", path);
    if (llama_vocab_n_tokens(llama_model_get_vocab(m)) <= 0)
        return md_fail(err, MD_UNSUPPORTED, "model '%s' has no vocabulary", path);
    return MD_OK;
}

enum md_status md_llama_model_open(struct md_gguf *file, enum md_llama_load what, int32_t gpu_layers,
                                   const char *device, struct md_llama_model **ret_model, struct md_err *err)
{
    const char *path = md_gguf_path(file);
    uint64_t hash = 0;
    enum md_status s = md_llama_library_ready(err);
    md_llama_log_clear();
    if (s == MD_OK)
        s = check_values(file, err);
    if (s == MD_OK)
        s = check_vocabulary(file, err);
    if (s == MD_OK && what == MD_LLAMA_WHOLE) /* KV depends on the weights; a vocabulary alone makes none */
        s = md_gguf_fingerprint(file, &hash, err);
    if (s != MD_OK)
        return s;
    ggml_backend_dev_t only[] = { device != NULL ? ggml_backend_dev_by_name(device) : NULL, NULL };
    if (device != NULL && only[0] == NULL)
        return md_fail(err, MD_UNSUPPORTED, "there is no device '%.32s' here", device);
    if (gpu_layers > 0 && gpu_count() == 0)
        return md_fail(err, MD_UNSUPPORTED, "%d layers are asked of a GPU, but this build sees none: use 0",
                       gpu_layers);

    struct llama_model_params p = llama_model_default_params();
    ggml_backend_dev_t none[] = { NULL };
    p.vocab_only = what == MD_LLAMA_VOCAB_ONLY;
    p.n_gpu_layers = gpu_layers;
    if (gpu_layers == 0)
        p.devices = none; /* "0" means that no part of the work leaves the processor */
    else if (device != NULL)
        p.devices = only;
    md_llama_log_clear();
    struct llama_model *lm = llama_model_load_from_file(path, p);
    if (lm == NULL) {
        const char *cause = md_llama_log_cause();
        bool arch = strstr(cause, "architecture") != NULL;
        bool memory = strstr(cause, "alloc") != NULL;
        return md_fail(err,
                       arch     ? MD_UNSUPPORTED
                       : memory ? MD_NO_MEMORY
                                : MD_INVALID,
                       "load model '%s': %s", path, cause);
    }
    s = check_kind(path, lm, err);
    struct md_llama_model *m = s == MD_OK ? calloc(1, sizeof *m) : NULL;
    if (m == NULL) {
        llama_model_free(lm);
        return s != MD_OK ? s : md_fail(err, MD_NO_MEMORY, "model '%s'", path);
    }
    *m = (struct md_llama_model){ .model = lm,
                                  .vocab = llama_model_get_vocab(lm),
                                  .file_bytes = md_gguf_file_bytes(file),
                                  .fingerprint = hash };
    atomic_store(&m->refs, 1);
    *ret_model = m;
    return MD_OK;
}

struct md_llama_model *md_llama_model_ref(struct md_llama_model *m)
{
    atomic_fetch_add(&m->refs, 1);
    return m;
}

void md_llama_model_unref(struct md_llama_model *m)
{
    if (m != NULL && atomic_fetch_sub(&m->refs, 1) == 1) {
        llama_model_free(m->model);
        free(m);
    }
}
