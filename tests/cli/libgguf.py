"""Builds the bytes of GGUF files: right ones, and any wrong ones a test wants.  Nothing is checked.

    data = gguf(BASE12 + [("llama.rope.freq_base", "f32", 10000.0)], [("w", (32, 4), F32)])

An entry is (key, type, value); "[u32]" is an array of u32, and for a bytes object as value the bytes are taken as
they are.  A tensor is (name, dimensions, number of the type[, offset]); offsets follow each other unless given, and
its data is zeroes.  Source: docs/gguf.md of ggml."""
import struct

NUMBERS = {"u8": (0, "<B"), "i8": (1, "<b"), "u16": (2, "<H"), "i16": (3, "<h"), "u32": (4, "<I"), "i32": (5, "<i"),
           "f32": (6, "<f"), "bool": (7, "<B"), "u64": (10, "<Q"), "i64": (11, "<q"), "f64": (12, "<d")}
STRING, ARRAY = 8, 9
F32, F16 = 0, 1
ELEMENT_BYTES = {F32: 4, F16: 2}


def text(value):
    data = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(data)) + data


def type_number(name):
    return STRING if name == "str" else NUMBERS[name][0]


def scalar(name, value):
    return text(value) if name == "str" else struct.pack(NUMBERS[name][1], value)


def entry(key, name, value):
    out = text(key)
    if name.startswith("["):
        of = name[1:-1]
        out += struct.pack("<IIQ", ARRAY, type_number(of), len(value))
        return out + b"".join(scalar(of, v) for v in value)
    out += struct.pack("<I", type_number(name))
    return out + (value if isinstance(value, bytes) and name != "str" else scalar(name, value))


def padding(size, alignment):
    return -size % alignment


def gguf(entries, tensors=(), version=3, alignment=32, data=None):
    """data: None for what the tensors need, padded; or the bytes to put there (b"": the file ends at the table)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries))
    out += b"".join(entry(*e) for e in entries)
    end = 0
    for name, dimensions, number, *at in tensors:
        out += text(name) + struct.pack("<I", len(dimensions))
        out += b"".join(struct.pack("<Q", d) for d in dimensions)
        out += struct.pack("<IQ", number, at[0] if at else end)
        size = ELEMENT_BYTES.get(number, 0)
        for d in dimensions:
            size *= d
        end += size + padding(size, alignment)
    if data is not None:
        return out + data
    return out + bytes(padding(len(out), alignment) + end if tensors else 0)


# The file of the cases: 263 bytes, head size 64, 12,288 bytes of f16 KV per token.
BASE12 = [("general.architecture", "str", "llama"), ("llama.block_count", "u32", 12),
          ("llama.context_length", "u32", 32768), ("llama.embedding_length", "u32", 1024),
          ("llama.attention.head_count", "u32", 16), ("llama.attention.head_count_kv", "u32", 4)]


def changed(entries, *new, without=()):
    """The entries with others in the place of those with the same key, or behind; and without some."""
    out = [e for e in entries if e[0] not in without]
    for n in new:
        same = [i for i, e in enumerate(out) if e[0] == n[0]]
        if same:
            out[same[0]] = n
        else:
            out.append(n)
    return out
