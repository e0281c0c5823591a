#include "src/comm/group.hpp"

#include <mutex>
#include <thread>

namespace hoccl {

Group& Group::mine() {
  static thread_local Group group;
  return group;
}

void Group::add(Communicator& comm, const Request& request) {
  for (Work& work : works_)
    if (work.comm == &comm) {
      work.requests.push_back(request);
      return;
    }
  works_.push_back({&comm, {request}, std::nullopt});
}

void Group::note(const Error& error) {
  if (!error_) error_ = error;
}

void Group::run_creations() {
  std::mutex mutex;  // guards error_ here
  std::vector<std::thread> threads;
  for (const auto& create : creations_)
    threads.emplace_back([&, create] {
      try {
        create();
      } catch (const Error& e) {
        const std::lock_guard lock(mutex);
        note(e);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

void Group::end() {
  require(depth_ > 0, Code::invalid_usage, "ncclGroupEnd without ncclGroupStart in this thread");
  if (--depth_ > 0) return;
  if (!error_ && !creations_.empty() && !works_.empty())
    note(Error(Code::invalid_usage, "a group holds creations of communicators and collectives: use a group for each"));
  if (!error_) run_creations();
  if (!error_) run(works_);
  for (const Work& work : works_)
    if (work.error) note(*work.error);
  const std::optional<Error> error = std::exchange(error_, std::nullopt);
  works_.clear();
  creations_.clear();
  if (error) throw Error(*error);
}

}  // namespace hoccl
