// Places for test files that no other test, running at the same time, has.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace rlx {

inline std::string temporary_path(const std::string& name) { return testing::TempDir() + "rlx-" + std::to_string(::getpid()) + "-" + name; }

}  // namespace rlx
