/* fuzz_sections.c - any bytes as a file of sections: refused, or read to be the one file that has these
 * sections.  Bytes with wrong hashes lead nowhere, so they are tried once as they come and once with right
 * ones; and a file that was accepted must not be read to its end when a byte of it changes meanwhile.  `make
 * fuzz` runs it under libFuzzer, tests/unit/test_fuzz_corpus.c runs the committed corpus through it. */
#include "support/sections_spec.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len); /* libFuzzer declares it nowhere */

/* Any place behind the header, which is not read again. */
static void change_meanwhile(struct md_sections_reader *r, int fd, const uint8_t *data, size_t len)
{
    const size_t at =
        SS_HEADER_BYTES + (data[len - 1] * (size_t)257 + data[len / 2]) % (len - SS_HEADER_BYTES);
    const uint8_t other = data[at] ^ (uint8_t)(1 << data[len - 1] % 8);
    struct md_err err = { 0 };
    uint32_t type = 1;
    int64_t bytes;
    ssize_t n = pwrite(fd, &other, 1, (off_t)at);
    assert(n == 1);
    md_sections_rewind(r);
    enum md_status s = MD_OK;
    while (s == MD_OK && type != 0)
        s = md_sections_next(r, &type, &bytes, &err);
    assert(s == MD_CORRUPT && err.status == s && err.text[0] != '\0');
    n = pwrite(fd, data + at, 1, (off_t)at);
    assert(n == 1);
    md_sections_rewind(r);
    for (type = 1; type != 0;) {
        s = md_sections_next(r, &type, &bytes, &err);
        assert(s == MD_OK);
    }
}

static void one_file(const uint8_t *data, size_t len)
{
    struct md_sections_reader *r = NULL;
    struct sections_spec again;
    struct md_err err = { 0 };
    int fd;
    enum md_status s = ss_open_bytes(data, len, &r, &fd, &err);
    assert(s == MD_OK || s == MD_CORRUPT || s == MD_UNSUPPORTED || s == MD_INVALID);
    assert(s == MD_OK || (err.status == s && err.text[0] != '\0'));
    if (s == MD_OK) {
        s = ss_read_all(r, 1 + data[len - 1] % 64, &again, &err);
        assert(s == MD_OK && again.buf.len == len && memcmp(again.buf.data, data, len) == 0);
        ss_done(&again);
        change_meanwhile(r, fd, data, len);
    }
    md_sections_close(r);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    one_file(data, len);
    len -= len % 8;
    if (len < SS_HEADER_BYTES + SS_END_BYTES)
        return 0;
    uint8_t *sealed = malloc(len);
    assert(sealed != NULL);
    memcpy(sealed, data, len);
    ss_reseal(sealed, len);
    one_file(sealed, len);
    free(sealed);
    return 0;
}
