/* ov_device.cc - what the library tells of a device, and how a model is compiled for one; see ov_pool.hh.
 *
 * Source: headers of OpenVINO 2026.4.1.  No device but the processor was there to look at. */
#include "adapters/openvino/ov_pool.hh"

#include <openvino/runtime/intel_gpu/properties.hpp>

#include <algorithm>
#include <set>

const char md_ov_cpu[] = "CPU";

namespace
{

std::set<std::string> known_to(const ov::Core &core, const std::string &device)
{
    std::set<std::string> names;
    for (const ov::PropertyName &name : core.get_property(device, ov::supported_properties))
        names.insert(name);
    return names;
}

/* Cut where it is too long. */
template <size_t SIZE> void put(char (&to)[SIZE], const std::string &text)
{
    to[text.copy(to, SIZE - 1)] = '\0';
}

int64_t bytes_of(uint64_t bytes)
{
    return static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX));
}

void ask(const ov::Core &core, const std::string &id, md_ov_device *ret)
{
    put(ret->description, core.get_property(id, ov::device::full_name));
    const std::set<std::string> known = known_to(core, id);
    if (known.count(ov::device::capabilities.name()) != 0) {
        std::string numbers;
        for (const std::string &kind : core.get_property(id, ov::device::capabilities))
            numbers += (numbers.empty() ? "" : " ") + kind;
        put(ret->numbers, numbers);
    }
    if (known.count(ov::device::type.name()) != 0)
        ret->integrated = core.get_property(id, ov::device::type) == ov::device::Type::INTEGRATED;
    if (known.count(ov::intel_gpu::device_total_mem_size.name()) != 0)
        ret->total_bytes = bytes_of(core.get_property(id, ov::intel_gpu::device_total_mem_size));
    if (known.count(ov::intel_gpu::device_max_alloc_mem_size.name()) != 0)
        ret->max_allocation_bytes = bytes_of(core.get_property(id, ov::intel_gpu::device_max_alloc_mem_size));
}

} // namespace

void md_ov_describe(const ov::Core &core, const std::string &id, md_ov_device *ret)
{
    *ret = md_ov_device{};
    put(ret->id, id);
    try {
        ask(core, id, ret);
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &e) {
        if (id == md_ov_cpu)
            throw;
        *ret = md_ov_device{};
        put(ret->id, id);
        put(ret->description, "tells nothing of itself: " + md_ov_cause(e));
    }
}

/* It computes in the type of KV: a GPU's attention is made for f16.  What of these it does not know it cannot round by. */
ov::AnyMap md_ov_device_properties(const ov::Core &core, const std::string &device, md_ov_type kv_type)
{
    const ov::element::Type type = kv_type == MD_OV_F32 ? ov::element::f32 : ov::element::f16;
    const ov::AnyMap wanted = {
        { ov::hint::performance_mode.name(), ov::hint::PerformanceMode::LATENCY },
        { ov::hint::kv_cache_precision.name(), type },
        { ov::hint::inference_precision.name(), type },
        { ov::hint::dynamic_quantization_group_size.name(), static_cast<uint64_t>(0) },
    };
    const std::set<std::string> known = known_to(core, device);
    ov::AnyMap given;
    for (const auto &entry : wanted)
        if (known.count(entry.first) != 0)
            given.insert(entry);
    return given;
}
