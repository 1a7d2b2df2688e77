// Host arrays: memory, casts (NumPy's values, saturating where NumPy leaves it open), npy files.
#include "rlx/array.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/file.h"

namespace rlx {
namespace {

std::string temporary(const std::string& name) {
  return (std::filesystem::temp_directory_path() / (std::to_string(::getpid()) + "-" + name)).string();
}

TEST(Array, IsAlignedAndZeroed) {
  for (Extents shape : {Extents{}, {0}, {3, 5}, {1000, 1000}}) {
    Array a(DType::F32, shape);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.bytes()) % 64, 0u);
    EXPECT_EQ(a.size(), count(shape));
    for (auto v : a.values<float>()) ASSERT_EQ(v, 0);
  }
  EXPECT_THROW(Array(DType::Any, {2}), InternalError);
  EXPECT_THROW(Array(DType::F32, {-1}), UserError);
  EXPECT_THROW(Array(DType::F64, {std::int64_t(1) << 61}), UserError);
  EXPECT_THROW(Array(std::vector<float>{1, 2}, {3}), UserError);
}

TEST(Array, SharesClonesAndReshapes) {
  Array a(std::vector<float>{1, 2, 3, 4}, {2, 2});
  Array b = a, c = a.clone(), d = a.reshaped({4});
  a.values<float>()[0] = 9;
  EXPECT_EQ(b.at(0), 9);
  EXPECT_EQ(c.at(0), 1);
  EXPECT_EQ(d.at(0), 9);
  EXPECT_EQ(d.shape(), (Extents{4}));
  EXPECT_TRUE(identical(a, b));
  EXPECT_FALSE(identical(a, c));
  EXPECT_FALSE(identical(a, d));
  EXPECT_THROW(a.reshaped({3}), UserError);
  EXPECT_THROW(a.values<double>(), UserError);
  EXPECT_THROW(a.at(4), UserError);
  float memory[] = {5, 6};
  auto e = Array::borrow(memory, DType::F32, {2});
  e.values<float>()[1] = 7;
  EXPECT_EQ(memory[1], 7);
  auto owner = std::make_shared<std::vector<float>>(2, 8.f);
  auto f = Array::share(owner, owner->data(), DType::F32, {2});
  EXPECT_EQ(owner.use_count(), 2);
  EXPECT_EQ(f.at(1), 8);
  EXPECT_EQ(Array(std::vector<bool>{true, false}, {2}).to_vector<int>(), (std::vector<int>{1, 0}));
}

TEST(Array, FloatsSaturateToInts) {
  Array x(std::vector<double>{NAN, INFINITY, -INFINITY, 3e9, -1.5, 2.7, -0.9}, {7});
  EXPECT_EQ(x.cast(DType::I32).to_vector<std::int64_t>(),
            (std::vector<std::int64_t>{0, 2147483647, -2147483648LL, 2147483647, -1, 2, 0}));
  EXPECT_EQ(x.cast(DType::U8).to_vector<int>(), (std::vector<int>{0, 255, 0, 255, 0, 2, 0}));
  EXPECT_EQ(x.cast(DType::I64).values<std::int64_t>()[1], std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(x.cast(DType::I64).values<std::int64_t>()[2], std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(x.cast(DType::U64).values<std::uint64_t>()[1], std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(x.cast(DType::F16).cast(DType::I8).to_vector<int>(), (std::vector<int>{0, 127, -128, 127, -1, 2, 0}));
  EXPECT_EQ(x.cast(DType::Bool).to_vector<int>(), (std::vector<int>{1, 1, 1, 1, 1, 1, 1}));
}

TEST(Array, IntsWrap) {
  Array x(std::vector<std::int64_t>{300, -1, 128, 1LL << 40}, {4});
  EXPECT_EQ(x.cast(DType::U8).to_vector<int>(), (std::vector<int>{44, 255, 128, 0}));
  EXPECT_EQ(x.cast(DType::I8).to_vector<int>(), (std::vector<int>{44, -1, -128, 0}));
}

TEST(Array, IntsRoundOnceToFloats) {
  // 2^54 + 2^46 + 1 is just above the middle of two bf16 values; in a double the 1 is lost and the tie goes to even.
  std::int64_t above = (1LL << 54) + (1LL << 46) + 1;
  Array x(std::vector<std::int64_t>{above, -above, above - 1, 2049, 70000}, {5});
  EXPECT_EQ(x.cast(DType::BF16).to_vector<double>(),
            (std::vector<double>{0x1p54 + 0x1p47, -0x1p54 - 0x1p47, 0x1p54, 2048, 70144}));
  EXPECT_EQ(x.cast(DType::F16).at(3), 2048);
  EXPECT_EQ(x.cast(DType::F16).at(4), INFINITY);
  Array ends(
      std::vector<std::int64_t>{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()},
      {2});
  EXPECT_EQ(ends.cast(DType::BF16).to_vector<double>(), (std::vector<double>{0x1p63, -0x1p63}));
  Array top(std::vector<std::uint64_t>{~0ull}, {1});
  EXPECT_EQ(top.cast(DType::BF16).at(0), 0x1p64);
}

TEST(Array, Complex) {
  auto x = Array(std::vector<float>{1, 0}, {2}).cast(DType::C64);
  EXPECT_EQ(x.values<c64>()[0], (c64{1, 0}));
  EXPECT_EQ(x.cast(DType::Bool).to_vector<int>(), (std::vector<int>{1, 0}));
  EXPECT_THROW(x.cast(DType::F32), UserError);
  EXPECT_THROW(x.at(0), UserError);
}

TEST(Array, Scalars) {
  EXPECT_EQ(Array::scalar(2.5, DType::F16).at(0), 2.5);
  EXPECT_EQ(Array::scalar(2.5, DType::I32).at(0), 2);
  EXPECT_EQ(Array::scalar(1e300, DType::F32).at(0), INFINITY);
  EXPECT_TRUE(Array::scalar(1, DType::Bool).shape().empty());
}

// ---------------------------------------------------------------------------------------------- npy

// A version 1 file as numpy.save lays it out.
std::string npy(std::string header, const std::string& data, char version = 1) {
  header.resize((10 + header.size() + 64) / 64 * 64 - 11, ' ');
  header += '\n';
  std::string out = std::string("\x93NUMPY") + version + '\0' + char(header.size() & 255) + char(header.size() >> 8);
  if (version > 1) out += std::string(2, '\0');
  return out + header + data;
}
Array load(const std::string& bytes) {
  auto path = temporary("in.npy");
  write_file_atomic(path, bytes);
  struct Remove {
    std::string path;
    ~Remove() { std::filesystem::remove(path); }
  } remove{path};
  return Array::load_npy(path);
}

TEST(Npy, WritesWhatNumpyWrites) {
  auto path = temporary("out.npy");
  Array(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}).save_npy(path);
  EXPECT_EQ(read_file(path),
            npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
                std::string("\0\0\x80\x3f\0\0\0\x40\0\0\x40\x40\0\0\x80\x40\0\0\xa0\x40\0\0\xc0\x40", 24)));
  Array(std::vector<bf16>{bf16(1.5f), bf16(-2.f)}, {2}).save_npy(path);
  EXPECT_EQ(read_file(path),
            npy("{'descr': '<V2', 'fortran_order': False, 'shape': (2,), }", std::string("\xc0\x3f\0\xc0", 4)));
  Array::scalar(7.25, DType::F64).save_npy(path);
  EXPECT_EQ(read_file(path),
            npy("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", std::string("\0\0\0\0\0\0\x1d\x40", 8)));
  std::filesystem::remove(path);
}

TEST(Npy, EveryDTypeRoundTrips) {
  auto path = temporary("all.npy");
  for (auto d : kAllDTypes)
    for (Extents shape : {Extents{}, {3}, {2, 0}, {2, 3, 1}}) {
      Array a(d, shape);
      for (std::size_t i = 0; i < a.byte_size(); ++i) a.bytes()[i] = std::byte(d == DType::Bool ? i & 1 : 7 * i + 1);
      a.save_npy(path);
      EXPECT_TRUE(identical(Array::load_npy(path), a)) << to_string(a.type());
    }
  std::filesystem::remove(path);
}

TEST(Npy, ReadsOtherOrders) {
  auto a = load(
      npy("{'descr': '<i2', 'fortran_order': True, 'shape': (2, 3), }", std::string("\1\0\4\0\2\0\5\0\3\0\6\0", 12)));
  EXPECT_EQ(a.to_vector<int>(), (std::vector<int>{1, 2, 3, 4, 5, 6}));
  auto b = load(
      npy("{'descr': '>i4', 'fortran_order': False, 'shape': (2,), }", std::string("\0\0\0\1\xff\xff\xff\xfe", 8), 2));
  EXPECT_EQ(b.to_vector<int>(), (std::vector<int>{1, -2}));
}

TEST(Npy, BadFilesAreRefused) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
  EXPECT_NO_THROW(load(npy(good, "abcd")));
  EXPECT_THROW(load(""), UserError);
  EXPECT_THROW(load("\x93NUMPX" + std::string(100, ' ')), UserError);
  EXPECT_THROW(load(npy(good, "abcd", 4)), UserError);
  EXPECT_THROW(load(npy(good, "abc")), UserError);
  EXPECT_THROW(load(npy(good, "abcde")), UserError);
  EXPECT_THROW(load(npy(good, "abcd").substr(0, 40)), UserError);
  EXPECT_THROW(load(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999), }", "abcd")),
               UserError);
  EXPECT_THROW(load(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }", "")), UserError);
  EXPECT_THROW(load(npy("{'descr': '<f4', 'shape': (1,), }", "abcd")), UserError);
  EXPECT_THROW(load(npy("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,), }", "abcd")),
               UserError);
  EXPECT_THROW(load(npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", "abcd")), Unsupported);
  EXPECT_THROW(load(npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", "abcd")), Unsupported);
  EXPECT_THROW(load(npy("{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }", "\1\2")), UserError);
  EXPECT_THROW(Array::load_npy(temporary("missing.npy")), DeviceError);
}

}  // namespace
}  // namespace rlx
