// Prints what is written from the op table: `--header` include/rlx/ops.h, `--docs` docs/ops.md;
// and from the table of environment variables `--env` docs/env.md. `--formats DIR` writes DIR/formats.md and
// DIR/formats/*.svg from the tables of formats.
#include <cstdio>
#include <string>
#include <string_view>

#include "base/env.h"
#include "base/file.h"
#include "ops/table.h"
#include "quant/format_docs.h"

namespace {

int write_formats(const std::string& folder) {
  auto write = [&](const std::string& name, const std::string& text) {
    rlx::write_file_atomic(folder + "/" + name, [&](rlx::FileWriter& out) { out.write(text); });
  };
  write("formats.md", rlx::formats_markdown());
  for (auto& [name, svg] : rlx::format_pictures()) write("formats/" + name, svg);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && argv[1] == std::string_view("--formats")) return write_formats(argv[2]);
  std::string_view what = argc == 2 ? argv[1] : "";
  if (what != "--header" && what != "--docs" && what != "--env")
    return std::fputs("usage: rlx_table --header | --docs | --env | --formats DIR\n", stderr), 2;
  auto text = what == "--header" ? rlx::ops_header() : what == "--docs" ? rlx::ops_markdown() : rlx::env_markdown();
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() ? 0 : 1;
}
