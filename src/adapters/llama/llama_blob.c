/* llama_blob.c - see llama_blob.h. */
#include "adapters/llama/llama_blob.h"

#include <inttypes.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

struct header {
    uint32_t magic, version;
    int32_t start, end;
    uint64_t payload_bytes, identity_hash, check;
};
enum { MAGIC = 0x626b646d, VERSION = 1 }; /* "mdkb" */
_Static_assert(sizeof(struct header) == MD_LLAMA_BLOB_HEADER_BYTES, "no padding");

static uint64_t checksum(struct header h, const uint8_t *payload)
{
    h.check = 0;
    return XXH3_64bits_withSeed(payload, h.payload_bytes, XXH3_64bits(&h, sizeof h));
}

void md_llama_blob_seal(uint8_t *blob, size_t payload_bytes, struct md_range r, uint64_t identity_hash)
{
    struct header h = { .magic = MAGIC,
                        .version = VERSION,
                        .start = r.start,
                        .end = r.end,
                        .payload_bytes = payload_bytes,
                        .identity_hash = identity_hash };
    h.check = checksum(h, blob + sizeof h);
    memcpy(blob, &h, sizeof h);
}

enum md_status md_llama_blob_check(struct md_bytes kv, size_t payload_bytes, struct md_range r,
                                   uint64_t identity_hash, struct md_err *err)
{
    struct header h;
    if (kv.data == NULL || kv.len < sizeof h)
        return md_fail(err, MD_CORRUPT, "KV bytes of [%d, %d) end inside their header", r.start, r.end);
    memcpy(&h, kv.data, sizeof h);
    if (h.magic != MAGIC || h.version != VERSION)
        return md_fail(err, MD_CORRUPT, "KV bytes of [%d, %d) do not begin as this version writes them",
                       r.start, r.end);
    if (h.payload_bytes != kv.len - sizeof h)
        return md_fail(err, MD_CORRUPT, "KV bytes of [%d, %d): %zu are here, %" PRIu64 " were written",
                       r.start, r.end, kv.len - sizeof h, h.payload_bytes);
    if (h.check != checksum(h, (const uint8_t *)kv.data + sizeof h))
        return md_fail(err, MD_CORRUPT, "KV bytes of [%d, %d) fail their checksum", r.start, r.end);
    if (h.identity_hash != identity_hash)
        return md_fail(err, MD_INVALID, "KV bytes of [%d, %d) are of another model, KV type or engine",
                       r.start, r.end);
    if (h.start != r.start || h.end != r.end)
        return md_fail(err, MD_INVALID, "KV bytes are of [%d, %d), not of [%d, %d)", h.start, h.end, r.start,
                       r.end);
    if (h.payload_bytes != payload_bytes)
        return md_fail(err, MD_CORRUPT, "KV bytes of [%d, %d) have a wrong size", r.start, r.end);
    return MD_OK;
}
