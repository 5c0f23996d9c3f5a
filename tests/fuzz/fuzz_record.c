/* fuzz_record.c - any bytes as the record of a conversation: refused, or values within their ranges, of which the bytes
 * are the one spelling.  `make fuzz` runs it under libFuzzer, tests/unit/test_fuzz_corpus.c runs the committed corpus
 * through it. */
#include "support/record_spec.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len); /* libFuzzer declares it nowhere */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct md_record r;
    struct md_err err = { 0 };
    struct md_buf again;
    enum md_status s = md_record_read(data, len, NULL, &r, &err);
    assert(s == MD_OK || s == MD_CORRUPT || s == MD_UNSUPPORTED);
    assert(s == MD_OK || (err.status == s && err.text[0] != '\0'));
    if (s != MD_OK)
        return 0;
    assert(rs_wrong(&r) == NULL);
    md_buf_init(&again, NULL, len + 1);
    rs_write(&r, rs_get(data, RS_COMMON), &again);
    assert(again.len == len && memcmp(again.data, data, len) == 0);
    md_buf_done(&again);
    md_record_done(&r);
    return 0;
}
