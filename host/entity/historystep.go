package entity

import (
	"errors"

	"github.com/hostd/hostd/abi"
)

// errInitialRefused means that a guest created no state from its input.
var errInitialRefused = errors.New("the guest rejected the creation of an initial state")

// keepBytes bounds the buffer that a historyStep keeps.
const keepBytes = 64 << 10

// historyStep is a guest's work for a chunk: it creates the state if there is
// none, and applies the events.
type historyStep struct {
	typ           uint32
	begin         []byte // frames of hostd_load; empty if the entity is loaded
	afterDeletion bool   // the entity is loaded, and was deleted before this chunk
	frames        []byte
	stored        bool  // begin has a snapshot
	versionErr    error // why the module cannot read the state's version
}

// Step fills in s for the load's next chunk.
func (l *historyLoad) Step(s *historyStep, ch *historyChunk) {
	s.typ, s.frames, s.begin, s.stored, s.versionErr = l.Type.Index, ch.frames, s.begin[:0], false, nil
	s.afterDeletion = l.hasState && ch.afterDeletion
	if l.hasState && !s.afterDeletion {
		return
	}
	l.hasState = true
	s.begin = abi.AppendEntityID(s.begin, l.ID.ID)
	if ch.snapshot != nil {
		l.from = ch.snapshot.Sequence
	}
	s.begin = abi.AppendSequence(s.begin, uint64(max(l.from, ch.start)))
	if ch.snapshot != nil {
		s.begin, s.stored = abi.AppendSnapshot(s.begin, ch.snapshot.State), true
		stored := ch.version
		if !l.Type.Durable {
			stored = l.Type.SnapshotVersion(ch.snapshot.Module)
		}
		s.versionErr = l.Type.States.Check(stored)
		if version := l.Type.States.InputVersion(stored); version != 0 {
			s.begin = abi.AppendStateVersion(s.begin, version)
		}
	}
}

// HasSnapshot reports whether the step passes a snapshot to the guest.
func (s *historyStep) HasSnapshot() bool { return s.stored }

// Do performs the step on the state of a handle.
func (s *historyStep) Do(g Guest, handle uint64) error {
	if s.versionErr != nil {
		return s.versionErr // without support for versions, the guest would misread the state
	}
	if s.afterDeletion {
		if err := g.Drop(handle); err != nil {
			return err
		}
	}
	if len(s.begin) > 0 {
		if ok, err := g.Load(s.typ, handle, s.begin); err != nil {
			return err
		} else if !ok {
			return errInitialRefused
		}
	}
	if len(s.frames) == 0 {
		return nil
	}
	return g.Apply(handle, s.frames)
}

// Clear clears the step and keeps its buffer.
func (s *historyStep) Clear() {
	begin := s.begin[:0]
	if cap(begin) > keepBytes {
		begin = nil
	}
	*s = historyStep{begin: begin}
}
