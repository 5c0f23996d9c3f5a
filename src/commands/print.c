#include "commands/print.h"

#include "host/gguf.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum md_status md_print_flush(struct md_err *err)
{
    return fflush(stdout) == 0 && !ferror(stdout)
               ? MD_OK
               : md_fail(err, MD_IO, "write standard output: %s", strerror(errno));
}

enum md_status md_write_json(yyjson_mut_doc *doc, bool pretty, char **ret_text, struct md_err *err)
{
    const yyjson_write_flag flags = pretty ? YYJSON_WRITE_PRETTY_TWO_SPACES : YYJSON_WRITE_NOFLAG;
    const yyjson_write_flag repair = YYJSON_WRITE_ALLOW_INVALID_UNICODE | YYJSON_WRITE_ESCAPE_UNICODE;
    yyjson_write_err why = { 0 };
    char *text = yyjson_mut_write_opts(doc, flags, NULL, NULL, &why);
    if (text == NULL && why.code == YYJSON_WRITE_ERROR_INVALID_STRING)
        text = yyjson_mut_write_opts(doc, flags | repair, NULL, NULL, &why);
    yyjson_mut_doc_free(doc);
    if (text == NULL)
        return md_fail(err, MD_NO_MEMORY, "JSON: %s", why.msg);
    *ret_text = text;
    return MD_OK;
}

enum md_status md_print_json(yyjson_mut_doc *doc, bool pretty, struct md_err *err)
{
    char *text;
    enum md_status s = md_write_json(doc, pretty, &text, err);
    if (s != MD_OK)
        return s;
    puts(text);
    free(text);
    return md_print_flush(err);
}

const char *md_plain_text(const char *text, char *out, size_t out_bytes)
{
    md_gguf_escape(out, out_bytes, text, strlen(text));
    return out;
}

const char *md_size_text(int64_t bytes, char *out, size_t out_bytes)
{
    const double mib = (double)bytes / (1 << 20);
    if (bytes < 10 * 1024)
        snprintf(out, out_bytes, "%" PRId64 " bytes", bytes);
    else if (mib < 1)
        snprintf(out, out_bytes, "%.1f KiB", (double)bytes / 1024);
    else if (mib < 1024)
        snprintf(out, out_bytes, "%.1f MiB", mib);
    else
        snprintf(out, out_bytes, "%.2f GiB", mib / 1024);
    return out;
}

const char *md_count_text(int64_t n, char *out, size_t out_bytes)
{
    char digits[24];
    snprintf(digits, sizeof digits, "%" PRId64, n);
    size_t len = strlen(digits), used = 0;
    for (size_t i = 0; i < len && used + 2 < out_bytes; i++) {
        if (i > 0 && (len - i) % 3 == 0 && digits[i - 1] != '-')
            out[used++] = ',';
        out[used++] = digits[i];
    }
    out[used] = '\0';
    return out;
}
