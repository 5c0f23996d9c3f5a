/* openvino_device.cc - see openvino_device.h.  As in openvino_calls.cc a member function is a free one whose first argument is
 * the object. */
#include "openvino_device.h"

#include "adapters/openvino/ov_shim.h"

#include <openvino/openvino.hpp>
#include <openvino/runtime/intel_gpu/properties.hpp>

#include <cstring>
#include <new>

struct openvino_device_calls openvino_device_calls;

/* In place of the one that loads the shim: it is here already. */
enum md_status md_ov_ready(struct md_err *err)
{
    (void)err;
    return MD_OK;
}

namespace
{

using text = std::string;

bool is_silent;

bool is_there(const text &device)
{
    return device != "GPU" && device != "NPU";
}

/* What the GPU knows, and what it says. */
const std::map<text, ov::Any> &answers()
{
    static const std::map<text, ov::Any> all = {
        { ov::device::full_name.name(), text("a card of the test") },
        { ov::device::capabilities.name(), std::vector<text>{ "FP32", "FP16", "INT8" } },
        { ov::device::type.name(), ov::device::Type::DISCRETE },
        { ov::intel_gpu::device_total_mem_size.name(), uint64_t(8) << 30 },
        { ov::intel_gpu::device_max_alloc_mem_size.name(), uint64_t(4) << 30 },
        { ov::hint::performance_mode.name(), ov::hint::PerformanceMode::LATENCY },
        { ov::hint::kv_cache_precision.name(), ov::element::f16 },
        { ov::hint::inference_precision.name(), ov::element::f16 },
    };
    return all;
}

ov::Any answer(const text &device, const text &name)
{
    if (is_silent && device == "GPU")
        OPENVINO_THROW("as the test wants it");
    if (device == "NPU" && name == ov::supported_properties.name())
        return std::vector<ov::PropertyName>{ ov::PropertyName(ov::device::full_name.name()) };
    if (name == ov::supported_properties.name()) {
        std::vector<ov::PropertyName> names;
        for (const auto &entry : answers())
            names.emplace_back(entry.first);
        return names;
    }
    return answers().at(name);
}

} // namespace

extern "C" {

void openvino_device_reset(void)
{
    openvino_device_calls = {};
}

void openvino_device_silent(bool silent)
{
    is_silent = silent;
}
}

/* One name of the linker in each line: cmake/tests.cmake reads them here. */
/* clang-format off */
#define DEVICES "_ZNK2ov4Core21get_available_devicesB5cxx11Ev"
#define PROPERTY "_ZNK2ov4Core12get_propertyERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEES8_RKSt3mapIS6_NS_3AnyESt4lessIS6_ESaISt4pairIS7_SA_EEE"
#define COMPILE "_ZN2ov4Core13compile_modelERKSt10shared_ptrIKNS_5ModelEERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt3mapISC_NS_3AnyESt4lessISC_ESaISt4pairISD_SG_EEE"
#define CONTEXT "_ZNK2ov13CompiledModel11get_contextEv"
#define CREATE "_ZN2ov13RemoteContext13create_tensorERKNS_7element4TypeERKNS_5ShapeERKSt3mapINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEENS_3AnyESt4lessISE_ESaISt4pairIKSE_SF_EEE"
#define CHECK "_ZN2ov12RemoteTensor10type_checkERKNS_6TensorERKSt3mapINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESt6vectorISA_SaISA_EESt4lessISA_ESaISt4pairIKSA_SD_EEE"
#define REGION "_ZN2ov12RemoteTensorC1ERKS0_RKNS_10CoordinateES5_"
#define COPY_IN "_ZN2ov12RemoteTensor9copy_fromERKNS_6TensorE"
#define COPY_OUT "_ZNK2ov12RemoteTensor7copy_toERNS_6TensorE"
/* clang-format on */

ov::Any real_property(const void *self, const text &device, const text &name,
                      const ov::AnyMap &with) __asm__("__real_" PROPERTY);
ov::CompiledModel real_compile(void *self, const std::shared_ptr<const ov::Model> &m, const text &device,
                               const ov::AnyMap &with) __asm__("__real_" COMPILE);

std::vector<text> wrap_devices(const void *self) __asm__("__wrap_" DEVICES);
std::vector<text> wrap_devices(const void *self)
{
    (void)self;
    return { "CPU", "GPU", "NPU" };
}

ov::Any wrap_property(const void *self, const text &device, const text &name,
                      const ov::AnyMap &with) __asm__("__wrap_" PROPERTY);
ov::Any wrap_property(const void *self, const text &device, const text &name, const ov::AnyMap &with)
{
    return is_there(device) ? real_property(self, device, name, with) : answer(device, name);
}

ov::CompiledModel wrap_compile(void *self, const std::shared_ptr<const ov::Model> &m, const text &device,
                               const ov::AnyMap &with) __asm__("__wrap_" COMPILE);
ov::CompiledModel wrap_compile(void *self, const std::shared_ptr<const ov::Model> &m, const text &device,
                               const ov::AnyMap &with)
{
    if (is_there(device))
        return real_compile(self, m, device, with);
    openvino_device_calls.compiled++;
    for (const auto &entry : with)
        if (answers().count(entry.first) == 0)
            openvino_device_calls.unknown_setting = true;
    return real_compile(self, m, "CPU", with);
}

ov::RemoteContext wrap_context(const void *self) __asm__("__wrap_" CONTEXT);
ov::RemoteContext wrap_context(const void *self)
{
    (void)self;
    return {};
}

ov::RemoteTensor wrap_create(void *self, const ov::element::Type &type, const ov::Shape &shape,
                             const ov::AnyMap &with) __asm__("__wrap_" CREATE);
ov::RemoteTensor wrap_create(void *self, const ov::element::Type &type, const ov::Shape &shape,
                             const ov::AnyMap &with)
{
    (void)self;
    (void)with;
    ov::Tensor host(type, shape);
    std::memset(host.data(), 0xff, host.get_byte_size());
    openvino_device_calls.tensors++;
    return *static_cast<ov::RemoteTensor *>(&host); /* it has no members of its own */
}

void wrap_check(const ov::Tensor &t, const std::map<text, std::vector<text>> &info) __asm__("__wrap_" CHECK);
void wrap_check(const ov::Tensor &t, const std::map<text, std::vector<text>> &info)
{
    (void)t;
    (void)info;
}

void wrap_region(void *self, const ov::Tensor &of, const ov::Coordinate &begin,
                 const ov::Coordinate &end) __asm__("__wrap_" REGION);
void wrap_region(void *self, const ov::Tensor &of, const ov::Coordinate &begin, const ov::Coordinate &end)
{
    new (self) ov::Tensor(of, begin, end);
}

void wrap_copy_in(ov::Tensor *self, const ov::Tensor &from) __asm__("__wrap_" COPY_IN);
void wrap_copy_in(ov::Tensor *self, const ov::Tensor &from)
{
    openvino_device_calls.ins++;
    from.copy_to(*self);
}

void wrap_copy_out(const ov::Tensor *self, ov::Tensor &to) __asm__("__wrap_" COPY_OUT);
void wrap_copy_out(const ov::Tensor *self, ov::Tensor &to)
{
    openvino_device_calls.outs++;
    self->copy_to(to);
}
