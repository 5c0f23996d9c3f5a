#include "commands/options_table.h"
#include "commands/start.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static enum md_status no_size(const char *text, struct md_err *err)
{
    return md_fail(err, MD_INVALID, "'%.40s' is not a size: write 512MiB, 8GiB or 25%%", text);
}

/* Bytes of a unit; -1: there is none of that name. */
static double unit_bytes(const char *suffix)
{
    static const struct {
        const char *decimal[2], *binary[2];
        double kilo, kibi;
    } units[] = {
        { { "k", "kb" }, { "ki", "kib" }, 1e3, 1024 },
        { { "m", "mb" }, { "mi", "mib" }, 1e6, 1048576 },
        { { "g", "gb" }, { "gi", "gib" }, 1e9, 1073741824 },
        { { "t", "tb" }, { "ti", "tib" }, 1e12, 1099511627776 },
    };
    if (suffix[0] == '\0' || strcasecmp(suffix, "b") == 0)
        return 1;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        for (size_t n = 0; n < 2; n++) {
            if (strcasecmp(suffix, units[i].decimal[n]) == 0)
                return units[i].kilo;
            if (strcasecmp(suffix, units[i].binary[n]) == 0)
                return units[i].kibi;
        }
    return -1;
}

enum md_status md_parse_size(const char *text, int64_t whole, int64_t *ret_bytes, struct md_err *err)
{
    static const char blanks[] = " \t\r\n";
    char word[64], *end;
    const char *start = text + strspn(text, blanks);
    size_t len = strlen(start);
    while (len > 0 && strchr(blanks, start[len - 1]) != NULL)
        len--;
    if (len >= sizeof word ||
        !isdigit((unsigned char)start[0])) /* strtod takes signs, hex, "nan" and "inf" */
        return no_size(text, err);
    memcpy(word, start, len);
    word[len] = '\0';
    double value = strtod(word, &end);
    if (end != word + strspn(word, "0123456789.")) /* hex and exponents */
        return no_size(text, err);
    bool percent = strcmp(end, "%") == 0;
    double factor = percent ? (double)whole / 100 : unit_bytes(end);
    if (factor < 0 || !isfinite(value) || (percent && value > 100))
        return no_size(text, err);
    if (value * factor >= 0x1p60) /* sums of several still fit 63 bits */
        return md_fail(err, MD_INVALID, "'%.40s' is more than any machine has", text);
    if (!percent && value > 0 && value * factor < 1)
        return md_fail(err, MD_INVALID, "'%.40s' is less than a byte", text);
    *ret_bytes = (int64_t)(value * factor);
    return MD_OK;
}

static enum md_status parse_count(const struct md_option_def *d, const char *text, int64_t *ret,
                                  struct md_err *err)
{
    char *end;
    long long value =
        strtoll(text, &end, 10); /* what does not fit becomes a limit of its own, outside the row's */
    bool word = (isdigit((unsigned char)text[0]) || text[0] == '-') && end != text && *end == '\0';
    if (!word || (double)value < d->low || (double)value > d->high)
        return md_fail(err, MD_INVALID, "%s must be a whole number from %.0f to %.0f, got '%.40s'",
                       md_option_name(d), d->low, d->high, text);
    *ret = value;
    return MD_OK;
}

static enum md_status parse_real(const struct md_option_def *d, const char *text, double *ret,
                                 struct md_err *err)
{
    char *end;
    double value = strtod(text, &end); /* would take blanks, hex, "nan" and "inf" */
    if (text[0] == '\0' || text[strspn(text, "0123456789.-+eE")] != '\0' || *end != '\0' ||
        !(value >= d->low && value <= d->high))
        return md_fail(err, MD_INVALID, "%s must be a number from %g to %g, got '%.40s'", md_option_name(d),
                       d->low, d->high, text);
    *ret = value;
    return MD_OK;
}

static enum md_status parse_share_or_off(const struct md_option_def *d, const char *text, double *ret,
                                         struct md_err *err)
{
    static const struct md_option_def share = { .low = 1e-6, .high = 1 };
    if (strcasecmp(text, "off") == 0) {
        *ret = 0;
        return MD_OK;
    }
    if (parse_real(&share, text, ret, NULL) == MD_OK)
        return MD_OK;
    return md_fail(err, MD_INVALID, "%s must be off, or a share above 0 and up to 1, got '%.40s'",
                   md_option_name(d), text);
}

static enum md_status parse_size(const struct md_option_def *d, const char *text, int64_t *ret,
                                 struct md_err *err)
{
    struct md_host_memory memory = { 0 };
    struct md_err why;
    enum md_status s = strchr(text, '%') == NULL ? MD_OK : md_start_memory(&memory, &why);
    if (s == MD_OK)
        s = md_parse_size(text, memory.available_bytes, ret, &why);
    return s == MD_OK ? s : md_fail(err, s, "%s: %.400s", md_option_name(d), why.text);
}

/* On or off, in the words that people and other programs have for it. */
static enum md_status parse_switch(const struct md_option_def *d, const char *text, bool *ret,
                                   struct md_err *err)
{
    static const char *const words[][2] = {
        { "off", "on" }, { "0", "1" }, { "no", "yes" }, { "false", "true" }
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        for (int on = 0; on < 2; on++)
            if (strcasecmp(text, words[i][on]) == 0) {
                *ret = on != 0;
                return MD_OK;
            }
    return md_fail(err, MD_INVALID, "%s must be on or off (1 or 0, true or false, yes or no), got '%.40s'",
                   md_option_name(d), text);
}

enum md_status md_option_set(const struct md_option_def *d, const char *text, bool zero_is_none,
                             struct md_options *o, struct md_err *err)
{
    char *field = (char *)o + d->offset;
    enum md_status s = MD_OK;
    int64_t bytes;
    switch (d->kind) {
    case TEXT: *(const char **)field = text; break;
    case WORD:
        if (strlen(text) >= MD_OPTION_WORD_BYTES)
            return md_fail(err, MD_INVALID, "%s: '%.40s' is too long", md_option_name(d), text);
        strcpy(field, text);
        break;
    case COUNT: s = parse_count(d, text, (int64_t *)field, err); break;
    case REAL: s = parse_real(d, text, (double *)field, err); break;
    case SHARE_OR_OFF: s = parse_share_or_off(d, text, (double *)field, err); break;
    case SIZE:
        s = parse_size(d, text, &bytes, err);
        if (s == MD_OK && bytes == 0 && zero_is_none)
            return MD_OK;
        if (s == MD_OK)
            *(int64_t *)field = bytes;
        break;
    case ON_OFF:
    case FLAG: s = parse_switch(d, text, (bool *)field, err); break;
    }
    if (s == MD_OK)
        o->given[d - md_option_defs] = true;
    return s;
}
