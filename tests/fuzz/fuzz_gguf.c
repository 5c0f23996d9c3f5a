/* fuzz_gguf.c - any bytes as a GGUF file: opened, asked for everything, closed.  `make fuzz` runs it under
 * libFuzzer, tests/unit/test_fuzz_corpus.c runs the committed corpus through it. */
#include "support/gguf_walk.h"
#include "support/gguf_writer.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len); /* libFuzzer declares it nowhere */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct md_gguf *f = NULL;
    struct md_err err = { 0 };
    enum md_status s = gw_open_bytes(data, len, NULL, &f, &err);
    assert(s == MD_OK || s == MD_INVALID || s == MD_UNSUPPORTED);
    assert(s == MD_OK || (err.status == s && err.text[0] != '\0'));
    if (s == MD_OK)
        gguf_walk(f);
    md_gguf_close(f);
    return 0;
}
