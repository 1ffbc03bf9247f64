package eventlog

import (
	"fmt"
	"io"

	"github.com/hostd/hostd/journal/eventlog/kv"
	"github.com/hostd/hostd/journal/eventlog/rows"
	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/journal/store"
)

// PinnedState is the stored state of a shard at one point in time: a stream for
// another replica, or to be checked against its checksums. It keeps old
// versions in the store and must be closed.
type PinnedState struct {
	header statefile.Header
	prefix []byte // common prefix of all keys
	view   kv.View
	rows   *rows.Known
	sums   store.Sums // as of the view
}

// newPinnedState returns the state of a shard in the view at its applied
// record. It takes ownership of the view.
func newPinnedState(known *rows.Known, mark *store.Applied, view kv.View) *PinnedState {
	return &PinnedState{
		header: statefile.Header{Shard: known.Shard, Index: mark.Index, Term: mark.Term},
		prefix: store.GenerationPrefix(known.Shard, known.Generation),
		view:   view, rows: known, sums: mark.Sums,
	}
}

// Header returns the header of the state's stream.
func (e *PinnedState) Header() statefile.Header { return e.header }

// Stream returns the state as a stream for one reader. It contains all pairs of
// all classes, which are checked while they are read. If a row is missing, the
// stream ends with an error and the shard stops on this node. Closing it closes
// the State.
func (e *PinnedState) Stream() io.ReadCloser {
	return statefile.NewWriter(e.header, &pairReader{PinnedState: e, cursor: e.view.Cursor(e.prefix)})
}

// Close releases the state if no stream was started.
func (e *PinnedState) Close() error {
	e.view.Close()
	return nil
}

// pairReader yields the pairs without the common key prefix.
type pairReader struct {
	*PinnedState
	cursor kv.Cursor
	closed bool
	hasher store.RowHasher
	read   store.Sums
}

func (e *pairReader) Next() (key, value []byte, err error) {
	if e.closed {
		return nil, nil, io.ErrClosedPipe
	}
	key, value, err = e.cursor.Next()
	if err == nil {
		err = e.check(key, value)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("export shard %d: %w", e.header.Shard, e.rows.NoteDamage(err))
	}
	if key == nil {
		return nil, nil, io.EOF
	}
	return key[len(e.prefix):], value, nil
}

// check adds a pair to the checksums, and compares the checksums at the end,
// which a nil key marks.
func (e *pairReader) check(key, value []byte) error {
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

func (e *pairReader) Close() error {
	if e.closed {
		return nil
	}
	e.closed = true
	e.cursor.Close()
	return e.PinnedState.Close()
}
