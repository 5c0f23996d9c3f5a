/* llama_model.c - the shared library's start and a model file's way into memory.
 *
 * A file is looked at through gguf.h before the loader sees it, because the loader maps tensors and a
 * cut file would be met only when its missing pages are touched. */
#include "adapters/llama/llama_internal.h"
#include "host/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
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

static enum md_status library_ready(struct md_err *err)
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

/* Every tensor must lie inside the file. */
static enum md_status check_tensors(const char *path, const struct gguf_context *g, int64_t file_bytes,
                                    struct md_err *err)
{
    const uint64_t data = gguf_get_data_offset(g), size = (uint64_t)file_bytes;
    for (int64_t i = 0; i < gguf_get_n_tensors(g); i++) {
        uint64_t offset = gguf_get_tensor_offset(g, i), bytes = gguf_get_tensor_size(g, i), end;
        if (__builtin_add_overflow(data, offset, &end) || __builtin_add_overflow(end, bytes, &end) ||
            end > size)
            return md_fail(err, MD_INVALID,
                           "model '%s' is cut: the file has %" PRIu64 " bytes, tensor '%s' needs %" PRIu64,
                           path, size, gguf_get_tensor_name(g, i), end);
    }
    return MD_OK;
}

static bool ends_with(const char *s, const char *tail)
{
    size_t a = strlen(s), b = strlen(tail);
    return a >= b && strcmp(s + a - b, tail) == 0;
}

/* Values that the library asserts on instead of refusing: LLAMA_MAX_LAYERS, and norms divided by. */
static enum md_status check_values(const char *path, const struct gguf_context *g, struct md_err *err)
{
    enum { LAYERS_MAX = 512 };
    for (int64_t i = 0; i < gguf_get_n_kv(g); i++) {
        const char *key = gguf_get_key(g, i);
        enum gguf_type type = gguf_get_kv_type(g, i);
        if (ends_with(key, ".block_count") && type == GGUF_TYPE_UINT32 &&
            (gguf_get_val_u32(g, i) < 1 || gguf_get_val_u32(g, i) > LAYERS_MAX))
            return md_fail(err, MD_INVALID, "model '%s' has %u layers, 1 to %d are supported", path,
                           gguf_get_val_u32(g, i), LAYERS_MAX);
        if ((ends_with(key, "norm_rms_epsilon") || ends_with(key, "norm_epsilon")) &&
            type == GGUF_TYPE_FLOAT32 && !(gguf_get_val_f32(g, i) >= 0 && gguf_get_val_f32(g, i) < 1))
            return md_fail(err, MD_INVALID, "model '%s' has the value %g for '%s'", path,
                           (double)gguf_get_val_f32(g, i), key);
    }
    return MD_OK;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Two tokens of one text, which the library asserts on too. */
static enum md_status check_vocabulary(const char *path, const struct gguf_context *g, struct md_err *err)
{
    int64_t key = gguf_find_key(g, "tokenizer.ggml.tokens");
    if (key < 0 || gguf_get_kv_type(g, key) != GGUF_TYPE_ARRAY ||
        gguf_get_arr_type(g, key) != GGUF_TYPE_STRING)
        return MD_OK; /* the loader says so in its own words */
    size_t count = gguf_get_arr_n(g, key);
    const char **texts = count == 0 ? NULL : calloc(count, sizeof *texts);
    if (count > 0 && texts == NULL)
        return md_fail(err, MD_NO_MEMORY, "vocabulary of %zu tokens", count);
    for (size_t i = 0; i < count; i++)
        texts[i] = gguf_get_arr_str(g, key, i);
    if (count > 0)
        qsort(texts, count, sizeof *texts, by_text);
    enum md_status s = MD_OK;
    for (size_t i = 1; i < count && s == MD_OK; i++)
        if (strcmp(texts[i - 1], texts[i]) == 0)
            s = md_fail(err, MD_INVALID, "model '%s' has the token '%.40s' twice", path, texts[i]);
    free(texts);
    return s;
}

static enum md_status check_file(const char *path, int64_t *ret_bytes, struct md_err *err)
{
    struct stat st;
    if (path == NULL || path[0] == '\0')
        return md_fail(err, MD_INVALID, "no model file is named");
    if (stat(path, &st) != 0)
        return md_fail(err, errno == ENOENT || errno == ENOTDIR ? MD_NOT_FOUND : MD_IO, "open model '%s': %s",
                       path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return md_fail(err, MD_INVALID, "model '%s' is a directory, a GGUF file is needed", path);
    if (!S_ISREG(st.st_mode))
        return md_fail(err, MD_INVALID, "model '%s' is not a regular file", path);

    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return md_fail(err, MD_IO, "open model '%s': %s", path, strerror(errno));
    char magic[4] = "";
    ssize_t n = pread(fd, magic, sizeof magic, 0);
    close(fd);
    if (n != sizeof magic || memcmp(magic, "GGUF", sizeof magic) != 0)
        return md_fail(err, MD_INVALID, "model '%s' is not a GGUF file (%lld bytes)", path,
                       (long long)st.st_size);

    struct gguf_context *g = gguf_init_from_file(path, (struct gguf_init_params){ .no_alloc = true });
    if (g == NULL)
        return md_fail(err, MD_INVALID, "model '%s' is a broken or cut GGUF file of %lld bytes: %s", path,
                       (long long)st.st_size, md_llama_log_cause());
    enum md_status s = check_tensors(path, g, st.st_size, err);
    if (s == MD_OK)
        s = check_values(path, g, err);
    if (s == MD_OK)
        s = check_vocabulary(path, g, err);
    gguf_free(g);
    if (s == MD_OK)
        *ret_bytes = st.st_size;
    return s;
}

/* 64 samples of 64 KiB spread over the file: a whole hash of many gigabytes would cost each start. */
static enum md_status fingerprint(const char *path, int64_t file_bytes, uint64_t *ret_hash,
                                  struct md_err *err)
{
    enum { SAMPLES = 64, SAMPLE_BYTES = 64 << 10 };
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    uint8_t *buf = malloc(SAMPLE_BYTES);
    enum md_status s = MD_OK;
    if (fd < 0 || buf == NULL) {
        s = md_fail(err, fd < 0 ? MD_IO : MD_NO_MEMORY, "read model '%s'", path);
    } else {
        uint64_t hash = (uint64_t)file_bytes;
        for (int i = 0; i < SAMPLES && s == MD_OK; i++) {
            ssize_t n = pread(fd, buf, SAMPLE_BYTES, file_bytes / SAMPLES * i);
            if (n < 0)
                s = md_fail(err, MD_IO, "read model '%s': %s", path, strerror(errno));
            else
                hash = XXH3_64bits_withSeed(buf, (size_t)n, hash);
        }
        *ret_hash = hash;
    }
    free(buf);
    if (fd >= 0)
        close(fd);
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

enum md_status md_llama_model_open(const char *path, enum md_llama_load what, int32_t gpu_layers,
                                   struct md_llama_model **ret_model, struct md_err *err)
{
    int64_t file_bytes = 0;
    uint64_t hash = 0;
    enum md_status s = library_ready(err);
    md_llama_log_clear();
    if (s == MD_OK)
        s = check_file(path, &file_bytes, err);
    if (s == MD_OK && what == MD_LLAMA_WHOLE) /* KV depends on the weights; a vocabulary alone makes none */
        s = fingerprint(path, file_bytes, &hash, err);
    if (s != MD_OK)
        return s;
    if (gpu_layers > 0 && gpu_count() == 0)
        return md_fail(err, MD_UNSUPPORTED, "%d layers are asked of a GPU, but this build sees none: use 0",
                       gpu_layers);

    struct llama_model_params p = llama_model_default_params();
    ggml_backend_dev_t none[] = { NULL };
    p.vocab_only = what == MD_LLAMA_VOCAB_ONLY;
    p.n_gpu_layers = gpu_layers;
    if (gpu_layers == 0)
        p.devices = none; /* "0" means that no part of the work leaves the processor */
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
    *m = (struct md_llama_model){
        .model = lm, .vocab = llama_model_get_vocab(lm), .file_bytes = file_bytes, .fingerprint = hash
    };
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
