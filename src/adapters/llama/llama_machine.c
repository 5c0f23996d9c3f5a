/* llama_machine.c - what the library finds on this machine. */
#include "adapters/llama/llama_internal.h"

#include <stdio.h>
#include <string.h>

static const char *kind_of(enum ggml_backend_dev_type t)
{
    switch (t) {
    case GGML_BACKEND_DEVICE_TYPE_GPU: return "gpu";
    case GGML_BACKEND_DEVICE_TYPE_IGPU: return "igpu";
    case GGML_BACKEND_DEVICE_TYPE_ACCEL: return "accel";
    default: return NULL; /* the processor, or devices of devices */
    }
}

static int64_t bytes_of(size_t n)
{
    return n > INT64_MAX ? 0 : (int64_t)n; /* SIZE_MAX means no limit */
}

static struct md_device device_of(ggml_backend_dev_t dev, const char *kind)
{
    struct md_device d = { .shares_host = strcmp(kind, "igpu") == 0 };
    size_t free_bytes = 0, total_bytes = 0;
    ggml_backend_dev_memory(dev, &free_bytes, &total_bytes);
    ggml_backend_buffer_type_t buft = ggml_backend_dev_buffer_type(dev);
    snprintf(d.kind, sizeof d.kind, "%s", kind);
    snprintf(d.id, sizeof d.id, "%s", ggml_backend_dev_name(dev));
    snprintf(d.description, sizeof d.description, "%s", ggml_backend_dev_description(dev));
    d.free_bytes = bytes_of(free_bytes);
    d.total_bytes = bytes_of(total_bytes);
    d.max_allocation_bytes = buft != NULL ? bytes_of(ggml_backend_buft_get_max_size(buft)) : 0;
    return d;
}

enum md_status md_llama_machine(struct md_machine *ret_machine, struct md_err *err)
{
    enum md_status s = md_llama_library_ready(err);
    if (s != MD_OK)
        return s;
    struct md_machine m = { .gpu_offload = llama_supports_gpu_offload() };
    snprintf(m.runtime_name, sizeof m.runtime_name, "llama.cpp");
    snprintf(m.runtime_version, sizeof m.runtime_version, "%s (ggml %s)", llama_version(), ggml_version());
    snprintf(m.system_info, sizeof m.system_info, "%s", llama_print_system_info());
    snprintf(m.kv_types, sizeof m.kv_types, "%s", md_kv_type_names());
    m.caps = MD_CAP_REMOVE_TAIL | MD_CAP_REMOVE_MIDDLE | MD_CAP_POSITION_SHIFT | MD_CAP_SPARSE_ATTENTION |
             MD_CAP_COLD_STORE | MD_CAP_RECOMPUTE_RANGE | MD_CAP_SHARE;
    for (size_t i = 0; i < ggml_backend_dev_count() && m.device_count < MD_DEVICES_MAX; i++) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        const char *kind = kind_of(ggml_backend_dev_type(dev));
        if (kind != NULL)
            m.devices[m.device_count++] = device_of(dev, kind);
    }
    *ret_machine = m;
    return MD_OK;
}
