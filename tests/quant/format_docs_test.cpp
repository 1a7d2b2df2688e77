// The page and the pictures of the formats are current.
#include "quant/format_docs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace rlx {
namespace {

std::filesystem::path docs() { return std::filesystem::path(RLX_TESTS_DIR) / "../docs"; }

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream out;
  out << file.rdbuf();
  return out.str();
}

TEST(FormatDocs, AreCurrent) {
  EXPECT_TRUE(read(docs() / "formats.md") == formats_markdown()) << "run: rlx_table --formats docs";
  auto pictures = format_pictures();
  for (auto& [name, svg] : pictures)
    EXPECT_TRUE(read(docs() / "formats" / name) == svg) << name << "; run: rlx_table --formats docs";
  for (auto& entry : std::filesystem::directory_iterator(docs() / "formats"))
    EXPECT_TRUE(pictures.contains(entry.path().filename())) << entry.path() << " is no format's picture";
}

TEST(FormatDocs, SayWhatCodesMean) {
  EXPECT_EQ(format_specials(Format::F8E5M2), "Inf 7c fc, NaN 7d-7f fd-ff");
  EXPECT_EQ(format_specials(Format::F8E4M3FNUZ), "NaN 80, no -0");
  EXPECT_EQ(format_specials(Format::E8M0), "NaN ff, no zero");
  EXPECT_EQ(format_specials(Format::F4E2M1), "none");
  for (auto& table : format_tables())
    for (auto& row : table.rows) EXPECT_EQ(row.size(), table.headers.size()) << table.title;
}

}  // namespace
}  // namespace rlx
