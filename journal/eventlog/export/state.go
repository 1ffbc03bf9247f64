// Package export reads what the store has of a shard at one moment, for somebody
// else: as a stream for another replica, as parts for an archive, or to compare
// it with what there has to be. It holds old versions of the store meanwhile. It
// has no goroutine.
package export

import (
	"fmt"
	"io"

	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/store"
)

// State is a shard's state as the store had it at one moment. It holds old
// versions in the store until it is closed, and has to be.
type State struct {
	header statefile.Header
	prefix []byte // what the keys start with
	view   kv.View
	rows   *rows.Known
	sums   store.Sums // as of the view
}

// New is the state of a shard that the view has, as of an applied mark. The view
// becomes its own.
func New(known *rows.Known, mark *store.Applied, view kv.View) *State {
	return &State{
		header: statefile.Header{Shard: known.Shard, Index: mark.Index, Term: mark.Term},
		prefix: store.GenerationPrefix(known.Shard, known.Generation),
		view:   view, rows: known, sums: mark.Sums,
	}
}

// Header says what the state is of.
func (e *State) Header() statefile.Header { return e.header }

// Stream returns the state's stream, for one reader: every pair of it,
// of whatever class, checked as it is read. It ends with an error where a row is
// missing, and then the shard stops on this node. Closing it closes the State.
func (e *State) Stream() io.ReadCloser {
	return statefile.NewWriter(e.header, &exported{State: e, cursor: e.view.Cursor(e.prefix)})
}

// Close releases the state, where no stream of it was begun.
func (e *State) Close() error {
	e.view.Close()
	return nil
}

// exported gives the pairs without what all keys start with.
type exported struct {
	*State
	cursor kv.Cursor
	closed bool
	hasher store.RowHasher
	read   store.Sums
}

func (e *exported) Next() (key, value []byte, err error) {
	if e.closed {
		return nil, nil, io.ErrClosedPipe
	}
	key, value, err = e.cursor.Next()
	if err == nil {
		err = e.check(key, value)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("export shard %d: %w", e.header.Shard, e.rows.Met(err))
	}
	if key == nil {
		return nil, nil, io.EOF
	}
	return key[len(e.prefix):], value, nil
}

// check takes in a pair, and compares all of them at the end, which is a nil key.
func (e *exported) check(key, value []byte) error {
	if key == nil {
		if what := e.read.Differ(&e.sums); what != "" {
			return &store.DamageError{Where: fmt.Sprintf("shard %d", e.header.Shard), What: "rows are missing: " + what, Action: rows.ActionReplace}
		}
		return nil
	}
	k, err := store.ParseKey(key)
	if err != nil {
		return err
	}
	return e.hasher.AddTo(&e.read, k, value)
}

func (e *exported) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	e.cursor.Close()
	return e.State.Close()
}
