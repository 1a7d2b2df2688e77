// Prints what is written from the op table: `--header` include/rlx/ops.h, `--docs` docs/ops.md.
#include <cstdio>
#include <string_view>

#include "ops/table.h"

int main(int argc, char** argv) {
  std::string_view what = argc == 2 ? argv[1] : "";
  if (what != "--header" && what != "--docs") return std::fputs("usage: rlx_table --header | --docs\n", stderr), 2;
  auto text = what == "--header" ? rlx::ops_header() : rlx::ops_markdown();
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}
