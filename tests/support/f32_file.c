/* f32_file.c - see f32_file.h. */
#include "support/f32_file.h"

#include "base/half.h"

#include <check.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNIT_MAX = 256, NAME_MAX_BYTES = 128 };

/* ---- reading the header ---- */

static void get(FILE *f, void *to, size_t bytes)
{
    ck_assert_uint_eq(fread(to, 1, bytes, f), bytes);
}

static void put(FILE *f, const void *from, size_t bytes)
{
    ck_assert_uint_eq(fwrite(from, 1, bytes, f), bytes);
}

static uint64_t get_u64(FILE *f)
{
    uint64_t v = 0;
    get(f, &v, sizeof v);
    return v;
}

static void skip(FILE *f, uint64_t bytes)
{
    ck_assert_int_eq(fseeko(f, (off_t)bytes, SEEK_CUR), 0);
}

static void skip_value(FILE *f, uint32_t type)
{
    static const uint8_t sizes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    enum { STRING = 8, ARRAY = 9 };
    ck_assert_uint_lt(type, sizeof sizes);
    if (type == STRING) {
        skip(f, get_u64(f));
    } else if (type == ARRAY) {
        uint32_t of = 0;
        get(f, &of, sizeof of);
        for (uint64_t n = get_u64(f); n > 0; n--)
            skip_value(f, of);
    } else {
        skip(f, sizes[type]);
    }
}

struct tensor {
    char name[NAME_MAX_BYTES];
    uint64_t name_bytes, numbers, offset, dimensions[4];
    uint32_t dimension_count, type;
};

static void read_tensor(FILE *f, struct tensor *t)
{
    t->name_bytes = get_u64(f);
    ck_assert_uint_lt(t->name_bytes, sizeof t->name);
    get(f, t->name, t->name_bytes);
    get(f, &t->dimension_count, sizeof t->dimension_count);
    ck_assert_uint_le(t->dimension_count, 4);
    get(f, t->dimensions, t->dimension_count * sizeof t->dimensions[0]);
    get(f, &t->type, sizeof t->type);
    t->offset = get_u64(f);
    t->numbers = 1;
    for (uint32_t i = 0; i < t->dimension_count; i++)
        t->numbers *= t->dimensions[i];
}

/* ---- numbers ---- */

static float half_at(const uint8_t *p)
{
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return md_half_to_float(half);
}

static void f32_of(const uint8_t *unit, float *out)
{
    memcpy(out, unit, sizeof *out);
}

/* Scale, least, then two numbers a byte: the first half in the low bits. */
static void q4_1_of(const uint8_t *unit, float *out)
{
    const float scale = half_at(unit), least = half_at(unit + 2);
    for (int i = 0; i < 16; i++) {
        out[i] = scale * (float)(unit[4 + i] & 15) + least;
        out[i + 16] = scale * (float)(unit[4 + i] >> 4) + least;
    }
}

/* Scale, the fifth bits of all, then as q4_1; from -16 on. */
static void q5_0_of(const uint8_t *unit, float *out)
{
    const float scale = half_at(unit);
    uint32_t high;
    memcpy(&high, unit + 2, sizeof high);
    for (int i = 0; i < 16; i++) {
        const int low = (unit[6 + i] & 15) | (int)(high >> i & 1) << 4,
                  up = unit[6 + i] >> 4 | (int)(high >> (i + 16) & 1) << 4;
        out[i] = scale * (float)(low - 16);
        out[i + 16] = scale * (float)(up - 16);
    }
}

static void q8_0_of(const uint8_t *unit, float *out)
{
    const float scale = half_at(unit);
    for (int i = 0; i < 32; i++)
        out[i] = scale * (float)(int8_t)unit[2 + i];
}

/* Two scales, then 6 bits for the scale and the least of each 32 numbers, then pairs of 32 that share bytes. */
static void q4_k_of(const uint8_t *unit, float *out)
{
    const uint8_t *packed = unit + 4, *numbers = unit + 16;
    const float all = half_at(unit), all_least = half_at(unit + 2);
    for (int k = 0; k < 8; k++) {
        const int scale = k < 4 ? packed[k] & 63 : (packed[k + 4] & 15) | packed[k - 4] >> 6 << 4;
        const int least = k < 4 ? packed[k + 4] & 63 : packed[k + 4] >> 4 | packed[k] >> 6 << 4;
        for (int i = 0; i < 32; i++) {
            const uint8_t both = numbers[k / 2 * 32 + i];
            out[32 * k + i] =
                all * (float)scale * (float)(k % 2 == 0 ? both & 15 : both >> 4) - all_least * (float)least;
        }
    }
}

/* Low 4 bits of all, high 2 bits of all, a scale for each 16, the scale of these; from -32 on. */
static void q6_k_of(const uint8_t *unit, float *out)
{
    const float scale = half_at(unit + 208);
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, in_half = i % 128, row = in_half / 32, at = in_half % 32;
        const uint8_t low = unit[64 * half + 32 * (row % 2) + at], high = unit[128 + 32 * half + at];
        const int number = (row < 2 ? low & 15 : low >> 4) | (high >> (2 * row) & 3) << 4;
        out[i] = scale * (float)(int8_t)unit[192 + i / 16] * (float)(number - 32);
    }
}

static const struct type {
    size_t numbers, bytes; /* of a unit */
    void (*read)(const uint8_t *unit, float *out);
} types[] = {
    [0] = { 1, 4, f32_of },    [3] = { 32, 20, q4_1_of },    [6] = { 32, 22, q5_0_of },
    [8] = { 32, 34, q8_0_of }, [12] = { 256, 144, q4_k_of }, [14] = { 256, 210, q6_k_of },
};

static const struct type *type_of(const struct tensor *t)
{
    ck_assert_msg(t->type < sizeof types / sizeof types[0] && types[t->type].read != NULL,
                  "tensors of type %u are not known here", t->type);
    ck_assert_uint_eq(t->numbers % types[t->type].numbers, 0);
    return &types[t->type];
}

static void write_numbers(FILE *in, FILE *out, uint64_t data_at, const struct tensor *t)
{
    const struct type *type = type_of(t);
    float numbers[UNIT_MAX];
    uint8_t unit[UNIT_MAX];
    ck_assert_int_eq(fseeko(in, (off_t)(data_at + t->offset), SEEK_SET), 0);
    for (uint64_t done = 0; done < t->numbers; done += type->numbers) {
        get(in, unit, type->bytes);
        type->read(unit, numbers);
        put(out, numbers, type->numbers * sizeof numbers[0]);
    }
}

/* ---- the file ---- */

/* Header and entries as they are; then the tensors, one behind the other. */
void md_f32_file_write(const char *from, const char *to)
{
    enum { ALIGNMENT = 32, BUFFER_BYTES = 1 << 20 };
    FILE *in = fopen(from, "rb"), *out = fopen(to, "wb");
    ck_assert_msg(in != NULL && out != NULL, "%s or %s cannot be opened", from, to);
    setvbuf(in, NULL, _IOFBF, BUFFER_BYTES);
    setvbuf(out, NULL, _IOFBF, BUFFER_BYTES);
    skip(in, 8); /* magic, version */
    const uint64_t count = get_u64(in), entries = get_u64(in);
    for (uint64_t i = 0; i < entries; i++) {
        uint32_t type = 0;
        skip(in, get_u64(in));
        get(in, &type, sizeof type);
        skip_value(in, type);
    }
    const size_t head_bytes = (size_t)ftello(in);
    uint8_t *head = malloc(head_bytes);
    struct tensor *tensors = calloc(count, sizeof *tensors);
    ck_assert(head != NULL && tensors != NULL && count < 1000);
    rewind(in);
    get(in, head, head_bytes);
    put(out, head, head_bytes);
    uint64_t offset = 0;
    for (uint64_t i = 0; i < count; i++) {
        struct tensor *t = &tensors[i];
        const uint32_t f32 = 0;
        read_tensor(in, t);
        put(out, &t->name_bytes, sizeof t->name_bytes);
        put(out, t->name, t->name_bytes);
        put(out, &t->dimension_count, sizeof t->dimension_count);
        put(out, t->dimensions, t->dimension_count * sizeof t->dimensions[0]);
        put(out, &f32, sizeof f32);
        put(out, &offset, sizeof offset);
        offset += t->numbers * sizeof(float);
        ck_assert(offset % ALIGNMENT == 0 && t->numbers > 0); /* so that nothing is padded */
    }
    const uint64_t data_at = ((uint64_t)ftello(in) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    while (ftello(out) % ALIGNMENT != 0)
        put(out, "", 1);
    for (uint64_t i = 0; i < count; i++)
        write_numbers(in, out, data_at, &tensors[i]);
    free(head);
    free(tensors);
    fclose(in);
    ck_assert_int_eq(fclose(out), 0);
}
