package eventlog

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// install is a snapshot that is being read into the store as the start of a
// generation.
//
//	Install ─▶ reading ─▶ ending ─▶ written ─▶ started
//	             any before started ──▶ abandoned: the next generation has started
type install struct {
	statefile.Install
	shard *shard // the shard whose generation starts from the snapshot

	file      io.Closer
	r         *statefile.Reader
	mark      []byte // encoded applied record, which is written last
	applied   store.Applied
	learner   rows.Learner // collects the rows read so far
	abandoned bool
	waiting   []journal.Committed
}

func (g *background) abandon(in *install) {
	in.abandoned = true
	in.close()
	g.release(in)
	g.reading = slices.DeleteFunc(g.reading, func(o *install) bool { return o == in })
	g.ending = slices.DeleteFunc(g.ending, func(o *install) bool { return o == in })
	g.landed = slices.DeleteFunc(g.landed, func(o *install) bool { return o == in })
}

func (in *install) close() {
	for _, f := range []io.Closer{in.file, in.Stream} {
		if f != nil {
			f.Close() // the file was only read, so an error does not matter
		}
	}
	in.file, in.Stream, in.r = nil, nil, nil
}

// Install starts a generation of the shard from a snapshot, replacing any
// current state. Until Work has written the snapshot to the store, readers get
// ErrInstalling and entries passed to Apply wait.
func (m *Machine) Install(id sharding.ShardID, generation uint32, s statefile.Install) {
	sh := m.replace(id, generation)
	in := &install{Install: s, shard: sh}
	m.mu.Lock()
	sh.installing = in
	m.mu.Unlock()
	m.background.reading = append(m.background.reading, in)
}

// openInstalls verifies the snapshots that must be read in again, before
// anything is written.
func (m *Machine) openInstalls() error {
	for i := range m.opts.Generations {
		sh := m.shards[m.opts.Generations[i].Shard]
		in := sh.installing
		if in == nil {
			continue
		}
		if err := in.verify(); err != nil {
			return fmt.Errorf("snapshot of shard %d: %w", sh.id, err)
		}
		m.background.reading = append(m.background.reading, in)
	}
	return nil
}

func (in *install) verify() error {
	defer in.close()
	if err := in.open(); err != nil {
		return err
	}
	return in.r.Verify(in.Digest)
}

func (in *install) open() error {
	f, err := in.Stream, error(nil)
	if f == nil {
		f, err = in.Open()
	}
	if err != nil {
		return err
	}
	in.file, in.Stream = f, nil
	if in.r, err = statefile.NewReader(f, nil); err != nil {
		return err
	}
	if want := (statefile.Header{Shard: in.shard.id, Index: in.Index, Term: in.Term}); in.r.Header() != want {
		return fmt.Errorf("%w: the snapshot's digest differs from the digest in the log", journal.ErrDamaged)
	}
	return nil
}

// finishInstalls reads in all snapshots before the machine starts.
func (m *Machine) finishInstalls() error {
	for len(m.background.reading) > 0 || len(m.background.ending) > 0 || len(m.background.landed) > 0 {
		for m.failed == nil && (len(m.background.reading) > 0 && !m.background.full() || len(m.background.landed) > 0) {
			m.Work()
		}
		if m.failed != nil {
			return m.failed
		}
		if err := m.StopError(sharding.MetaShard); errors.Is(err, journal.ErrUnsupported) {
			return err // the node cannot run without the metadata
		}
		if b := m.TakeBatch(); b != nil {
			if err := b.WriteTo(m.st); err != nil {
				return err
			}
			m.MarkFlushed(b)
		}
	}
	return nil
}

// readChunk moves one chunk of the snapshot into pieces.
func (m *Machine) readChunk(in *install) (err error) {
	defer func() {
		if err != nil {
			in.close()
			err = fmt.Errorf("install shard %d: %w", in.shard.id, err)
		}
	}()
	if in.r == nil {
		if err := in.open(); err != nil {
			return err
		}
	}
	before := m.background.bytes
	defer func() { m.unflushed.Add(m.background.bytes - before) }()
	chunk, err := in.r.Next(true)
	if errors.Is(err, io.EOF) {
		return m.background.end(in)
	}
	if err != nil {
		return err
	}
	return chunk.Each(func(key, value []byte) error {
		if len(key) == 1 && store.Class(key[0]) == store.ClassApplied {
			in.mark = value
			return nil
		}
		m.key = append(store.AppendGeneration(m.key[:0], in.shard.id, in.shard.generation), key...)
		k, err := store.ParseKey(m.key)
		if err != nil {
			return fmt.Errorf("%w: unknown class of keys", journal.ErrUnsupported)
		}
		m.mu.Lock()
		err = in.learner.Learn(in.shard.rows, k, value)
		m.mu.Unlock()
		if err != nil {
			return err
		}
		m.background.add(piece{shard: in.shard.id, generation: in.shard.generation, key: key, value: value})
		return nil
	})
}

// end writes the applied record, which completes the generation.
func (g *background) end(in *install) error {
	a, err := store.DecodeApplied(in.mark)
	if err != nil {
		return err
	}
	if in.r.Trailer().Digest != in.Digest || a.Index != in.Index || a.Term != in.Term {
		return fmt.Errorf("%w: the snapshot's digest differs from the digest in the log", journal.ErrDamaged)
	}
	in.applied = a
	in.close()
	p := piece{shard: in.shard.id, generation: in.shard.generation, key: []byte{byte(store.ClassApplied)}, value: in.mark}
	g.add(p)
	g.reading = slices.DeleteFunc(g.reading, func(o *install) bool { return o == in })
	g.ending = append(g.ending, in)
	return nil
}

// begin makes the installed generation current and applies the waiting entries.
func (m *Machine) begin(in *install) (s Step) {
	sh := in.shard
	if in.abandoned {
		return s
	}
	var unreadable error
	if sh.id == sharding.MetaShard && m.opts.Metadata != nil {
		err := m.restoreMetadata(sh.generation, in.Index)
		if errors.Is(err, journal.ErrUnsupported) {
			unreadable = err
		} else if m.failed = err; err != nil {
			return s
		}
	}
	if m.failed = m.restoreMessages(sh); m.failed != nil {
		return s
	}
	m.mu.Lock()
	sh.applied, sh.installing = in.applied, nil
	if err := errors.Join(in.learner.Finish(sh.rows, &sh.applied), sh.outbox.Check()); err != nil {
		m.suspects.add(sh, err)
	}
	sh.flushed = sh.applied
	m.mu.Unlock()
	m.subs.WakeShard(sh.id)
	s.Installed = &Installed{Shard: sh.id, Index: in.Index, Term: in.Term, Clock: in.applied.Clock}
	if unreadable != nil {
		s.Installed.Err = m.stop(sh, unreadable)
	} else {
		m.opts.Logger.Info("installed shard from snapshot", "shard_id", uint64(sh.id), "index", in.Index, "entities", in.applied.Entities)
	}
	s.Verdicts = m.Apply(sh.id, m.background.release(in))
	return s
}

// stopInstall stops a shard whose snapshot this release cannot read. The
// snapshot stays in its file, and a process of a different release reads it in
// when it starts.
func (m *Machine) stopInstall(in *install, cause error) Step {
	m.background.abandon(in)
	m.mu.Lock()
	in.shard.installing = nil
	m.mu.Unlock()
	return Step{Installed: &Installed{Shard: in.shard.id, Index: in.Index, Term: in.Term, Err: m.stop(in.shard, cause)}}
}

// restoreMessages reads the shard's message state at the start of its
// generation.
func (m *Machine) restoreMessages(sh *shard) error {
	view, err := m.view()
	if err != nil {
		return err
	}
	defer view.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(sh.outbox.Open(view), sh.openImport(view))
}

func (m *Machine) restoreMetadata(generation uint32, index uint64) error {
	view, err := m.view()
	if err != nil {
		return err
	}
	defer view.Close()
	prefix := store.AppendPrefix(nil, sharding.MetaShard, generation, store.ClassMeta)
	return m.replaceMetadata(index, func(put func(key, value []byte) error) error {
		return view.Scan(prefix, nil, func(key, body []byte) error { return put(key[len(prefix):], body) })
	})
}
