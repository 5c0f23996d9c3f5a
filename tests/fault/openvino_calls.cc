/* openvino_calls.cc - see openvino_calls.h.  A member function is called as a free one whose first argument is the object:
 * so the C++ ABI of Linux has it, results of class type included. */
#include "openvino_calls.h"

#include "adapters/openvino/ov_shim.h"

#include <openvino/frontend/gguf/frontend.hpp>
#include <openvino/openvino.hpp>
#include <openvino/runtime/exception.hpp>

#include <chrono>
#include <new>

/* In place of the one that loads the shim: it is here already. */
enum md_status md_ov_ready(struct md_err *err)
{
    (void)err;
    return MD_OK;
}

namespace
{

long calls_left, news_left; /* 0: off */
openvino_throw thrown;
bool is_after;
const char *threw;

[[noreturn]] void throw_it(const char *name)
{
    threw = name;
    switch (thrown) {
    case OPENVINO_THROWS_MEMORY: throw std::bad_alloc();
    case OPENVINO_THROWS_STRANGE: throw 7;
    default: OPENVINO_THROW("as the test wants it,\n", name);
    }
}

bool is_due()
{
    return calls_left > 0 && --calls_left == 0;
}

struct turn {
    const char *name;
    bool due;
    explicit turn(const char *called, bool first = false) : name(called), due(is_due())
    {
        if (due && (first || !is_after))
            throw_it(name);
    }
    void end() const
    {
        if (due)
            throw_it(name);
    }
};

using text = std::string;

} // namespace

extern "C" {

void openvino_calls_arm(long nth, enum openvino_throw what, bool after)
{
    calls_left = nth;
    thrown = what;
    is_after = after;
    news_left = 0;
    if (nth > 0)
        threw = nullptr;
}

void openvino_memory_arm(long nth)
{
    openvino_calls_arm(0, OPENVINO_THROWS_MEMORY, false);
    if (nth > 0)
        threw = nullptr;
    news_left = nth;
}

const char *openvino_calls_threw(void)
{
    return threw;
}
}

/* ---- memory ---- */

void *real_new(size_t bytes) __asm__("__real__Znwm");
void *wrap_new(size_t bytes) __asm__("__wrap__Znwm");
void *wrap_new(size_t bytes)
{
    if (news_left > 0 && --news_left == 0)
        throw_it("operator new");
    return real_new(bytes);
}

/* ---- calls: symbol, result, arguments as declared, arguments as passed ---- */

#define CALL(name, symbol, result, declared, passed)       \
    result real_##name declared __asm__("__real_" symbol); \
    result wrap_##name declared __asm__("__wrap_" symbol); \
    result wrap_##name declared                            \
    {                                                      \
        const turn now(#name);                             \
        result value = real_##name passed;                 \
        now.end();                                         \
        return value;                                      \
    }
#define CALL_VOID(name, symbol, declared, passed)        \
    void real_##name declared __asm__("__real_" symbol); \
    void wrap_##name declared __asm__("__wrap_" symbol); \
    void wrap_##name declared                            \
    {                                                    \
        const turn now(#name);                           \
        real_##name passed;                              \
        now.end();                                       \
    }
#define CALL_MAKE(name, symbol, declared, passed)        \
    void real_##name declared __asm__("__real_" symbol); \
    void wrap_##name declared __asm__("__wrap_" symbol); \
    void wrap_##name declared                            \
    {                                                    \
        const turn now(#name, true);                     \
        real_##name passed;                              \
    }

/* One name of the linker in each line: cmake/tests.cmake reads them here. */
/* clang-format off */
CALL_MAKE(frontend_make, "_ZN2ov8frontend4gguf8FrontEndC1Ev", (void *self), (self))
CALL_VOID(frontend_add, "_ZN2ov8frontend4gguf8FrontEnd13add_extensionERKSt10shared_ptrINS_9ExtensionEE",
          (void *self, const std::shared_ptr<ov::Extension> &e), (self, e))
CALL(frontend_convert, "_ZNK2ov8frontend4gguf8FrontEnd7convertERKSt10shared_ptrINS0_10InputModelEE",
     std::shared_ptr<ov::Model>, (const void *self, const std::shared_ptr<ov::frontend::InputModel> &in),
     (self, in))
CALL(adapt, "_ZN2ov8frontend4gguf4pass12AdaptToGenAI12run_on_modelERKSt10shared_ptrINS_5ModelEE", bool,
     (void *self, const std::shared_ptr<ov::Model> &m), (self, m))
CALL(to_paged, "_ZN2ov4pass20SDPAToPagedAttention12run_on_modelERKSt10shared_ptrINS_5ModelEE", bool,
     (void *self, const std::shared_ptr<ov::Model> &m), (self, m))
CALL_VOID(add_parameters,
          "_ZN2ov5Model14add_parametersERKSt6vectorISt10shared_ptrINS_2op2v09ParameterEESaIS6_EE",
          (void *self, const ov::ParameterVector &p), (self, p))
CALL_MAKE(core_make, "_ZN2ov4CoreC1ERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", (void *self, const text &config), (self, config))
CALL(compile,
     "_ZN2ov4Core13compile_modelERKSt10shared_ptrIKNS_5ModelEERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKSt3mapISC_NS_3AnyESt4lessISC_ESaISt4pairISD_SG_EEE",
     ov::CompiledModel,
     (void *self, const std::shared_ptr<const ov::Model> &m, const text &device, const ov::AnyMap &with),
     (self, m, device, with))
CALL(get_property,
     "_ZNK2ov4Core12get_propertyERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEES8_RKSt3mapIS6_NS_3AnyESt4lessIS6_ESaISt4pairIS7_SA_EEE",
     ov::Any, (const void *self, const text &device, const text &name, const ov::AnyMap &with),
     (self, device, name, with))
CALL(create_request, "_ZN2ov13CompiledModel20create_infer_requestEv", ov::InferRequest, (void *self), (self))
CALL(compiled_input, "_ZNK2ov13CompiledModel5inputERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", const ov::Output<const ov::Node> &,
     (const void *self, const text &name), (self, name))
CALL(compiled_output, "_ZNK2ov13CompiledModel6outputERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", const ov::Output<const ov::Node> &,
     (const void *self, const text &name), (self, name))
CALL_MAKE(tensor_make, "_ZN2ov6TensorC1ERKNS_7element4TypeERKNS_5ShapeERKNS_9AllocatorE",
          (void *self, const ov::element::Type &type, const ov::Shape &shape, const ov::Allocator &a),
          (self, type, shape, a))
CALL_MAKE(tensor_wrap, "_ZN2ov6TensorC1ERKNS_7element4TypeERKNS_5ShapeEPvRKNS_7StridesE",
          (void *self, const ov::element::Type &type, const ov::Shape &shape, void *at, const ov::Strides &s),
          (self, type, shape, at, s))
CALL_MAKE(tensor_wrap_const, "_ZN2ov6TensorC1ERKNS_7element4TypeERKNS_5ShapeEPKvRKNS_7StridesE",
          (void *self, const ov::element::Type &type, const ov::Shape &shape, const void *at, const ov::Strides &s),
          (self, type, shape, at, s))
CALL_MAKE(tensor_region, "_ZN2ov6TensorC1ERKS0_RKNS_10CoordinateES5_",
          (void *self, const ov::Tensor &of, const ov::Coordinate &begin, const ov::Coordinate &end),
          (self, of, begin, end))
CALL_VOID(copy_to, "_ZNK2ov6Tensor7copy_toES0_", (const void *self, ov::Tensor to), (self, to))
CALL_VOID(set_tensor, "_ZN2ov12InferRequest10set_tensorERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKNS_6TensorE",
          (void *self, const text &name, const ov::Tensor &t), (self, name, t))
CALL(get_tensor, "_ZN2ov12InferRequest10get_tensorERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", ov::Tensor, (void *self, const text &name),
     (self, name))
CALL_VOID(start_async, "_ZN2ov12InferRequest11start_asyncEv", (void *self), (self))
CALL(wait_for, "_ZN2ov12InferRequest8wait_forENSt6chrono8durationIlSt5ratioILl1ELl1000EEEE", bool,
     (void *self, std::chrono::milliseconds time), (self, time))
CALL_VOID(wait, "_ZN2ov12InferRequest4waitEv", (void *self), (self))
CALL_VOID(cancel, "_ZN2ov12InferRequest6cancelEv", (void *self), (self))
/* clang-format on */
