package eventlog

import (
	"fmt"
	"io"

	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/store"
	"github.com/hostd/hostd/sharding"
)

// Export is a shard's state as the store had it at one moment. It holds old
// versions in the store until it is closed, and has to be.
type Export struct {
	header statefile.Header
	life   []byte // what the keys start with
	view   View
}

// Held returns how far the store holds the shard's present life: what Pin
// would export, 0 when it would not.
func (m *Machine) Held(id sharding.ShardID) (index uint64, term sharding.Term) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if sh := m.shards[id]; sh != nil && sh.stopped == nil && sh.installing == nil {
		return sh.flushed.Index, sh.flushed.Term
	}
	return 0, 0
}

// Pin returns the shard's state as the store has it now. It does no I/O.
func (m *Machine) Pin(id sharding.ShardID) (*Export, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	sh := m.shards[id]
	switch {
	case sh == nil || sh.flushed.Index == 0:
		return nil, fmt.Errorf("export shard %d: nothing of it is in the store", id)
	case sh.installing != nil:
		return nil, fmt.Errorf("export shard %d: %w", id, ErrInstalling)
	case sh.stopped != nil:
		return nil, fmt.Errorf("export shard %d: %w", id, sh.stopped)
	}
	view, err := m.st.ViewAt(m.readAt)
	if err != nil {
		return nil, fmt.Errorf("export shard %d: %w", id, err)
	}
	return &Export{
		header: statefile.Header{Shard: id, Index: sh.flushed.Index, Term: sh.flushed.Term},
		life:   store.LifePrefix(id, sh.generation),
		view:   view,
	}, nil
}

// Header says what the state is of.
func (e *Export) Header() statefile.Header { return e.header }

// Stream returns the state's stream, for one reader: every pair of the life,
// of whatever class, checked as it is read. Closing it closes the Export.
func (e *Export) Stream() io.ReadCloser {
	return statefile.NewWriter(e.header, &exported{Export: e, cursor: e.view.Cursor(e.life)})
}

// Close releases the state, where no stream of it was begun.
func (e *Export) Close() error {
	e.view.Close()
	return nil
}

// exported gives the pairs without the life in their keys.
type exported struct {
	*Export
	cursor Cursor
	closed bool
}

func (e *exported) Next() (key, value []byte, err error) {
	if e.closed {
		return nil, nil, io.ErrClosedPipe
	}
	key, value, err = e.cursor.Next()
	if err != nil {
		return nil, nil, fmt.Errorf("export shard %d: %w", e.header.Shard, err)
	}
	if key == nil {
		return nil, nil, io.EOF
	}
	return key[len(e.life):], value, nil
}

func (e *exported) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	e.cursor.Close()
	return e.Export.Close()
}
