/* ov_pool.hh - keys and values in tensors of the library's, in memory of the device: made, and blocks of them out and in.
 * Inside the shim: these functions throw what the library throws.
 *
 * A device that is not the processor gives tensors by its remote context, whose bytes cannot be looked at; a region of one
 * block is copied to host memory and back.  Of the processor they are plain tensors, copied in the same steps. */
#ifndef MD_ADAPTERS_OPENVINO_OV_POOL_HH
#define MD_ADAPTERS_OPENVINO_OV_POOL_HH

#include "adapters/openvino/ov_shim.h"

#include <openvino/openvino.hpp>

#include <vector>

struct md_ov_pool {
    std::vector<ov::Tensor> parts; /* keys and values of each layer in turn; [blocks, heads, ., .] */
    bool remote = false;
};

/* "key_cache." or "value_cache.", and the number of the layer: the inputs by their names. */
std::string md_ov_cache_input(bool values, int32_t layer);

/* Tensors for all layers, zeroed: memory of a device comes as it is. */
md_ov_pool md_ov_pool_make(const ov::CompiledModel &compiled, bool remote, int32_t layers, int32_t blocks);
void md_ov_pool_set(const md_ov_pool &pool, ov::InferRequest &request);

/* All parts of a block, one behind the other at `bytes`. */
void md_ov_pool_get(const md_ov_pool &pool, int32_t block, uint8_t *bytes);
void md_ov_pool_put(const md_ov_pool &pool, int32_t block, const uint8_t *bytes);

/* ---- what the device is (ov_device.cc) ---- */

extern const char md_ov_cpu[]; /* "CPU" */

/* What the library says of a failure, in one line (ov_shim.cc). */
std::string md_ov_cause(const std::exception &e);

/* Its name, what it computes with, its memory.  What it does not tell stays empty.  One that fails when it is asked, as with a
 * driver that is broken, is there all the same, and described by that: others are not lost for it.  The processor's failure
 * is thrown. */
void md_ov_describe(const ov::Core &core, const std::string &id, md_ov_device *ret);

/* What a model is compiled with on any device but the processor: of the settings only those that it knows. */
ov::AnyMap md_ov_device_properties(const ov::Core &core, const std::string &device, md_ov_type kv_type);

#endif
