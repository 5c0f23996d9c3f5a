/* gguf_types.c - the numbers of the format: value types, and the tensor types of ggml. */
#include "host/gguf_internal.h"

#include <assert.h>

static const struct {
    const char *name;
    size_t bytes;
    bool integer;
} value_types[] = {
    [MD_GGUF_U8] = { "u8", 1, true },          [MD_GGUF_I8] = { "i8", 1, true },
    [MD_GGUF_U16] = { "u16", 2, true },        [MD_GGUF_I16] = { "i16", 2, true },
    [MD_GGUF_U32] = { "u32", 4, true },        [MD_GGUF_I32] = { "i32", 4, true },
    [MD_GGUF_F32] = { "f32", 4, false },       [MD_GGUF_BOOL] = { "bool", 1, true },
    [MD_GGUF_STRING] = { "string", 0, false }, [MD_GGUF_ARRAY] = { "array", 0, false },
    [MD_GGUF_U64] = { "u64", 8, true },        [MD_GGUF_I64] = { "i64", 8, true },
    [MD_GGUF_F64] = { "f64", 8, false },
};
_Static_assert(sizeof value_types / sizeof value_types[0] == MD_GGUF_TYPE_COUNT, "all types");

const char *md_gguf_type_name(enum md_gguf_type t)
{
    assert((unsigned)t < MD_GGUF_TYPE_COUNT);
    return value_types[t].name;
}

size_t md_gguf_type_bytes(enum md_gguf_type t)
{
    assert((unsigned)t < MD_GGUF_TYPE_COUNT);
    return value_types[t].bytes;
}

bool md_gguf_type_is_integer(enum md_gguf_type t)
{
    assert((unsigned)t < MD_GGUF_TYPE_COUNT);
    return value_types[t].integer;
}

/* Numbers: enum ggml_type (ggml.h).  Sizes: the block structs of ggml-common.h.  The gaps are types that
 * ggml no longer reads (4, 5: q4_2, q4_3; 31-33, 36-38: weights laid out for one processor). */
static const struct md_gguf_tensor_type tensor_types[] = {
    [0] = { "f32", 1, 4 },         [1] = { "f16", 1, 2 },         [2] = { "q4_0", 32, 18 },
    [3] = { "q4_1", 32, 20 },      [6] = { "q5_0", 32, 22 },      [7] = { "q5_1", 32, 24 },
    [8] = { "q8_0", 32, 34 },      [9] = { "q8_1", 32, 36 },      [10] = { "q2_K", 256, 84 },
    [11] = { "q3_K", 256, 110 },   [12] = { "q4_K", 256, 144 },   [13] = { "q5_K", 256, 176 },
    [14] = { "q6_K", 256, 210 },   [15] = { "q8_K", 256, 292 },   [16] = { "iq2_xxs", 256, 66 },
    [17] = { "iq2_xs", 256, 74 },  [18] = { "iq3_xxs", 256, 98 }, [19] = { "iq1_s", 256, 50 },
    [20] = { "iq4_nl", 32, 18 },   [21] = { "iq3_s", 256, 110 },  [22] = { "iq2_s", 256, 82 },
    [23] = { "iq4_xs", 256, 136 }, [24] = { "i8", 1, 1 },         [25] = { "i16", 1, 2 },
    [26] = { "i32", 1, 4 },        [27] = { "i64", 1, 8 },        [28] = { "f64", 1, 8 },
    [29] = { "iq1_m", 256, 56 },   [30] = { "bf16", 1, 2 },       [34] = { "tq1_0", 256, 54 },
    [35] = { "tq2_0", 256, 66 },   [39] = { "mxfp4", 32, 17 },    [40] = { "nvfp4", 64, 36 },
    [41] = { "q1_0", 128, 18 },    [42] = { "q2_0", 64, 18 },
};

const struct md_gguf_tensor_type *md_gguf_tensor_type(uint32_t number)
{
    if (number >= sizeof tensor_types / sizeof tensor_types[0] || tensor_types[number].name == NULL)
        return NULL;
    return &tensor_types[number];
}
