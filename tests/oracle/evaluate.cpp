// Evaluates one op a line: JSON in, JSON out, for tests written in Python. A request is
//
//     {"op": "sum", "attrs": "axes = [0], keepdims = false", "inputs": [{"dtype": "f32", "shape": [2], "data": "hex"}],
//      "cotangent": {…}, "device": "reference", "symbolic": false}
//
// and the answer {"output": {…}, "gradients": [{…} or null, …]} or {"error": "…"}. With a cotangent the gradients of
// the float inputs are taken as well. The graph goes through its text form and `verify` on the way. Instead of op,
// attrs and inputs a request may hold {"graph": text, "feeds": {name: array}} and is answered with {"outputs": […]}, or
// {"block": "Q4_0", "encode": array of f32, "scale": tensor scale, by default the one that fits} or {"block": "Q4_0",
// "decode": array of u8}, whose last axis is rows of a GGUF type; "format" instead of "block" has a number format's
// codes of f64 and "saturate".
#include <iostream>
#include <nlohmann/json.hpp>

#include "ops/eval.h"
#include "quant/block_format.h"
#include "rlx/session.h"
#include "rlx/transform.h"

using namespace rlx;
using json = nlohmann::json;

namespace {

Array array_from(const json& j) {
  Array out(dtype_from_string(j.at("dtype").get<std::string>()), j.at("shape").get<Extents>());
  const std::string& data = j.at("data").get_ref<const std::string&>();
  if (data.size() != 2 * out.byte_size()) throw UserError("evaluate: the data has another length than the shape says");
  auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  for (std::size_t i = 0; i < out.byte_size(); ++i)
    out.bytes()[i] = std::byte(digit(data[2 * i]) * 16 + digit(data[2 * i + 1]));
  return out;
}

json to_json(const Array& a) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string data(2 * a.byte_size(), '0');
  for (std::size_t i = 0; i < a.byte_size(); ++i) {
    auto b = unsigned(a.bytes()[i]);
    data[2 * i] = kDigits[b >> 4], data[2 * i + 1] = kDigits[b & 15];
  }
  return {{"dtype", to_string(a.dtype())}, {"shape", a.shape()}, {"data", std::move(data)}};
}

// The outputs of a graph after a round trip through its text.
std::vector<Array> run(const Graph& built, const Feeds& feeds, const std::string& device) {
  built.verify();
  std::string text = built.text();
  Graph graph = Graph::parse(text);
  if (graph.text() != text) throw InternalError("evaluate: the text does not round-trip:\n" + text);
  if (device == "interpreter") return evaluate(graph.outputs(), feeds);
  auto compiled = Session(Device{device}).compile(graph);
  ArrayMap inputs;
  for (auto& n : graph.inputs()) inputs[n.name()] = feeds.at(n.name());
  for (auto& n : graph.params()) compiled.set_param(n.name(), feeds.at(n.name()));
  return compiled.run(inputs);
}

// Each size but 1 becomes a symbol of its own.
Shape symbolic(const Extents& shape) {
  Shape out;
  for (auto n : shape) out.push_back(n == 1 ? Dim(1) : Dim::symbol("n" + std::to_string(n)));
  return out;
}

json op_table() {
  json ops = json::array();
  for (const OpDef* op : builtin_ops())
    ops.push_back({{"name", op->name}, {"kind", int(op->kind)}, {"ulp", op->ulp}, {"doc", op->doc}});
  return {{"ops", ops}};
}

json code_blocks(const json& request) {
  auto& format = block_format(request.at("block").get<std::string>());
  bool encodes = request.contains("encode");
  Array in = array_from(request.at(encodes ? "encode" : "decode"));
  Extents shape = in.shape();
  std::int64_t &length = shape.back(), row_length = length;
  length = encodes ? length / format.elements * format.bytes : length / format.bytes * format.elements;
  Array out(encodes ? DType::U8 : DType::F32, shape);
  if (!encodes) {
    decode(format, {in.bytes(), in.byte_size()}, out.values<float>(), "in");
    return {{"output", to_json(out)}};
  }
  auto scale = request.value("scale", tensor_scale_of(format, in.values<float>()));
  auto bytes = encode(format, in.values<float>(), row_length, "in", scale);
  std::copy(bytes.begin(), bytes.end(), out.bytes());
  Array scales(DType::F32, {1});
  scales.values<float>()[0] = scale;
  return {{"output", to_json(out)}, {"scale", to_json(scales)}};
}

json code_format(const json& request) {
  Format format = format_from_string(request.at("format").get<std::string>());
  bool encodes = request.contains("encode"), saturate = request.value("saturate", true);
  Array in = array_from(request.at(encodes ? "encode" : "decode"));
  Array out(encodes ? DType::U8 : DType::F64, in.shape());
  for (std::int64_t i = 0; i < in.size(); ++i) {
    if (encodes)
      out.values<std::uint8_t>()[std::size_t(i)] = encode(format, in.values<double>()[std::size_t(i)], saturate);
    else
      out.values<double>()[std::size_t(i)] = decode(format, in.values<std::uint8_t>()[std::size_t(i)]);
  }
  return {{"output", to_json(out)}};
}

json evaluate_request(const json& request) {
  std::string device = request.value("device", "interpreter");
  if (request.contains("table")) return op_table();
  if (request.contains("block")) return code_blocks(request);
  if (request.contains("format")) return code_format(request);
  if (request.contains("graph")) {
    Feeds feeds;
    for (auto& [name, value] : request.at("feeds").items()) feeds[name] = array_from(value);
    json outputs = json::array();
    for (auto& a : run(Graph::parse(request.at("graph").get<std::string>()), feeds, device))
      outputs.push_back(to_json(a));
    return {{"outputs", outputs}};
  }
  auto name = request.at("op").get<std::string>();
  const OpDef* op = find_op(name);
  if (!op) throw UserError("evaluate: there is no op '" + name + "'");
  Graph graph;
  Nodes inputs, wrt;
  Feeds feeds;
  for (auto& j : request.at("inputs")) {
    std::string leaf = "in" + std::to_string(inputs.size());
    Array value = array_from(j);
    inputs.push_back(graph.input(leaf, value.dtype(),
                                 request.value("symbolic", false) ? symbolic(value.shape()) : to_shape(value.shape())));
    if (is_float(value.dtype())) wrt.push_back(inputs.back());
    feeds[leaf] = value;
  }
  Node y = graph.make(*op, inputs, op->attrs->parse(request.value("attrs", "")));
  Nodes outputs{y};
  if (request.contains("cotangent")) {
    Array value = array_from(request.at("cotangent"));
    feeds["dy"] = value;
    for (auto& g : grad(y, wrt, graph.input("dy", value.dtype(), y.shape()))) outputs.push_back(g);
  }
  graph.set_outputs(outputs);
  auto values = run(graph, feeds, device);
  json gradients = json::array();
  std::size_t next = 1;
  if (request.contains("cotangent"))
    for (auto& n : inputs) gradients.push_back(is_float(n.dtype()) ? to_json(values[next++]) : json());
  return {{"output", to_json(values[0])}, {"gradients", gradients}};
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    json answer;
    try {
      answer = evaluate_request(json::parse(line));
    } catch (const std::exception& e) {
      answer = {{"error", e.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
}
