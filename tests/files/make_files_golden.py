"""Writes files_golden.inc: a safetensors and a GGUF file as the formats' own Python packages write them.

Run with the packages of tests/requirements.txt:  python make_files_golden.py > files_golden.inc
"""
import os
import tempfile

import gguf
import numpy as np
import safetensors.numpy


def show(name, data):
    print(f"const char {name}[] =")
    for i in range(0, len(data), 60):
        print(f'    "{data[i:i + 60].hex()}"')
    print("    ;")


tensors = {
    "b": np.array([1.5, -2], np.float32), "a": np.array([True, False, True]), "z": np.array([-(2**40)], np.int64),
    "y": np.array(0.1, np.float64), "u": np.array([4000000000], np.uint32), "h": np.zeros((0, 3), np.float16),
    "é\"\\\n": np.array([[-1, 2]], np.int8), "w": np.array([7], np.uint64), "c": np.array([1 + 2j], np.complex64),
}
show("kSafetensors", safetensors.numpy.save(tensors, {"key": "välue \"1\""}))

path = tempfile.mktemp(suffix=".gguf")
w = gguf.GGUFWriter(path, "bitnet")
w.add_uint8("k.u8", 200)
w.add_int8("k.i8", -100)
w.add_uint16("k.u16", 60000)
w.add_int16("k.i16", -30000)
w.add_uint32("k.u32", 4000000000)
w.add_int32("k.i32", -2000000000)
w.add_float32("k.f32", 1.5)
w.add_bool("k.bool", True)
w.add_string("k.string", "välue")
w.add_uint64("k.u64", 2**63 + 1)
w.add_int64("k.i64", -(2**62))
w.add_float64("k.f64", 0.1)
w.add_array("k.strings", ["a", "", "▁b"])
w.add_array("k.ints", [1, -2, 3])
w.add_array("k.floats", [0.5, -1.0])
w.add_tensor("m", np.array([[1, 2, 3], [4, 5, 6]], np.float32))
w.add_tensor("h", np.array([1.5, -2], np.float16))
w.add_tensor("q", gguf.quants.quantize(np.arange(-32, 32, dtype=np.float32).reshape(2, 32), gguf.GGMLQuantizationType.Q8_0),
             raw_dtype=gguf.GGMLQuantizationType.Q8_0)
w.write_header_to_file()
w.write_kv_data_to_file()
w.write_tensors_to_file()
w.close()
show("kGguf", open(path, "rb").read())
os.remove(path)
