package eventlog

import (
	"sync"
	"sync/atomic"
)

// suspects are the shards in whose data a reader has found damage and that the
// applying goroutine has not stopped yet.
type suspects struct {
	mu  sync.Mutex
	all []suspect
	any atomic.Bool
	met chan struct{} // one slot; signals that there are suspects
}

// suspect is a shard with the damage that was found.
type suspect struct {
	shard *shard
	cause error
}

// add requests that a shard is stopped, and returns the cause. It is safe for
// concurrent use.
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

// If err is damage, noteDamage requests that the shard is stopped. It returns
// err. sh may be nil.
func (sh *shard) noteDamage(err error) error {
	if sh == nil {
		return err
	}
	return sh.rows.NoteDamage(err)
}

// stopSuspects stops the generations in which damage was found.
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
