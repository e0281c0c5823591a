// Several jobs that wait for each other, each on a thread of its own. Floor 0.
#pragma once

#include <cstddef>
#include <functional>

namespace hoccl {

// Runs job(0) … job(n-1) at the same time and returns when all have ended. None begins before all threads are there, so
// when one cannot be started, nothing has run and Error{system} is thrown. A job that throws ends the others' chance to
// be waited for only by what it told them itself: the first exception is thrown again here, after all have ended.
void run_together(std::size_t n, const std::function<void(std::size_t)>& job);

}  // namespace hoccl
