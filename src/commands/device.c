#include "commands/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool holds_models(const struct md_device *d)
{
    return strcmp(d->kind, "accel") != 0;
}

/* The n-th accelerator, from 0, refused ones among them if asked; the integrated ones come after the others. */
static const struct md_device *accelerator(const struct md_machine *m, int64_t n, bool refused)
{
    static const char *const kinds[] = { "gpu", "igpu" };
    for (int k = 0; k < 2; k++)
        for (int32_t i = 0; i < m->device_count; i++)
            if (strcmp(m->devices[i].kind, kinds[k]) == 0 && (refused || m->devices[i].refused == NULL) &&
                n-- == 0)
                return &m->devices[i];
    return NULL;
}

const struct md_device *md_device_accelerator(const struct md_machine *m)
{
    return accelerator(m, 0, false);
}

static const struct md_device *find(const char *asked, const struct md_machine *m)
{
    for (int32_t i = 0; i < m->device_count; i++)
        if (strcasecmp(asked, m->devices[i].id) == 0)
            return &m->devices[i];
    if (strcasecmp(asked, "GPU") == 0) {
        const struct md_device *d = accelerator(m, 0, false);
        return d != NULL ? d : accelerator(m, 0, true);
    }
    if (strncasecmp(asked, "GPU.", 4) == 0 && asked[4] >= '0' && asked[4] <= '9') {
        char *end;
        const long n = strtol(asked + 4, &end, 10);
        return *end == '\0' ? accelerator(m, n, true) : NULL;
    }
    return NULL;
}

/* "CPU, CUDA0, GPU.1": what there is to choose from. */
static void list(const struct md_machine *m, char *out, size_t out_bytes)
{
    size_t used = (size_t)snprintf(out, out_bytes, "CPU");
    for (int32_t i = 0; i < m->device_count && used < out_bytes; i++)
        if (holds_models(&m->devices[i]) && m->devices[i].refused == NULL)
            used += (size_t)snprintf(out + used, out_bytes - used, ", %s", m->devices[i].id);
}

bool md_device_is_auto(const char *asked)
{
    return asked == NULL || strcasecmp(asked, "AUTO") == 0;
}

enum md_status md_device_resolve(const char *asked, const char *engine, const struct md_machine *m,
                                 struct md_open_params *open, const struct md_device **ret_device,
                                 struct md_err *err)
{
    char there[256];
    if (md_device_is_auto(asked)) {
        *ret_device = open->gpu_layers != 0 ? md_device_accelerator(m) : NULL;
        if (*ret_device != NULL && m->one_device)
            open->device = (*ret_device)->id;
        return MD_OK;
    }
    if (strcasecmp(asked, "CPU") == 0) {
        if (open->gpu_layers > 0)
            return md_fail(err, MD_INVALID, "--device CPU and --gpu-layers %d contradict: leave one out",
                           open->gpu_layers);
        open->gpu_layers = 0;
        *ret_device = NULL;
        return MD_OK;
    }
    const struct md_device *d = find(asked, m);
    list(m, there, sizeof there);
    if (d == NULL)
        return md_fail(err, MD_INVALID,
                       "--device '%.40s': the engine '%s' sees no such device here; there is %s: give one of "
                       "them, or AUTO",
                       asked, engine, there);
    if (d->refused != NULL || !holds_models(d))
        return md_fail(err, MD_UNSUPPORTED, "--device '%.40s': %s; there is %s: give one of them, or AUTO",
                       asked, d->refused != NULL ? d->refused : "it only helps the processor, which is CPU",
                       there);
    if (open->gpu_layers == 0)
        return md_fail(err, MD_INVALID, "--device %s and --gpu-layers 0 contradict: leave one out", d->id);
    open->device = d->id;
    *ret_device = d;
    return MD_OK;
}
