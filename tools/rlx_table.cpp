// Prints what is written from the op table: `--header` include/rlx/ops.h, `--docs` docs/ops.md;
// and from the table of environment variables `--env` docs/env.md.
#include <cstdio>
#include <string_view>

#include "base/env.h"
#include "ops/table.h"

int main(int argc, char** argv) {
  std::string_view what = argc == 2 ? argv[1] : "";
  if (what != "--header" && what != "--docs" && what != "--env")
    return std::fputs("usage: rlx_table --header | --docs | --env\n", stderr), 2;
  auto text = what == "--header" ? rlx::ops_header() : what == "--docs" ? rlx::ops_markdown() : rlx::env_markdown();
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}
