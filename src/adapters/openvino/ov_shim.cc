/* ov_shim.cc - the functions of ov_shim.h: a graph (ov_graph.hh) compiled, given its memory, and run step by step. */
#include "adapters/openvino/ov_shim.h"

#include "adapters/openvino/ov_graph.hh"
#include "adapters/openvino/ov_pool.hh"

#include <openvino/openvino.hpp>
#include <openvino/runtime/exception.hpp>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <set>
#include <string>

struct md_ov_model {
    ov::Core core;
    ov::CompiledModel compiled;
    md_ov_pool pool; /* before the request that uses it: members go in turn from the last */
    ov::InferRequest request;
    md_ov_facts facts = {};
    bool on_cpu = true;
    int32_t own_block = 0;    /* see md_ov_model_bind */
    int32_t whole_count = 0;  /* tokens of the last step that came to its end */
    int32_t broken_count = 0; /* of one behind it that did not; 0: there is none */
    int32_t given_count = 0;  /* tokens of the step whose results can be had; 0: there is none */
    std::set<int32_t> watched;
    bool scores = false, sparse = false;
};

/* The library's words in one line: it names its source files and conditions first, which help nobody here. */
std::string md_ov_cause(const std::exception &e)
{
    std::string cause, line;
    for (const char *c = e.what();; c++) {
        if (*c != '\n' && *c != '\0') {
            line += static_cast<unsigned char>(*c) < ' ' ? ' ' : *c;
            continue;
        }
        if (!line.empty() && line.rfind("Exception from", 0) != 0)
            cause += (cause.empty() ? "" : "; ") + line;
        line.clear();
        if (*c == '\0')
            break;
    }
    return cause.empty() ? "no reason given" : cause.substr(0, 360);
}

namespace
{

/* What is being handled, as a status.  Called in a catch block.  Words need memory too: without it they are left out. */
md_status failed(md_status status, const char *what, md_err *err) noexcept
{
    try {
        try {
            throw;
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception &e) {
            return md_fail(err, status, "%s: %s", what, md_ov_cause(e).c_str());
        }
    } catch (const std::bad_alloc &) {
        return md_fail(err, MD_NO_MEMORY, "%s: no memory", what);
    } catch (...) {
        return md_fail(err, status, "%s: no reason given", what);
    }
}

ov::element::Type element_of(md_ov_type kv_type)
{
    return kv_type == MD_OV_F32   ? ov::element::f32
           : kv_type == MD_OV_F16 ? ov::element::f16
                                  : ov::element::u8;
}

ov::AnyMap properties(md_ov_type kv_type, int32_t threads)
{
    return { { ov::inference_num_threads.name(), threads },
             { ov::hint::performance_mode.name(), ov::hint::PerformanceMode::LATENCY },
             { ov::hint::kv_cache_precision.name(), element_of(kv_type) },
             /* what is not said is rounded more on processors that can: to bf16, activations to 8 bits */
             { ov::hint::inference_precision.name(), ov::element::f32 },
             { ov::hint::dynamic_quantization_group_size.name(), 0 },
             /* u8 keys by channel share a scale in each block, which changes as the block fills */
             { "KEY_CACHE_QUANT_MODE", "BY_TOKEN" },
             { ov::hint::enable_cpu_pinning.name(), false } };
}

/* Shape and type of a cache input. */
md_status read_cache(const md_ov_model *m, bool values, int32_t layer, md_ov_type kv_type, md_ov_shape *ret,
                     md_err *err)
{
    const auto input = m->compiled.input(md_ov_cache_input(values, layer));
    const ov::PartialShape shape = input.get_partial_shape();
    const ov::element::Type type = input.get_element_type();
    if (shape.size() != 4 || shape[1].is_dynamic() || shape[2].is_dynamic() || shape[3].is_dynamic())
        return md_fail(err, MD_UNSUPPORTED,
                       "the library keeps KV of this model in a way that is not known here (layer %d: %s)",
                       layer, shape.to_string().c_str());
    if (type != element_of(kv_type))
        return md_fail(err, MD_UNSUPPORTED,
                       "the library keeps KV as %s there, where %s is asked: ask for another type, or use "
                       "--device CPU",
                       type.get_type_name().c_str(), element_of(kv_type).get_type_name().c_str());
    *ret = md_ov_shape{ shape[1].get_length(),
                        { shape[2].get_length(), shape[3].get_length() },
                        static_cast<int32_t>(type.size()) };
    return MD_OK;
}

md_status read_layer(md_ov_model *m, int32_t layer, md_ov_type kv_type, md_err *err)
{
    enum { SCALE_BYTES = 8 }; /* of a u8 row: scale and zero point, f32 each */
    md_ov_facts &f = m->facts;
    md_ov_layer &l = f.layers[layer];
    md_ov_shape keys = {}, values = {};
    md_status s = read_cache(m, false, layer, kv_type, &keys, err);
    if (s == MD_OK)
        s = read_cache(m, true, layer, kv_type, &values, err);
    if (s == MD_OK)
        s = md_ov_layout_find(&keys, &values, !m->on_cpu, &l.keys, &l.values, err);
    if (s != MD_OK)
        return s;
    if (layer == 0)
        f.block_rows = l.keys.rows;
    if (l.keys.rows != f.block_rows || f.block_rows > MD_OV_BLOCK_ROWS ||
        (kv_type == MD_OV_U8 && l.keys.across))
        return md_fail(err, MD_UNSUPPORTED,
                       "the library keeps KV of layer %d in blocks of %d rows, which is not known here",
                       layer, l.keys.rows);
    l.heads = static_cast<int32_t>(keys.heads);
    l.key_bytes = static_cast<int32_t>(l.keys.row_bytes);
    l.value_bytes = static_cast<int32_t>(l.values.row_bytes);
    l.key_length = (l.key_bytes - (kv_type == MD_OV_U8 ? SCALE_BYTES : 0)) / keys.number_bytes;
    f.block_bytes += static_cast<size_t>(l.heads) *
                     (md_ov_layout_head_bytes(&l.keys) + md_ov_layout_head_bytes(&l.values));
    return MD_OK;
}

md_status read_facts(md_ov_model *m, md_ov_type kv_type, md_err *err)
{
    md_ov_facts &f = m->facts;
    f.input_count = static_cast<int32_t>(m->compiled.inputs().size());
    f.output_count = static_cast<int32_t>(m->compiled.outputs().size());
    f.vocab_count = static_cast<int32_t>(m->compiled.output("logits").get_partial_shape()[2].get_length());
    for (const auto &input : m->compiled.inputs())
        f.layer_count += input.get_any_name().rfind("key_cache.", 0) == 0;
    if (f.layer_count < 1 || f.layer_count > MD_OV_LAYERS_MAX)
        return md_fail(err, MD_UNSUPPORTED, "the model has %d layers with KV: 1 to %d can be run",
                       f.layer_count, static_cast<int>(MD_OV_LAYERS_MAX));
    md_status s = MD_OK;
    for (int32_t i = 0; i < f.layer_count && s == MD_OK; i++)
        s = read_layer(m, i, kv_type, err);
    return s;
}

/* What another device than the processor would compute wrong, or keep in a form of its own.  Its attention takes the length
 * of windows as a constant, and passes over one that comes with each step. */
md_status check_device(const md_ov_model *m, const char *device, const md_ov_graph &graph, md_ov_type kv_type,
                       md_err *err)
{
    if (m->on_cpu)
        return MD_OK;
    if (graph.window_tokens > 0)
        return md_fail(err, MD_UNSUPPORTED,
                       "layers with a window cannot be run on '%.32s' by the engine 'openvino': use --device "
                       "CPU, or the engine 'llama'",
                       device);
    if (kv_type == MD_OV_U8)
        return md_fail(err, MD_UNSUPPORTED,
                       "the KV type u8 is one of the processor, '%.32s' has another of 8 bits: use f16, or "
                       "--device CPU",
                       device);
    return MD_OK;
}

/* Shapes of the graph go with a step. */
void set_numbers(ov::InferRequest &request, const char *name, const int32_t *values, size_t count,
                 bool scalar)
{
    ov::Tensor t(ov::element::i32, scalar ? ov::Shape{} : ov::Shape{ count });
    std::memcpy(t.data(), values, count * sizeof *values);
    request.set_tensor(name, t);
}

/* Empty where a layer attends to everything. */
void set_thresholds(md_ov_model *m, float threshold)
{
    const ov::Tensor none(ov::element::f32, ov::Shape{ 0 });
    ov::Tensor one(ov::element::f32, ov::Shape{ 1 });
    one.data<float>()[0] = threshold;
    for (int32_t i = 0; i < m->facts.layer_count; i++)
        m->request.set_tensor(md_ov_threshold_of + std::to_string(i),
                              threshold > 0 && !m->facts.layers[i].windowed ? one : none);
}

void set_inputs(md_ov_model *m, const md_ov_step *step)
{
    const int32_t all = step->past + step->count;
    const int32_t tokens_begin[] = { 0, step->count }, table_begin[] = { 0, step->table_count };
    ov::Tensor ids(ov::element::i64, { static_cast<size_t>(step->count) });
    ov::Tensor positions(ov::element::i64, { static_cast<size_t>(step->count) });
    ov::Tensor rows(ov::element::i64, { 1 });
    for (int32_t i = 0; i < step->count; i++) {
        ids.data<int64_t>()[i] = step->tokens[i];
        positions.data<int64_t>()[i] = step->start + i;
    }
    rows.data<int64_t>()[0] = step->count - 1;
    m->request.set_tensor("input_ids", ids);
    m->request.set_tensor("position_ids", positions);
    m->request.set_tensor(md_ov_logit_rows, rows);
    set_numbers(m->request, "max_context_len", &all, 1, true);
    set_numbers(m->request, "past_lens", &step->past, 1, false);
    set_numbers(m->request, "subsequence_begins", tokens_begin, 2, false);
    set_numbers(m->request, "block_indices_begins", table_begin, 2, false);
    if (m->facts.window_tokens > 0)
        set_numbers(m->request, md_ov_window_rows, &step->window_rows, 1, true);
    set_numbers(m->request, "block_indices", step->table, static_cast<size_t>(step->table_count), false);
    if (m->sparse)
        set_thresholds(m, step->threshold);
}

/* Whatever failed, nothing may go on writing to memory of others. */
void wait_for_end(md_ov_model *m) noexcept
{
    try {
        m->request.cancel();
        m->request.wait();
    } catch (...) { /* it has ended, in whichever way */
    }
}

/* False: it was stopped, or asked to stop: what was computed meanwhile is not wanted. */
bool infer(md_ov_model *m, int32_t count, bool (*stop)(void *user), void *user)
{
    const std::chrono::milliseconds between(3);
    bool asked = false;
    if (stop != nullptr && stop(user))
        return false;
    m->broken_count = count; /* until it has come to its end */
    try {
        m->request.start_async();
        while (stop != nullptr && !m->request.wait_for(between))
            if (!asked && stop(user)) {
                asked = true;
                m->request.cancel();
            }
        m->request.wait(); /* for what went wrong */
    } catch (const ov::Cancelled &) {
        return false;
    } catch (...) {
        wait_for_end(m);
        throw;
    }
    m->broken_count = 0;
    m->whole_count = count;
    return !asked;
}

/* An operation of the graph makes room for its result when it sees another shape than it worked on last.  A step that
 * breaks off leaves room for its own number of tokens behind operations that still remember the number before, and fails
 * the next step of that number.  So one of a third number of tokens is computed, in a block that nobody reads. */
void settle(md_ov_model *m)
{
    static const int32_t tokens[] = { 0, 0, 0 };
    md_ov_step step = {};
    step.tokens = tokens;
    for (step.count = 1; step.count == m->whole_count || step.count == m->broken_count;)
        step.count++;
    step.table = &m->own_block;
    step.table_count = 1;
    step.window_rows = 1;
    set_inputs(m, &step);
    infer(m, step.count, nullptr, nullptr);
}

md_status check_given(const md_ov_model *m, int32_t layer, md_err *err)
{
    if (m->watched.count(layer) == 0)
        return md_fail(err, MD_INVALID, "layer %d is not watched", layer);
    if (m->given_count == 0)
        return md_fail(err, MD_INVALID, "no step came to its end");
    return MD_OK;
}

} // namespace

void md_ov_version(char *out, size_t out_bytes)
{
    const char *version = ov::get_openvino_version().buildNumber;
    if (out_bytes > 0) {
        std::strncpy(out, version != nullptr ? version : "", out_bytes - 1);
        out[out_bytes - 1] = '\0';
    }
}

enum md_status md_ov_processor(char *out, size_t out_bytes, struct md_err *err)
{
    try {
        ov::Core core;
        std::string text = core.get_property("CPU", ov::device::full_name) + ":";
        for (const std::string &kind : core.get_property("CPU", ov::device::capabilities))
            text += " " + kind;
        if (out_bytes > 0)
            out[text.copy(out, out_bytes - 1)] = '\0';
        return MD_OK;
    } catch (...) {
        return failed(MD_UNSUPPORTED, "look at the processor with OpenVINO", err);
    }
}

enum md_status md_ov_devices(struct md_ov_device *ret_devices, int32_t *ret_count, struct md_err *err)
{
    try {
        ov::Core core;
        int32_t count = 0;
        for (const std::string &id : core.get_available_devices()) {
            if (count == MD_OV_DEVICES_MAX)
                break;
            md_ov_describe(core, id, &ret_devices[count++]);
        }
        *ret_count = count;
        return MD_OK;
    } catch (...) {
        return failed(MD_UNSUPPORTED, "list the devices of OpenVINO", err);
    }
}

enum md_status md_ov_model_open(const char *path, const char *device, enum md_ov_type kv_type,
                                int32_t threads, const struct md_ov_watch *watch,
                                struct md_ov_model **ret_model, struct md_err *err)
{
    char what[192];
    std::snprintf(what, sizeof what, "open model '%.120s' with OpenVINO (the engine 'llama' may take it)",
                  path);
    try {
        auto m = std::make_unique<md_ov_model>();
        md_ov_graph graph;
        md_status s = md_ov_read_graph(path, watch, &graph, err);
        if (s != MD_OK)
            return s;
        m->on_cpu = std::strcmp(device, md_ov_cpu) == 0;
        s = check_device(m.get(), device, graph, kv_type, err);
        if (s != MD_OK)
            return s;
        m->compiled = m->core.compile_model(graph.model, device,
                                            m->on_cpu ? properties(kv_type, threads)
                                                      : md_ov_device_properties(m->core, device, kv_type));
        s = read_facts(m.get(), kv_type, err);
        if (s != MD_OK)
            return s;
        m->facts.window_tokens = graph.window_tokens;
        for (int32_t i = 0; i < m->facts.layer_count; i++) {
            m->facts.layers[i].windowed = graph.windowed.at(static_cast<size_t>(i));
            m->facts.layers[i].scale = graph.scales.at(static_cast<size_t>(i));
        }
        if (watch != nullptr) {
            for (int32_t i = 0; i < watch->count; i++)
                m->watched.insert(watch->layers[i]);
            for (int32_t i = 0; watch->count == MD_OV_WATCH_ALL && i < m->facts.layer_count; i++)
                m->watched.insert(i);
            m->scores = watch->scores;
            m->sparse = watch->sparse;
        }
        m->request = m->compiled.create_infer_request();
        if (m->sparse) {
            const int32_t rows = MD_OV_SPARSE_ROWS, stride = 16;
            set_numbers(m->request, md_ov_sparse_block, &rows, 1, true);
            set_numbers(m->request, md_ov_sparse_stride, &stride, 1, true);
        }
        *ret_model = m.release();
        return MD_OK;
    } catch (...) {
        return failed(MD_UNSUPPORTED, what, err);
    }
}

void md_ov_model_close(struct md_ov_model *m)
{
    delete m;
}

const struct md_ov_facts *md_ov_model_facts(const struct md_ov_model *m)
{
    return &m->facts;
}

enum md_status md_ov_model_bind(struct md_ov_model *m, int32_t layer, void *keys, void *values,
                                int32_t blocks, struct md_err *err)
{
    try {
        m->own_block = blocks - 1;
        for (int i = 0; i < 2; i++) {
            const std::string name = md_ov_cache_input(i == 1, layer);
            const auto input = m->compiled.input(name);
            const ov::PartialShape p = input.get_partial_shape();
            const ov::Shape shape{ static_cast<size_t>(blocks), static_cast<size_t>(p[1].get_length()),
                                   static_cast<size_t>(p[2].get_length()),
                                   static_cast<size_t>(p[3].get_length()) };
            m->request.set_tensor(name, ov::Tensor(input.get_element_type(), shape, i == 0 ? keys : values));
        }
        return MD_OK;
    } catch (...) {
        return failed(MD_INTERNAL, "give OpenVINO the KV cache", err);
    }
}

enum md_status md_ov_model_hold(struct md_ov_model *m, int32_t blocks, struct md_err *err)
{
    try {
        m->own_block = blocks - 1;
        m->pool = md_ov_pool_make(m->compiled, !m->on_cpu, m->facts.layer_count, blocks);
        md_ov_pool_set(m->pool, m->request);
        return MD_OK;
    } catch (...) {
        return failed(MD_NO_MEMORY, "get memory of the device for the KV cache (less --hot takes less)", err);
    }
}

enum md_status md_ov_model_get(const struct md_ov_model *m, int32_t block, uint8_t *ret_bytes,
                               struct md_err *err)
{
    try {
        md_ov_pool_get(m->pool, block, ret_bytes);
        return MD_OK;
    } catch (...) {
        return failed(MD_INTERNAL, "get KV from the device", err);
    }
}

enum md_status md_ov_model_put(struct md_ov_model *m, int32_t block, const uint8_t *bytes, struct md_err *err)
{
    try {
        md_ov_pool_put(m->pool, block, bytes);
        return MD_OK;
    } catch (...) {
        return failed(MD_INTERNAL, "put KV onto the device", err);
    }
}

enum md_status md_ov_model_run(struct md_ov_model *m, const struct md_ov_step *step, bool (*stop)(void *user),
                               void *user, const float **ret_logits, struct md_err *err)
{
    try {
        m->given_count = 0;
        if (m->broken_count > 0)
            settle(m);
        set_inputs(m, step);
        if (!infer(m, step->count, stop, user))
            return md_fail(err, MD_CANCELLED, "interrupted");
        const ov::Tensor logits = m->request.get_tensor("logits");
        if (logits.get_element_type() != ov::element::f32 ||
            logits.get_size() != static_cast<size_t>(m->facts.vocab_count))
            return md_fail(err, MD_INTERNAL, "OpenVINO gave %zu logits, not %d of f32", logits.get_size(),
                           m->facts.vocab_count);
        *ret_logits = logits.data<const float>();
        m->given_count = step->count;
        return MD_OK;
    } catch (...) {
        return failed(MD_INTERNAL, "OpenVINO failed in a step", err);
    }
}

enum md_status md_ov_model_queries(struct md_ov_model *m, int32_t layer, struct md_ov_queries *ret_queries,
                                   struct md_err *err)
{
    try {
        const md_status s = check_given(m, layer, err);
        if (s != MD_OK)
            return s;
        const ov::Tensor t = m->request.get_tensor(md_ov_queries_of + std::to_string(layer));
        const size_t rows = static_cast<size_t>(m->given_count);
        const size_t length = static_cast<size_t>(m->facts.layers[layer].key_length);
        if (t.get_element_type() != ov::element::f32 || t.get_size() % (rows * length) != 0)
            return md_fail(err, MD_INTERNAL, "OpenVINO gave queries of %zu rows as %s of %s", rows,
                           t.get_shape().to_string().c_str(), t.get_element_type().to_string().c_str());
        ret_queries->at = t.data<const float>();
        ret_queries->rows = m->given_count;
        ret_queries->heads = static_cast<int32_t>(t.get_size() / (rows * length));
        ret_queries->length = static_cast<int32_t>(length);
        return MD_OK;
    } catch (...) {
        return failed(MD_INTERNAL, "get queries from OpenVINO", err);
    }
}

enum md_status md_ov_model_scores(struct md_ov_model *m, int32_t layer, const float **ret_scores,
                                  int32_t *ret_count, struct md_err *err)
{
    try {
        const md_status s = check_given(m, layer, err);
        if (s != MD_OK)
            return s;
        if (!m->scores)
            return md_fail(err, MD_INVALID, "scores were not asked for when the model was opened");
        const ov::Tensor t = m->request.get_tensor(md_ov_scores_of + std::to_string(layer));
        if (t.get_element_type() != ov::element::f32 || t.get_size() > INT32_MAX)
            return md_fail(err, MD_INTERNAL, "OpenVINO gave %zu scores, not of f32", t.get_size());
        *ret_scores = t.data<const float>();
        *ret_count = static_cast<int32_t>(t.get_size());
        return MD_OK;
    } catch (...) {
        return failed(MD_INTERNAL, "get scores from OpenVINO", err);
    }
}

/* ---- for ov_load.c ---- */

/* As a literal: what takes memory might throw here. */
#define VERSION_TEXT(major, minor, patch) #major "." #minor "." #patch
#define VERSION(major, minor, patch) VERSION_TEXT(major, minor, patch)

extern "C" __attribute__((visibility("default"))) enum md_status md_ov_shim_get(
    const struct md_ov_shim **ret_shim, struct md_err *err);

enum md_status md_ov_shim_get(const struct md_ov_shim **ret_shim, struct md_err *err)
{
    static const md_ov_shim shim = { MD_OV_SHIM_SIZES,    md_ov_version,     md_ov_processor,
                                     md_ov_devices,       md_ov_model_open,  md_ov_model_close,
                                     md_ov_model_facts,   md_ov_model_bind,  md_ov_model_hold,
                                     md_ov_model_get,     md_ov_model_put,   md_ov_model_run,
                                     md_ov_model_queries, md_ov_model_scores };
    static const char wanted[] =
        VERSION(OPENVINO_VERSION_MAJOR, OPENVINO_VERSION_MINOR, OPENVINO_VERSION_PATCH);
    char found[64];
    md_ov_version(found, sizeof found);
    if (std::strncmp(found, wanted, sizeof wanted - 1) != 0 || found[sizeof wanted - 1] != '-')
        return md_fail(
            err, MD_UNSUPPORTED,
            "the OpenVINO library here is %s, modeld was built for %s: install that one, or use the "
            "engine 'llama'",
            found, wanted);
    *ret_shim = &shim;
    return MD_OK;
}
