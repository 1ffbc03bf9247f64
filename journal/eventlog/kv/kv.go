// Package kv defines the interface of the store that the event log requires:
// versions that are written atomically and read as consistent snapshots. It is
// implemented by the product's store and by the simulator's, which loses data
// on request. It holds no state and starts no goroutine.
package kv

import "github.com/hostd/hostd/journal/store"

// Store stores the state of the state machine. Of returns an implementation
// backed by *store.Store.
type Store interface {
	// ViewAt returns a view of the state after all batches up to the version.
	ViewAt(version uint64) (View, error)
	// Write makes the batch readable at the version, which must be above
	// MaxVersion. Until Watermark has reached the version, a crash may lose all
	// or any part of the batch.
	Write(b *store.Batch, version uint64) error
	// RollBack undoes the changes of all versions above the given version. It
	// does so in a batch with a new version, which it returns.
	RollBack(version uint64) (uint64, error)
	// MaxVersion returns the highest version that exists at least in part.
	MaxVersion() uint64
	// Watermark returns the highest version whose changes survive a crash,
	// together with the changes of all earlier versions.
	Watermark() uint64
	// SetDiscard allows the store to discard values that were overwritten up to
	// this version.
	SetDiscard(version uint64)
}

// View is a Store at one version; see store.View.
type View interface {
	Get(key []byte, fn func(body []byte) error) (found bool, err error)
	Scan(prefix, from []byte, fn func(key, body []byte) error) error
	ScanBack(prefix []byte, fn func(key, body []byte) error) error
	ScanKeys(prefix, from []byte, limit int, fn func(key []byte)) (more bool, err error)
	Cursor(prefix []byte) Cursor
	Generations() ([]store.Generation, error)
	Close()
}

// Viewer opens views of a Store at the version that readers see.
type Viewer interface{ View() (View, error) }

// StrictView is a View that can determine why it does not find a row.
type StrictView interface {
	// StrictGet looks for a key in the files themselves. Its error names the
	// damage that hides the key.
	StrictGet(key []byte) (found bool, err error)
}

// Cursor iterates over the pairs of a View; see store.Cursor.
type Cursor interface {
	Next() (key, body []byte, err error)
	Close()
}

// Of adapts the product's store to Store.
func Of(st *store.Store) Store { return badgerStore{st} }

// badgerStore is a store backed by Badger.
type badgerStore struct{ *store.Store }

func (s badgerStore) ViewAt(version uint64) (View, error) {
	v, err := s.Store.ViewAt(version)
	if err != nil {
		return nil, err
	}
	return badgerView{v, s.Store, version}, nil
}

// badgerView is a Badger store at one version.
type badgerView struct {
	*store.View
	st      *store.Store
	version uint64
}

func (v badgerView) StrictGet(key []byte) (found bool, err error) {
	_, found, err = v.st.StrictGet(key, v.version)
	return found, err
}

func (v badgerView) Cursor(prefix []byte) Cursor { return v.View.Cursor(prefix) }
