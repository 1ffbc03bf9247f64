// Package kv is what the event log asks of a store: versions that are written
// whole and read as of one moment. It has the product's store behind it, or the
// simulator's, which loses what it is told to. It keeps nothing itself.
// The package starts no goroutine.
package kv

import "github.com/hostd/hostd/journal/store"

// Store is what a state machine keeps its state in. *store.Store is the
// product's, by Of.
type Store interface {
	// ViewAt returns a view of what batches up to the version left.
	ViewAt(version uint64) (View, error)
	// Write makes the batch readable at the version, which is above MaxVersion.
	// A crash may lose it or any part of it until Watermark has reached it.
	Write(b *store.Batch, version uint64) error
	// RollBack takes back what versions above this one have changed, in a batch
	// of a new version, which it returns.
	RollBack(version uint64) (uint64, error)
	// MaxVersion is the highest version that there is anything of.
	MaxVersion() uint64
	// Watermark is the highest version up to which nothing can be lost any more.
	Watermark() uint64
	// SetDiscard lets go of what versions up to this one have overwritten.
	SetDiscard(version uint64)
}

// View is a Store as of one version; see store.View.
type View interface {
	Get(key []byte, fn func(body []byte) error) (found bool, err error)
	Scan(prefix, from []byte, fn func(key, body []byte) error) error
	ScanKeys(prefix, from []byte, limit int, fn func(key []byte)) (more bool, err error)
	Cursor(prefix []byte) Cursor
	Generations() ([]store.Generation, error)
	Close()
}

// StrictView is a View that can say why it does not find a row.
type StrictView interface {
	// StrictGet looks for a key in the files themselves. Its error names the
	// damage that hides the key.
	StrictGet(key []byte) (found bool, err error)
}

// Cursor walks the pairs of a View; see store.Cursor.
type Cursor interface {
	Next() (key, body []byte, err error)
	Close()
}

// Of is the product's store as a Store.
func Of(st *store.Store) Store { return stored{st} }

// stored is a store of Badger.
type stored struct{ *store.Store }

func (s stored) ViewAt(version uint64) (View, error) {
	v, err := s.Store.ViewAt(version)
	if err != nil {
		return nil, err
	}
	return storedView{v, s.Store, version}, nil
}

// storedView is a store of Badger as of one version.
type storedView struct {
	*store.View
	st      *store.Store
	version uint64
}

func (v storedView) StrictGet(key []byte) (found bool, err error) {
	_, found, err = v.st.StrictGet(key, v.version)
	return found, err
}

func (v storedView) Cursor(prefix []byte) Cursor { return v.View.Cursor(prefix) }
