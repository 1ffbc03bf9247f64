package eventlog

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// install is a snapshot on its way into the store, as the beginning of a life.
//
//	Install ─▶ reading ─▶ ending ─▶ written ─▶ begun
//	               any but begun ──▶ abandoned: another life began
type install struct {
	statefile.Install
	shard *shard // whose life begins with it

	file      io.Closer
	r         *statefile.Reader
	mark      []byte // the applied mark, which is written last
	applied   store.Applied
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
			f.Close() // it was only read
		}
	}
	in.file, in.Stream, in.r = nil, nil, nil
}

// Install begins a life of the shard with a snapshot, whatever there is of it
// now. Readers get ErrInstalling, and entries given to Apply wait, until it is
// in the store: Work does that.
func (m *Machine) Install(id sharding.ShardID, generation uint32, s statefile.Install) {
	sh := m.replace(id, generation)
	in := &install{Install: s, shard: sh}
	m.mu.Lock()
	sh.installing = in
	m.mu.Unlock()
	m.background.reading = append(m.background.reading, in)
}

// Installing says whether a snapshot of the shard is being installed: until
// that is done the metadata machine, for shard 0, has its state from before.
func (m *Machine) Installing(id sharding.ShardID) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	sh := m.shards[id]
	return sh != nil && sh.installing != nil
}

// openInstalls checks the snapshots that have to be read in again, before
// anything is written.
func (m *Machine) openInstalls() error {
	for i := range m.opts.Lives {
		sh := m.shards[m.opts.Lives[i].Shard]
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
		return fmt.Errorf("%w: it is another snapshot than the log names", journal.ErrDamaged)
	}
	return nil
}

// finishInstalls reads all snapshots in, with nothing else going on.
func (m *Machine) finishInstalls() error {
	for len(m.background.reading) > 0 || len(m.background.ending) > 0 || len(m.background.landed) > 0 {
		for m.failed == nil && (len(m.background.reading) > 0 && !m.background.full() || len(m.background.landed) > 0) {
			m.Work()
		}
		if m.failed != nil {
			return m.failed
		}
		if b := m.TakeBatch(); b != nil {
			if err := b.WriteTo(m.st); err != nil {
				return err
			}
			m.Flushed(b)
		}
	}
	return nil
}

// readChunk moves a chunk of the snapshot into pieces.
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
	chunk, err := in.r.Next(true)
	if errors.Is(err, io.EOF) {
		return m.readTail(in)
	}
	if err != nil {
		return err
	}
	before := m.background.bytes
	err = chunk.Each(func(key, value []byte) error {
		if len(key) == 1 && store.Class(key[0]) == store.ClassApplied {
			in.mark = value
			return nil
		}
		m.key = append(store.AppendLife(m.key[:0], in.shard.id, in.shard.generation), key...)
		if _, err := store.ParseKey(m.key); err != nil {
			return fmt.Errorf("%w: a class of keys that this release does not know", journal.ErrUnsupported)
		}
		if carried(key) {
			m.background.add(piece{shard: in.shard.id, generation: in.shard.generation, key: key, value: value})
		}
		return nil
	})
	m.unflushed.Add(m.background.bytes - before)
	return err
}

// readTail writes the applied mark, which makes the life whole.
func (m *Machine) readTail(in *install) error {
	a, err := store.DecodeApplied(in.mark)
	if err != nil {
		return err
	}
	if in.r.Trailer().Digest != in.Digest || a.Index != in.Index || a.Term != in.Term {
		return fmt.Errorf("%w: the snapshot is another than the log names", journal.ErrDamaged)
	}
	in.applied = a
	in.close()
	p := piece{shard: in.shard.id, generation: in.shard.generation, key: []byte{byte(store.ClassApplied)}, value: in.mark}
	m.background.add(p)
	m.unflushed.Add(p.bytes())
	m.background.reading = slices.DeleteFunc(m.background.reading, func(o *install) bool { return o == in })
	m.background.ending = append(m.background.ending, in)
	return nil
}

// begin lets the life begin that was installed, and applies what waited.
func (m *Machine) begin(in *install) (s Step) {
	sh := in.shard
	if in.abandoned {
		return s
	}
	if sh.id == sharding.MetaShard && m.opts.Metadata != nil {
		if err := m.restoreMetadata(sh.generation, in.Index); err != nil {
			m.failed = err
			return s
		}
	}
	if m.failed = m.restorePost(sh); m.failed != nil {
		return s
	}
	m.mu.Lock()
	sh.applied, sh.flushed, sh.installing = in.applied, in.applied, nil
	m.mu.Unlock()
	m.subs.wakeShard(sh.id)
	m.opts.Logger.Info("shard installed from a snapshot", "shard_id", uint64(sh.id), "index", in.Index, "entities", in.applied.Entities)
	s.Installed = &Installed{Shard: sh.id, Index: in.Index, Term: in.Term, Clock: in.applied.Clock}
	s.Verdicts = m.Apply(sh.id, m.background.release(in))
	return s
}

// restorePost reads what a shard has of sends, as its life begins.
func (m *Machine) restorePost(sh *shard) error {
	view, err := m.st.ViewAt(m.readAt)
	if err != nil {
		return err
	}
	defer view.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	return errors.Join(sh.openPost(view), sh.openImport(view))
}

func (m *Machine) restoreMetadata(generation uint32, index uint64) error {
	view, err := m.st.ViewAt(m.readAt)
	if err != nil {
		return err
	}
	defer view.Close()
	prefix := store.AppendPrefix(nil, sharding.MetaShard, generation, store.ClassMeta)
	return m.replaceMetadata(index, func(put func(key, value []byte) error) error {
		return view.Scan(prefix, nil, func(key, body []byte) error { return put(key[len(prefix):], body) })
	})
}
