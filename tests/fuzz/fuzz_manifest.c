/* fuzz_manifest.c - any bytes as a manifest: what is read is written, and what is written reads back as the same.
 * `make fuzz` runs it under libFuzzer, tests/unit/test_fuzz_corpus.c runs the committed corpus through it. */
#include "session/manifest_json.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len); /* libFuzzer declares it nowhere */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct md_manifest m = { 0 }, again = { 0 };
    struct md_err err = { 0 };
    struct md_buf first, second;
    char a[MD_SHA256_HEX + 1], b[MD_SHA256_HEX + 1];
    enum md_status s = md_manifest_read((struct md_bytes){ data, len }, NULL, &m, &err);
    assert(s == MD_OK || (s == MD_INVALID && err.status == s && err.text[0] != '\0'));
    if (s != MD_OK)
        return 0;
    md_buf_init(&first, NULL, 1 << 20);
    md_buf_init(&second, NULL, 1 << 20);
    s = md_manifest_write(&m, &first, NULL);
    assert(s == MD_OK);
    s = md_manifest_read((struct md_bytes){ first.data, first.len }, NULL, &again, NULL);
    assert(s == MD_OK && again.segment_count == m.segment_count);
    s = md_manifest_write(&again, &second, NULL);
    assert(s == MD_OK && first.len == second.len && memcmp(first.data, second.data, first.len) == 0);
    assert(md_manifest_incompatible(&m, &again) == NULL);
    s = md_manifest_digest(&m, NULL, a, NULL);
    assert(s == MD_OK);
    s = md_manifest_digest(&again, NULL, b, NULL);
    assert(s == MD_OK && strcmp(a, b) == 0 && (a[0] == '\0') == md_manifest_is_zero(&m));
    md_buf_done(&first);
    md_buf_done(&second);
    md_manifest_done(&m);
    md_manifest_done(&again);
    return 0;
}
