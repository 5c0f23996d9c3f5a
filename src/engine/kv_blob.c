/* kv_blob.c - see kv_blob.h. */
#include "engine/kv_blob.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

struct header {
    uint32_t magic, version;
    int32_t start, end;
    uint64_t payload_bytes, identity_hash, check;
};
enum { VERSION = 1 };
static const uint32_t magics[] = { [MD_KV_BLOB_RANGE] = 0x626b646d, [MD_KV_BLOB_STATE] = 0x736b646d };
_Static_assert(sizeof(struct header) == MD_KV_BLOB_HEADER_BYTES, "no padding"); /* "mdkb", "mdks" */

static uint64_t checksum(struct header h, const uint8_t *payload)
{
    h.check = 0;
    return XXH3_64bits_withSeed(payload, h.payload_bytes, XXH3_64bits(&h, sizeof h));
}

void md_kv_blob_seal(uint8_t *blob, enum md_kv_blob kind, size_t payload_bytes, struct md_range r,
                     uint64_t identity_hash)
{
    struct header h = { .magic = magics[kind],
                        .version = VERSION,
                        .start = r.start,
                        .end = r.end,
                        .payload_bytes = payload_bytes,
                        .identity_hash = identity_hash };
    h.check = checksum(h, blob + sizeof h);
    memcpy(blob, &h, sizeof h);
}

static const char *name_of(enum md_kv_blob kind, int32_t start, int32_t end, char *out, size_t out_bytes)
{
    if (kind == MD_KV_BLOB_RANGE)
        snprintf(out, out_bytes, "KV bytes of [%d, %d)", start, end);
    else
        snprintf(out, out_bytes, "saved state of position %d", start);
    return out;
}

enum md_status md_kv_blob_check(struct md_bytes kv, enum md_kv_blob kind, size_t payload_bytes,
                                struct md_range r, uint64_t identity_hash, struct md_err *err)
{
    struct header h;
    char name[64], other[64];
    name_of(kind, r.start, r.end, name, sizeof name);
    if (kv.data == NULL || kv.len < sizeof h)
        return md_fail(err, MD_CORRUPT, "%s: the bytes end inside their header", name);
    memcpy(&h, kv.data, sizeof h);
    if (h.magic != magics[kind] || h.version != VERSION)
        return md_fail(err, MD_CORRUPT, "%s: the bytes do not begin as this version writes them", name);
    if (h.payload_bytes != kv.len - sizeof h)
        return md_fail(err, MD_CORRUPT, "%s: %zu are here, %" PRIu64 " were written", name, kv.len - sizeof h,
                       h.payload_bytes);
    if (h.check != checksum(h, (const uint8_t *)kv.data + sizeof h))
        return md_fail(err, MD_CORRUPT, "%s: the bytes fail their checksum", name);
    if (h.identity_hash != identity_hash)
        return md_fail(err, MD_INVALID, "%s: it is of another model, KV type or engine", name);
    if (h.start != r.start || h.end != r.end)
        return md_fail(err, MD_INVALID, "%s was given, not %s",
                       name_of(kind, h.start, h.end, other, sizeof other), name);
    if (kind == MD_KV_BLOB_RANGE ? h.payload_bytes != payload_bytes : h.payload_bytes > payload_bytes)
        return md_fail(err, MD_CORRUPT, "%s: the bytes have a wrong size", name);
    return MD_OK;
}
