/* ov_pool.cc - see ov_pool.hh.
 *
 * Regions are whole blocks, so that one is one piece of the tensor's memory, and one transfer.
 * Source: headers of OpenVINO 2026.4.1 (RemoteContext, RemoteTensor). */
#include "adapters/openvino/ov_pool.hh"

#include <algorithm>

namespace
{

using region = std::pair<ov::Coordinate, ov::Coordinate>;

region blocks_of(const ov::Shape &shape, size_t from, size_t to)
{
    return { { from, 0, 0, 0 }, { to, shape[1], shape[2], shape[3] } };
}

/* Shape of so many blocks. */
ov::Shape of_blocks(const ov::Shape &shape, size_t count)
{
    return { count, shape[1], shape[2], shape[3] };
}

void copy_in(const md_ov_pool &pool, const ov::Tensor &part, const region &r, const ov::Tensor &host)
{
    if (pool.remote) {
        ov::RemoteTensor there(part.as<ov::RemoteTensor>(), r.first, r.second);
        there.copy_from(host);
    } else {
        host.copy_to(ov::Tensor(part, r.first, r.second));
    }
}

void copy_out(const md_ov_pool &pool, const ov::Tensor &part, const region &r, ov::Tensor host)
{
    if (pool.remote)
        ov::RemoteTensor(part.as<ov::RemoteTensor>(), r.first, r.second).copy_to(host);
    else
        ov::Tensor(part, r.first, r.second).copy_to(host);
}

/* A few blocks at a time: a copy for each would take long, all at once as much host memory again. */
void zero(const md_ov_pool &pool, const ov::Tensor &part)
{
    enum { PIECE_BYTES = 8 << 20 };
    const ov::Shape &shape = part.get_shape();
    const size_t block_bytes = part.get_byte_size() / shape[0];
    const size_t most = std::max<size_t>(1, PIECE_BYTES / block_bytes);
    std::vector<uint8_t> zeros(block_bytes * std::min(most, shape[0]));
    for (size_t at = 0; at < shape[0]; at += most) {
        const size_t end = std::min(at + most, shape[0]);
        copy_in(pool, part, blocks_of(shape, at, end),
                ov::Tensor(part.get_element_type(), of_blocks(shape, end - at), zeros.data()));
    }
}

size_t block_bytes_of(const ov::Tensor &part)
{
    return part.get_byte_size() / part.get_shape()[0];
}

} // namespace

std::string md_ov_cache_input(bool values, int32_t layer)
{
    return (values ? "value_cache." : "key_cache.") + std::to_string(layer);
}

md_ov_pool md_ov_pool_make(const ov::CompiledModel &compiled, bool remote, int32_t layers, int32_t blocks)
{
    md_ov_pool pool;
    pool.remote = remote;
    for (int32_t i = 0; i < 2 * layers; i++) {
        const auto input = compiled.input(md_ov_cache_input(i % 2 == 1, i / 2));
        ov::PartialShape shape = input.get_partial_shape();
        shape[0] = blocks;
        if (remote)
            pool.parts.push_back(
                compiled.get_context().create_tensor(input.get_element_type(), shape.to_shape()));
        else
            pool.parts.emplace_back(input.get_element_type(), shape.to_shape());
        zero(pool, pool.parts.back());
    }
    return pool;
}

void md_ov_pool_set(const md_ov_pool &pool, ov::InferRequest &request)
{
    for (size_t i = 0; i < pool.parts.size(); i++)
        request.set_tensor(md_ov_cache_input(i % 2 == 1, static_cast<int32_t>(i / 2)), pool.parts[i]);
}

void md_ov_pool_get(const md_ov_pool &pool, int32_t block, uint8_t *bytes)
{
    const size_t at = static_cast<size_t>(block);
    for (const ov::Tensor &part : pool.parts) {
        const ov::Shape &shape = part.get_shape();
        copy_out(pool, part, blocks_of(shape, at, at + 1),
                 ov::Tensor(part.get_element_type(), of_blocks(shape, 1), bytes));
        bytes += block_bytes_of(part);
    }
}

void md_ov_pool_put(const md_ov_pool &pool, int32_t block, const uint8_t *bytes)
{
    const size_t at = static_cast<size_t>(block);
    for (const ov::Tensor &part : pool.parts) {
        const ov::Shape &shape = part.get_shape();
        copy_in(pool, part, blocks_of(shape, at, at + 1),
                ov::Tensor(part.get_element_type(), of_blocks(shape, 1), static_cast<const void *>(bytes)));
        bytes += block_bytes_of(part);
    }
}
