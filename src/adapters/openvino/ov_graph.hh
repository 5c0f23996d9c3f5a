/* ov_graph.hh - from a GGUF file to the graph that a step runs: read, checked, and given the inputs and outputs that
 * ov_shim.cc works with.  Inside the shim: these functions throw what the library throws. */
#ifndef MD_ADAPTERS_OPENVINO_OV_GRAPH_HH
#define MD_ADAPTERS_OPENVINO_OV_GRAPH_HH

#include "adapters/openvino/ov_shim.h"

#include <openvino/openvino.hpp>

#include <memory>
#include <vector>

/* Names of ours in the graph.  Inputs: the rows of a step that get logits (i64); the rows that a token sees in windowed
 * layers (i32, a scalar; there is none without such layers).  Outputs of watched layers begin so, the number follows. */
extern const char md_ov_logit_rows[], md_ov_window_rows[];
extern const char md_ov_queries_of[], md_ov_scores_of[];
/* Inputs that the library gives a graph for sparse steps: the threshold of a layer (f32; empty: it attends to everything),
 * and two numbers (i32, scalars) that are of the graph, not of a step. */
extern const char md_ov_threshold_of[], md_ov_sparse_block[], md_ov_sparse_stride[];

struct md_ov_graph {
    std::shared_ptr<ov::Model> model;
    std::vector<bool> windowed; /* of each layer */
    std::vector<float> scales;  /* of each layer; 0: not known */
    int32_t window_tokens = 0;  /* 0: there are no windowed layers */
};

/* MD_INVALID      a layer to watch that the model does not have, or twice
 * MD_UNSUPPORTED  layers that are recurrent, or attention that is not known here */
md_status md_ov_read_graph(const char *path, const md_ov_watch *watch, md_ov_graph *ret, md_err *err);

#endif
