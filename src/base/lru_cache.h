// A bounded map, safe for several threads, that forgets what was used longest ago.
#pragma once
#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace rlx {

template <class Key, class Value, class Hash = std::hash<Key>>
class LruCache {
 public:
  explicit LruCache(std::size_t capacity) : capacity_(capacity) {}

  /// The value of `key`, made by `make()` (a shared_ptr) where there is none. Two threads that miss at once may both
  /// make it; one of the two is kept. What was handed out stays valid after it is forgotten.
  template <class Make>
  std::shared_ptr<Value> get(const Key& key, Make&& make) {
    if (auto found = find(key)) return found;
    std::shared_ptr<Value> made = make();
    std::lock_guard lock(mutex_);
    auto [it, added] = index_.try_emplace(key, order_.end());
    if (!added) return it->second->second;
    order_.emplace_front(key, made);
    it->second = order_.begin();
    if (index_.size() > capacity_) {
      index_.erase(order_.back().first);
      order_.pop_back();
    }
    return made;
  }

  std::size_t size() const {
    std::lock_guard lock(mutex_);
    return index_.size();
  }

 private:
  std::shared_ptr<Value> find(const Key& key) {
    std::lock_guard lock(mutex_);
    auto it = index_.find(key);
    if (it == index_.end()) return nullptr;
    order_.splice(order_.begin(), order_, it->second);
    return it->second->second;
  }

  using Order = std::list<std::pair<Key, std::shared_ptr<Value>>>;
  std::size_t capacity_;
  mutable std::mutex mutex_;
  Order order_;  // most recently used first
  std::unordered_map<Key, typename Order::iterator, Hash> index_;
};

}  // namespace rlx
