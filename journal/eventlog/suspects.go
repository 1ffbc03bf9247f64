package eventlog

import (
	"sync"
	"sync/atomic"
)

// suspects are the shards of which somebody has met damage, until the applying
// goroutine stops them.
type suspects struct {
	mu  sync.Mutex
	all []suspect
	any atomic.Bool
	met chan struct{} // one slot: there were some
}

// suspect is a shard of which somebody has met damage, and what it was.
type suspect struct {
	shard *shard
	cause error
}

// add has a shard stopped, and returns the cause. It may be called from any
// goroutine.
func (s *suspects) add(sh *shard, cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, suspect{sh, cause})
	s.any.Store(true)
	select {
	case s.met <- struct{}{}:
	default:
	}
	return cause
}

func (s *suspects) take() []suspect {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	s.any.Store(false)
	return all
}

// met has a shard stopped if an error of a read of it is damage, and returns
// the error. There may be no shard.
func (sh *shard) met(err error) error {
	if sh == nil {
		return err
	}
	return sh.rows.Met(err)
}

// stopSuspects stops the generations of shards of which somebody has met
// damage.
func (m *Machine) stopSuspects() {
	if !m.suspects.any.Load() {
		return
	}
	for _, s := range m.suspects.take() {
		if sh := m.shards[s.shard.id]; sh == s.shard && sh.stopped == nil {
			m.stop(sh, s.cause)
		}
	}
}
