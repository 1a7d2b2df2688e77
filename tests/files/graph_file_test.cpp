// Graphs saved and read back, and what is refused.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "message_of.h"
#include "rlx/files.h"
#include "rlx/ops.h"

using namespace rlx;
namespace {

std::string temporary_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "rlx_graph_XXXXXX").string();
  return ::mkdtemp(name.data());
}

SavedGraph example() {
  SavedGraph out;
  Node x = out.graph.input("x", DType::F32, {Dim::symbol("batch"), 2}), w = out.graph.param("w", DType::F32, {2, 3});
  out.graph.set_outputs({relu(matmul(x, w))});
  out.params.emplace("w", Array(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}));
  return out;
}

TEST(GraphFile, ComesBackEqual) {
  std::string path = temporary_folder() + "/model.rlx";
  SavedGraph saved = example();
  save_graph(saved, path);
  SavedGraph back = load_graph(path);
  EXPECT_EQ(back.graph.text(), saved.graph.text());
  EXPECT_TRUE(identical(back.params.at("w"), saved.params.at("w")));
}

TEST(GraphFile, RefusesWhatDoesNotFitTogether) {
  std::string folder = temporary_folder(), path = folder + "/model.rlx";
  SavedGraph saved = example();
  saved.params.clear();
  EXPECT_EQ(message_of<Error>([&] { save_graph(saved, path); }), path + ": the param \"w\" f32[2,3] has no value");
  saved.params.emplace("w", Array(DType::F32, {2, 2}));
  EXPECT_EQ(message_of<Error>([&] { save_graph(saved, path); }), path + ": param \"w\": got f32[2,2], expected f32[2,3]; axis 1 is 3 = 3");
  saved = example();
  saved.params.emplace("v", Array(DType::F32, {1}));
  EXPECT_EQ(message_of<Error>([&] { save_graph(saved, path); }), path + ": there is a value \"v\", but the graph has no such param");
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  std::ofstream(path) << "rlx-graph 1\n%0 : f32[] = nonsense()\noutputs %0\n";
  EXPECT_EQ(message_of<Error>([&] { load_graph(path); }), path + ": graph text, line 2: there is no op 'nonsense'");
}

}  // namespace
