"""Makes data/llama_tokens.json: what llama.cpp's tokenizer makes of texts under a vocabulary that RLX trained.

    python make_llama_tokens.py RUN/tokenizer.json > data/llama_tokens.json

Needs llama-cpp-python and gguf (interop/requirements.txt).
"""

import json
import sys
import tempfile

import gguf
import llama_cpp

TEXTS = [
    "In the beginning God created the heaven and the earth.\n",
    "Ge1:2 And the earth was without form, and void; and darkness was upon the face of the deep.\nGe1:3 And God said",
    "",
    " ",
    "\n",
    "\n\n\n",
    "  two  spaces   three    four",
    "trailing space \n next \n",
    "tab\tand\r\nreturn",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "tththththththeeeee the the  the",
    "naïve café – “quoted” … €100",
    "漢字とかな 🙂👍🏽 עברית",
    "UPPER lower MiXeD 0123456789 1:1 22:21",
    "x<0x4>y <unk> </s ><|im_start|>",
    "~`!@#$%^&*()_+-={}[]|\\:\";'<>?,./",
]


def vocabulary_file(vocabulary, path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list(vocabulary["tokens"])
    writer.add_token_scores(vocabulary["scores"])
    writer.add_token_types(vocabulary["types"])
    writer.add_bos_token_id(vocabulary["bos_id"])
    writer.add_eos_token_id(vocabulary["eos_id"])
    writer.add_unk_token_id(vocabulary["unknown_id"])
    writer.add_pad_token_id(vocabulary["padding_id"])
    writer.add_add_bos_token(vocabulary["add_bos"])
    writer.add_add_space_prefix(vocabulary["add_space_prefix"])
    # a vocabulary-only load still reads the sizes
    writer.add_context_length(128)
    writer.add_embedding_length(256)
    writer.add_block_count(1)
    writer.add_feed_forward_length(256)
    writer.add_head_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def main():
    vocabulary = json.load(open(sys.argv[1]))
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        vocabulary_file(vocabulary, file.name)
        model = llama_cpp.Llama(file.name, vocab_only=True, verbose=False)
        cases = [{"text": t, "tokens": model.tokenize(t.encode(), add_bos=True, special=False)} for t in TEXTS]
    json.dump({"vocabulary": vocabulary, "cases": cases}, sys.stdout, separators=(",", ":"))
    print()


main()
