package sched

// Size counts what the state holds, for tests that it does not grow.
func (s *State) Size() int {
	n := len(s.executors) + len(s.jobs) + len(s.shuffles) + len(s.effects)
	for _, e := range s.executors {
		n += len(e.running)
	}
	return n
}
