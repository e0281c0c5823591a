#include "src/base/threads.hpp"

#include <exception>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "src/base/error.hpp"

namespace hoccl {

void run_together(std::size_t n, const std::function<void(std::size_t)>& job) {
  std::promise<bool> gate;
  const std::shared_future<bool> go = gate.get_future().share();
  std::mutex mutex;  // guards first
  std::exception_ptr first;
  std::vector<std::thread> threads;
  std::string missing;
  try {
    threads.reserve(n);
    for (std::size_t i = 0; i < n; ++i)
      threads.emplace_back([&, i] {
        if (!go.get()) return;
        try {
          job(i);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
      });
  } catch (const std::exception& e) {
    missing = fmt::format("starting thread {} of {}: {}; raise the limit of processes or memory (ulimit -u, -v)",
                          threads.size() + 1, n, e.what());
  }
  gate.set_value(missing.empty());
  for (std::thread& thread : threads) thread.join();
  require(missing.empty(), Code::system, "{}", missing);
  if (first) std::rethrow_exception(first);
}

}  // namespace hoccl
