/* ov_where.c - where this engine computes: the devices that the library lists, what each can do, and which one is meant.
 *
 * The graph that is run needs attention over blocks of KV, which the processor and GPUs have. */
#include "adapters/openvino/ov_backend.h"
#include "adapters/openvino/ov_engine.h"

#include <stdio.h>
#include <string.h>

/* "GPU", "GPU.1": a kind, and a number where there are several. */
static bool is_kind(const char *id, const char *kind)
{
    const size_t length = strlen(kind);
    return strncmp(id, kind, length) == 0 && (id[length] == '\0' || id[length] == '.');
}

const char *md_ov_refusal(const char *id)
{
    if (is_kind(id, "CPU") || is_kind(id, "GPU"))
        return NULL;
    if (is_kind(id, "NPU"))
        return "OpenVINO has no attention over blocks of KV for an NPU in this release, and without it KV "
               "cannot be kept, moved or put back";
    return "the engine 'openvino' computes on a CPU or a GPU only";
}

/* "CPU, GPU.0": those that can be taken. */
static void list(const struct md_ov_device *devices, int32_t count, char *out, size_t out_bytes)
{
    size_t used = 0;
    out[0] = '\0';
    for (int32_t i = 0; i < count && used < out_bytes; i++)
        if (md_ov_refusal(devices[i].id) == NULL)
            used +=
                (size_t)snprintf(out + used, out_bytes - used, "%s%s", used > 0 ? ", " : "", devices[i].id);
}

enum md_status md_ov_check_there(const struct md_ov_device *devices, int32_t count, const char *asked,
                                 struct md_err *err)
{
    char there[256];
    list(devices, count, there, sizeof there);
    for (int32_t i = 0; i < count; i++) {
        if (strcmp(devices[i].id, asked) != 0)
            continue;
        if (md_ov_refusal(asked) == NULL)
            return MD_OK;
        return md_fail(err, MD_UNSUPPORTED, "device '%.32s': %s; there is %s", asked, md_ov_refusal(asked),
                       there);
    }
    return md_fail(err, MD_UNSUPPORTED, "OpenVINO sees no device '%.32s' here; there is %s", asked, there);
}

bool md_ov_on_cpu(const struct md_open_params *p)
{
    return p->device == NULL || strcmp(p->device, "CPU") == 0;
}

enum md_status md_ov_check_device(const struct md_open_params *p, enum md_ov_type type, struct md_err *err)
{
    if (md_ov_on_cpu(p) && p->gpu_layers > 0)
        return md_fail(
            err, MD_UNSUPPORTED,
            "%d layers are asked of a GPU, and no device is named: the engine 'openvino' computes on "
            "the processor then, use 0, or name a device",
            p->gpu_layers);
    if (md_ov_on_cpu(p))
        return MD_OK;
    if (md_ov_refusal(p->device) != NULL)
        return md_fail(err, MD_UNSUPPORTED, "device '%.32s': %s: use the CPU", p->device,
                       md_ov_refusal(p->device));
    if (p->gpu_layers > 0)
        return md_fail(
            err, MD_UNSUPPORTED,
            "--gpu-layers %d: the engine 'openvino' computes all layers on one device: leave it out",
            p->gpu_layers);
    if (type == MD_OV_U8)
        return md_fail(
            err, MD_UNSUPPORTED,
            "the KV type u8 is one of the processor, '%.32s' has another of 8 bits, which cannot be "
            "moved in rows: use f16 or f32, or --device CPU",
            p->device);
    return MD_OK;
}

/* ---- the machine ---- */

/* Only its total is told, by GPUs: what others took of it is not known. */
static struct md_device device_of(const struct md_ov_device *found)
{
    struct md_device d = { .refused = md_ov_refusal(found->id),
                           .shares_host = found->integrated,
                           .total_bytes = found->total_bytes,
                           .free_bytes = found->total_bytes,
                           .max_allocation_bytes = found->max_allocation_bytes };
    snprintf(d.kind, sizeof d.kind, "%s",
             is_kind(found->id, "NPU") ? "npu"
             : found->integrated       ? "igpu"
                                       : "gpu");
    snprintf(d.id, sizeof d.id, "%.31s", found->id);
    snprintf(d.description, sizeof d.description, "%.127s", found->description);
    snprintf(d.can, sizeof d.can, "%s", found->numbers);
    return d;
}

enum md_status md_openvino_machine(struct md_machine *ret_machine, struct md_err *err)
{
    struct md_machine m = { .one_device = true };
    enum md_status s = md_ov_processor(m.system_info, sizeof m.system_info, err);
    if (s != MD_OK)
        return s;
    snprintf(m.runtime_name, sizeof m.runtime_name, "OpenVINO");
    snprintf(m.kv_types, sizeof m.kv_types, "%s %s %s", md_ov_kv_type_name(MD_OV_F32),
             md_ov_kv_type_name(MD_OV_F16), md_ov_kv_type_name(MD_OV_U8));
    m.caps = MD_OV_CAPS | MD_CAP_POSITION_SHIFT;
    md_ov_version(m.runtime_version, sizeof m.runtime_version);
    struct md_ov_device devices[MD_OV_DEVICES_MAX];
    int32_t count = 0;
    s = md_ov_devices(devices, &count, err);
    for (int32_t i = 0; i < count && s == MD_OK && m.device_count < MD_DEVICES_MAX; i++)
        if (!is_kind(devices[i].id, "CPU")) {
            m.devices[m.device_count] = device_of(&devices[i]);
            m.gpu_offload = m.gpu_offload || m.devices[m.device_count].refused == NULL;
            m.device_count++;
        }
    if (s == MD_OK)
        *ret_machine = m;
    return s;
}
