/* sha256.c - see sha256.h. */
#include "base/sha256.h"

#include <openssl/evp.h>

void md_sha256_init(struct md_sha256 *h)
{
    h->ctx = EVP_MD_CTX_new();
    h->failed = h->ctx == NULL || EVP_DigestInit_ex(h->ctx, EVP_sha256(), NULL) != 1;
}

void md_sha256_update(struct md_sha256 *h, const void *data, size_t len)
{
    if (!h->failed && len > 0)
        h->failed = EVP_DigestUpdate(h->ctx, data, len) != 1;
}

enum md_status md_sha256_finish(struct md_sha256 *h, char ret_hex[MD_SHA256_HEX + 1], struct md_err *err)
{
    static const char digits[] = "0123456789abcdef";
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    const bool good = !h->failed && EVP_DigestFinal_ex(h->ctx, sum, &len) == 1 && len == MD_SHA256_HEX / 2;
    EVP_MD_CTX_free(h->ctx);
    h->ctx = NULL;
    if (!good)
        return md_fail(err, MD_NO_MEMORY, "cannot compute a SHA-256 digest");
    for (unsigned i = 0; i < len; i++) {
        ret_hex[2 * i] = digits[sum[i] >> 4];
        ret_hex[2 * i + 1] = digits[sum[i] & 15];
    }
    ret_hex[MD_SHA256_HEX] = '\0';
    return MD_OK;
}

enum md_status md_sha256_hex(struct md_bytes data, char ret_hex[MD_SHA256_HEX + 1], struct md_err *err)
{
    struct md_sha256 h;
    md_sha256_init(&h);
    md_sha256_update(&h, data.data, data.len);
    return md_sha256_finish(&h, ret_hex, err);
}
