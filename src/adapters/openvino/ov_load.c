/* ov_load.c - the functions of ov_shim.h for the rest of the engine: each hands on to the shim, a library that is loaded
 * when it is first needed.  A program without OpenVINO beside it runs all the same, with the other engine. */
#include "adapters/openvino/ov_backend.h"
#include "adapters/openvino/ov_shim.h"
#include "host/library.h"
#include "host/paths.h"

#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef MODELD_OPENVINO_SHIM_DIR
#define MODELD_OPENVINO_SHIM_DIR ""
#endif
#ifndef MODELD_OPENVINO_SHIM_DIR_INSTALLED
#define MODELD_OPENVINO_SHIM_DIR_INSTALLED "../lib/modeld"
#endif

static const struct md_ov_shim *shim; /* set once, under the lock */

/* Where the environment says, beside an installed program, or where it was built. */
static void find_shim(char *out, size_t out_bytes)
{
    static const char name[] = "libmodeld_openvino.so";
    char program[MD_PATH_MAX];
    const char *folder = getenv("MODELD_OPENVINO_LIBDIR");
    if (folder != NULL && folder[0] != '\0') {
        snprintf(out, out_bytes, "%s/%s", folder, name);
        return;
    }
    if (md_paths_program_folder(program, sizeof program)) {
        const int n = snprintf(out, out_bytes, "%s/%s/%s", program, MODELD_OPENVINO_SHIM_DIR_INSTALLED, name);
        if (n > 0 && (size_t)n < out_bytes && access(out, F_OK) == 0)
            return;
    }
    snprintf(out, out_bytes, "%s/%s", MODELD_OPENVINO_SHIM_DIR, name);
}

/* A field that is elsewhere would be read as another: rows as bytes, a pointer as a number. */
static bool is_of_this_build(const struct md_ov_shim *found)
{
    static const size_t sizes[MD_OV_SHIM_SIZES_COUNT] = MD_OV_SHIM_SIZES;
    for (int i = 0; i < MD_OV_SHIM_SIZES_COUNT; i++)
        if (found->sizes[i] != sizes[i])
            return false;
    return true;
}

static enum md_status load(struct md_err *err)
{
    char path[2 * MD_PATH_MAX];
    md_ov_shim_get_fn get = NULL;
    const struct md_ov_shim *found = NULL;
    find_shim(path, sizeof path);
    struct md_err bad = { 0 };
    void *library = md_library_check(path, &bad) == MD_OK ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL) {
        const char *why = bad.text[0] != '\0' ? bad.text : dlerror();
        return md_fail(
            err, MD_UNSUPPORTED,
            "the OpenVINO library cannot be loaded (%.300s): put it back, or use the engine 'llama'",
            why != NULL ? why : "no reason given");
    }
    void *symbol = dlsym(library, MD_OV_SHIM_GET);
    static_assert(sizeof symbol == sizeof get, "dlsym gives functions as well");
    memcpy(&get, &symbol, sizeof get);
    enum md_status s = get == NULL ? MD_UNSUPPORTED : get(&found, err);
    if (get == NULL || (s == MD_OK && !is_of_this_build(found)))
        s = md_fail(err, MD_UNSUPPORTED,
                    "'%.300s' is of another build of modeld: install both together (MODELD_OPENVINO_LIBDIR "
                    "names its folder, where it is set)",
                    path);
    if (s == MD_OK)
        shim = found; /* the library stays for the life of the process: its threads may be there */
    else
        dlclose(library);
    return s;
}

enum md_status md_ov_ready(struct md_err *err)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    enum md_status s = shim != NULL ? MD_OK : load(err);
    pthread_mutex_unlock(&lock);
    return s;
}

void md_ov_version(char *out, size_t out_bytes)
{
    assert(shim != NULL);
    shim->version(out, out_bytes);
}

enum md_status md_ov_processor(char *out, size_t out_bytes, struct md_err *err)
{
    enum md_status s = md_ov_ready(err);
    return s == MD_OK ? shim->processor(out, out_bytes, err) : s;
}

enum md_status md_ov_devices(struct md_ov_device ret_devices[MD_OV_DEVICES_MAX], int32_t *ret_count,
                             struct md_err *err)
{
    enum md_status s = md_ov_ready(err);
    return s == MD_OK ? shim->devices(ret_devices, ret_count, err) : s;
}

enum md_status md_ov_model_open(const char *path, const char *device, enum md_ov_type kv_type,
                                int32_t threads, const struct md_ov_watch *watch,
                                struct md_ov_model **ret_model, struct md_err *err)
{
    enum md_status s = md_ov_ready(err);
    return s == MD_OK ? shim->open(path, device, kv_type, threads, watch, ret_model, err) : s;
}

void md_ov_model_close(struct md_ov_model *m)
{
    if (m != NULL)
        shim->close(m);
}

const struct md_ov_facts *md_ov_model_facts(const struct md_ov_model *m)
{
    return shim->facts(m);
}

enum md_status md_ov_model_bind(struct md_ov_model *m, int32_t layer, void *keys, void *values,
                                int32_t blocks, struct md_err *err)
{
    return shim->bind(m, layer, keys, values, blocks, err);
}

enum md_status md_ov_model_hold(struct md_ov_model *m, int32_t blocks, struct md_err *err)
{
    return shim->hold(m, blocks, err);
}

enum md_status md_ov_model_get(const struct md_ov_model *m, int32_t block, uint8_t *ret_bytes,
                               struct md_err *err)
{
    return shim->get(m, block, ret_bytes, err);
}

enum md_status md_ov_model_put(struct md_ov_model *m, int32_t block, const uint8_t *bytes, struct md_err *err)
{
    return shim->put(m, block, bytes, err);
}

enum md_status md_ov_model_run(struct md_ov_model *m, const struct md_ov_step *step, bool (*stop)(void *user),
                               void *user, const float **ret_logits, struct md_err *err)
{
    return shim->run(m, step, stop, user, ret_logits, err);
}

enum md_status md_ov_model_queries(struct md_ov_model *m, int32_t layer, struct md_ov_queries *ret_queries,
                                   struct md_err *err)
{
    return shim->queries(m, layer, ret_queries, err);
}

enum md_status md_ov_model_scores(struct md_ov_model *m, int32_t layer, const float **ret_scores,
                                  int32_t *ret_count, struct md_err *err)
{
    return shim->scores(m, layer, ret_scores, ret_count, err);
}
