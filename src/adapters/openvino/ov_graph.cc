/* ov_graph.cc - see ov_graph.hh.
 *
 * The way from the file to the graph: the GGUF frontend with GGUFMakeStateful (keys and values become state),
 * AdaptToGenAI (inputs and outputs get the names that the next pass looks for), SDPAToPagedAttention (state becomes
 * cache inputs and a block table).  Reading "x.gguf" by core.read_model() does not work in this release. */
#include "adapters/openvino/ov_graph.hh"

#include <openvino/frontend/extension/decoder_transformation.hpp>
#include <openvino/frontend/gguf/adapt_to_genai.hpp>
#include <openvino/frontend/gguf/frontend.hpp>
#include <openvino/frontend/gguf/make_stateful.hpp>
#include <openvino/op/constant.hpp>
#include <openvino/op/convert.hpp>
#include <openvino/op/gather.hpp>
#include <openvino/op/matmul.hpp>
#include <openvino/op/result.hpp>
#include <openvino/op/scaled_dot_product_attention.hpp>
#include <openvino/pass/sdpa_to_paged_attention.hpp>

#include <cstring>
#include <set>
#include <string>

namespace gguf = ov::frontend::gguf;

const char md_ov_logit_rows[] = "modeld_logit_rows", md_ov_window_rows[] = "modeld_window_rows";
const char md_ov_queries_of[] = "modeld_queries.", md_ov_scores_of[] = "modeld_scores.";
const char md_ov_threshold_of[] = "xattention_threshold.", md_ov_sparse_block[] = "xattention_block_size",
           md_ov_sparse_stride[] = "xattention_stride";

namespace
{

/* The projection to the vocabulary costs as much as several layers, and its output is large: only the rows that
 * are asked for go through it.  False: the graph ends in another way. */
bool project_asked_rows(const std::shared_ptr<ov::Model> &graph)
{
    enum { STEPS_MAX = 8 }; /* reshapes, a scale, a cap */
    std::shared_ptr<ov::Node> node = graph->output("logits").get_node_shared_ptr();
    for (int i = 0; i < STEPS_MAX && node->get_input_size() > 0 && !ov::is_type<ov::op::v0::MatMul>(node);
         i++)
        node = node->get_input_node_shared_ptr(0);
    if (!ov::is_type<ov::op::v0::MatMul>(node))
        return false;
    const ov::PartialShape shape = node->get_input_partial_shape(0);
    if (shape.rank().is_dynamic() || shape.size() < 3 || shape[1].is_static())
        return false;
    auto rows = std::make_shared<ov::op::v0::Parameter>(ov::element::i64, ov::PartialShape{ -1 });
    rows->set_friendly_name(md_ov_logit_rows);
    rows->output(0).set_names({ md_ov_logit_rows });
    auto axis = ov::op::v0::Constant::create(ov::element::i64, {}, { 1 });
    auto asked = std::make_shared<ov::op::v8::Gather>(node->input_value(0), rows, axis);
    node->input(0).replace_source_output(asked);
    graph->add_parameters({ rows });
    graph->validate_nodes_and_infer_types();
    return true;
}

/* What would compute something else than the model does, or cannot be had in ranges. */
md_status check_kind(const char *path, const ov::Model &graph, md_err *err)
{
    const ov::AnyMap &facts = graph.get_rt_info();
    if (facts.count(gguf::pass::gguf_recurrent_states_key()) != 0)
        return md_fail(err, MD_UNSUPPORTED,
                       "model '%s' has recurrent layers, which the engine 'openvino' cannot run yet: use the "
                       "engine 'llama'",
                       path);
    if (facts.count(gguf::pass::gguf_imrope_key()) != 0)
        return md_fail(err, MD_UNSUPPORTED,
                       "model '%s' has several positions for each token, which the engine 'openvino' cannot "
                       "run: use the engine 'llama'",
                       path);
    return MD_OK;
}

/* The masks that a node's value comes from. */
void find_masks(ov::Node *node, std::set<ov::Node *> &seen, bool *ret_all, bool *ret_window)
{
    if (!seen.insert(node).second)
        return;
    *ret_all = *ret_all || node->get_friendly_name() == "self_kq_mask";
    *ret_window = *ret_window || node->get_friendly_name() == "self_kq_mask_swa";
    for (size_t i = 0; i < node->get_input_size(); i++)
        find_masks(node->get_input_node_ptr(i), seen, ret_all, ret_window);
}

/* Which layers have a window, by the mask that the frontend gives them: later passes drop it.  Layers stand in the
 * order in which each needs the one before. */
md_status find_windows(const char *path, const ov::Model &graph, std::vector<bool> *ret_windowed,
                       int32_t *ret_tokens, md_err *err)
{
    enum { MASK = 3 };
    bool some = false;
    for (const auto &node : graph.get_ordered_ops()) {
        bool all = false, window = false;
        std::set<ov::Node *> seen;
        if (!ov::is_type<ov::op::v13::ScaledDotProductAttention>(node))
            continue;
        if (node->get_input_size() > MASK)
            find_masks(node->get_input_node_ptr(MASK), seen, &all, &window);
        if (all == window)
            return md_fail(err, MD_UNSUPPORTED,
                           "model '%s': what layer %zu attends to is not known here, use the engine 'llama'",
                           path, ret_windowed->size());
        ret_windowed->push_back(window);
        some = some || window;
    }
    const auto said = graph.get_rt_info().find(gguf::pass::gguf_swa_window_key());
    const int64_t tokens = some && said != graph.get_rt_info().end() ? said->second.as<int64_t>() : 0;
    if (some && (tokens < 1 || tokens > INT32_MAX))
        return md_fail(err, MD_UNSUPPORTED,
                       "model '%s' does not say how long its windows are: use the engine 'llama'", path);
    *ret_tokens = static_cast<int32_t>(tokens);
    return MD_OK;
}

/* Inputs of an attention by number; the header that names them is not handed out.  Source: the library, which names an input
 * when it refuses the shape of it, release 2026.4.1. */
enum { QUERIES = 0, KEYS = 3, SCALE = 9, WINDOW = 10, ALIBI = 11, SINKS = 20 };

bool is_attention(const ov::Node &node)
{
    return std::strcmp(node.get_type_name(), "PagedAttentionExtension") == 0;
}

/* SDPAToPagedAttention leaves all windows open.  What a windowed layer sees is counted in rows and given with each
 * step, because a hole makes it less.  False: the layers are not those that were found. */
bool set_windows(const std::shared_ptr<ov::Model> &graph, const std::vector<bool> &windowed)
{
    auto rows = std::make_shared<ov::op::v0::Parameter>(ov::element::i32, ov::PartialShape{});
    size_t layer = 0;
    bool used = false;
    rows->set_friendly_name(md_ov_window_rows);
    rows->output(0).set_names({ md_ov_window_rows });
    for (const auto &node : graph->get_ordered_ops()) {
        if (!is_attention(*node))
            continue;
        if (layer >= windowed.size() || node->get_input_size() <= WINDOW ||
            node->get_input_node_ptr(KEYS)->get_friendly_name() != "key_cache." + std::to_string(layer))
            return false;
        if (windowed[layer]) {
            node->input(WINDOW).replace_source_output(rows);
            used = true;
        }
        layer++;
    }
    if (used)
        graph->add_parameters({ rows });
    return layer == windowed.size();
}

/* In f32: the graph may say f16 where the plugin computes in f32, and an output of its own type would be rounded. */
void give(ov::Model &graph, const ov::Output<ov::Node> &value, const std::string &name)
{
    auto exact = std::make_shared<ov::op::v0::Convert>(value, ov::element::f32);
    exact->output(0).set_names({ name });
    graph.add_results({ std::make_shared<ov::op::v0::Result>(exact) });
}

/* An input that is left open has no numbers. */
bool is_open(const ov::Node &node, size_t input)
{
    return input >= node.get_input_size() || (node.get_input_partial_shape(input).is_static() &&
                                              ov::shape_size(node.get_input_shape(input)) == 0);
}

/* What each layer multiplies query times key by, where that is all there is before softmax. */
void find_scales(const ov::Model &graph, std::vector<float> *ret_scales)
{
    for (const auto &node : graph.get_ordered_ops()) {
        if (!is_attention(*node))
            continue;
        const auto scale = ov::as_type_ptr<ov::op::v0::Constant>(node->get_input_node_shared_ptr(SCALE));
        const bool known = scale != nullptr && ov::shape_size(scale->get_shape()) == 1 &&
                           is_open(*node, ALIBI) && is_open(*node, SINKS);
        ret_scales->push_back(known ? scale->cast_vector<float>()[0] : 0.0f);
    }
}

/* Watched layers get outputs: what comes in as queries, and what goes out as scores.  The layers are those that set_windows
 * found. */
void add_watched(ov::Model &graph, const md_ov_watch *watch)
{
    enum { SCORES = 1 }; /* its second output */
    int32_t layer = 0, next = 0;
    for (const auto &node : graph.get_ordered_ops()) {
        if (!is_attention(*node))
            continue;
        if (watch->count == MD_OV_WATCH_ALL || (next < watch->count && watch->layers[next] == layer)) {
            give(graph, node->input_value(QUERIES), md_ov_queries_of + std::to_string(layer));
            if (watch->scores)
                give(graph, node->output(SCORES), md_ov_scores_of + std::to_string(layer));
            next++;
        }
        layer++;
    }
}

/* Layers to watch, checked against those there are. */
md_status check_watch(const md_ov_watch *watch, int32_t layers, md_err *err)
{
    for (int32_t i = 0; watch != nullptr && i < watch->count; i++) {
        const int32_t layer = watch->layers[i];
        if (layer < 0 || layer >= layers || (i > 0 && layer <= watch->layers[i - 1]))
            return md_fail(err, MD_INVALID, "layers to watch must be of 0 to %d and in rising order, got %d",
                           layers - 1, layer);
    }
    return MD_OK;
}

std::shared_ptr<ov::Model> read_file(const char *path)
{
    gguf::FrontEnd frontend;
    frontend.add_extension(
        std::make_shared<ov::frontend::DecoderTransformationExtension>(gguf::pass::GGUFMakeStateful()));
    return frontend.convert(frontend.load(std::string(path)));
}

} // namespace

md_status md_ov_read_graph(const char *path, const md_ov_watch *watch, md_ov_graph *ret, md_err *err)
{
    std::shared_ptr<ov::Model> graph = read_file(path);
    md_status s = check_kind(path, *graph, err);
    if (s == MD_OK)
        s = find_windows(path, *graph, &ret->windowed, &ret->window_tokens, err);
    if (s == MD_OK)
        s = check_watch(watch, static_cast<int32_t>(ret->windowed.size()), err);
    if (s != MD_OK)
        return s;
    gguf::pass::AdaptToGenAI().run_on_model(graph);
    const bool sparse = watch != nullptr && watch->sparse;
    ov::pass::SDPAToPagedAttention(false, false, false, false, sparse).run_on_model(graph);
    if (!set_windows(graph, ret->windowed) || !project_asked_rows(graph))
        return md_fail(err, MD_UNSUPPORTED,
                       "open model '%.120s' with OpenVINO: its graph is made in a way that is not known here",
                       path);
    find_scales(*graph, &ret->scales);
    if (watch != nullptr)
        add_watched(*graph, watch);
    ret->model = graph;
    return MD_OK;
}
