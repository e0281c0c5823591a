#include "src/comm/group.hpp"

#include <new>
#include <utility>

#include "src/base/threads.hpp"

namespace hoccl {

Group& Group::mine() {
  static thread_local Group group;
  return group;
}

void Group::add(Communicator& comm, const Request& request, std::unique_ptr<Stay> stay) {
  for (Work& work : works_)
    if (work.comm == &comm) {
      work.requests.push_back(request);
      return;
    }
  works_.push_back({&comm, {request}, std::nullopt});
  stays_.push_back(std::move(stay));
}

bool Group::holds(const Communicator& comm) const noexcept {
  for (const Work& work : works_)
    if (work.comm == &comm) return true;
  return false;
}

void Group::add_creation(std::function<void()> create, std::function<void()> drop) {
  creations_.push_back({std::move(create), std::move(drop)});
}

void Group::note(const Error& error) {
  if (!error_) error_ = error;
}

void Group::run_all() {
  if (!creations_.empty() && !works_.empty())
    note(Error(Code::invalid_usage, "a group holds creations of communicators and collectives: use a group for each"));
  if (error_) {
    for (const Creation& creation : creations_) creation.drop();
    return;
  }
  try {
    run_together(creations_.size(), [&](std::size_t i) { creations_[i].create(); });
    run(works_);
  } catch (const Error& e) {
    note(e);
  } catch (const std::bad_alloc&) {
    note(Error(Code::system, "out of memory"));
  }
  for (const Work& work : works_)
    if (work.error) note(*work.error);
}

void Group::end() {
  require(depth_ > 0, Code::invalid_usage, "ncclGroupEnd without ncclGroupStart in this thread");
  if (--depth_ > 0) return;
  run_all();
  const std::optional<Error> error = std::exchange(error_, std::nullopt);
  works_.clear();
  stays_.clear();
  creations_.clear();
  if (error) throw Error(*error);
}

}  // namespace hoccl
