#include "base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/parallel.h"
#include "rlx/base.h"

using namespace rlx;

namespace {

// Sets a variable for the length of a test.
class Setting {
 public:
  Setting(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old, had_ = true;
    setenv(name, value, 1);
  }
  ~Setting() { had_ ? setenv(name_, old_.c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::string old_;
  bool had_ = false;
};

}  // namespace

TEST(Env, DocPageIsCurrent) {
  std::ifstream file(RLX_TESTS_DIR "/../docs/env.md");
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), env_markdown()) << "write it anew: build/rlx_table --env > docs/env.md";
}

TEST(Env, OnlyWhatIsInTheTable) { EXPECT_THROW(env("RLX_OTHER"), InternalError); }

TEST(Env, DebugLevel) {
  {
    Setting s("RLX_DEBUG", "3");
    EXPECT_EQ(debug_level(), 3);
  }
  Setting s("RLX_DEBUG", "loud");
  try {
    debug_level();
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "RLX_DEBUG: got \"loud\", expected a number from 0 to 6");
  }
}

TEST(Env, NumThreads) {
  {
    Setting s("RLX_NUM_THREADS", "3");
    EXPECT_EQ(default_num_threads(), 3);
  }
  Setting s("RLX_NUM_THREADS", "0");
  try {
    default_num_threads();
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "RLX_NUM_THREADS: got \"0\", expected a whole number from 1");
  }
}
