package store

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// partBytes is roughly how many bytes of a batch are committed to Badger at a
// time. Badger writes a part without yielding, and other runnable goroutines
// wait for a processor during that time.
const partBytes = 64 << 10

// Store is the journal's Badger database. Write is for one goroutine; all other
// methods may be called from any goroutine.
type Store struct {
	dir  string
	db   *badger.DB
	opts Options

	strict sync.Mutex // serializes strict reads

	scrubbed scrubbed

	naming sync.Mutex
	named  uint64 // table names up to this version are synced

	mu      sync.Mutex
	idle    *sync.Cond     // signaled when no view is open
	views   map[uint64]int // open views by version
	version uint64         // version of the last batch, or the version found by Open
	discard uint64         // the argument of the last SetDiscard
	closed  bool
}

// Dir returns the directory of the store.
func (s *Store) Dir() string { return s.dir }

// maxValueBytes bounds a value's body.
func (s *Store) maxValueBytes() int { return s.opts.maxValueBytes() }

// MaxVersion returns the highest version in the store, durable or not: the
// version of the last Write or, before the first Write, the version found by
// Open. New versions must be above it.
func (s *Store) MaxVersion() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Watermark returns the highest version that is durable together with all lower
// versions: they are in finished tables that are synced and listed in a synced
// manifest, and the names of these tables are synced. It takes microseconds,
// plus the sync of a directory if there is a new table. The guarantee holds
// only for a value that was returned, because Watermark itself does that sync:
// a power cut may lose any version above the last returned value.
func (s *Store) Watermark() uint64 {
	s.naming.Lock()
	defer s.naming.Unlock()
	var highest uint64
	for _, t := range s.tables() {
		highest = max(highest, t.MaxVersion)
	}
	if highest <= s.named || s.opts.ReadOnly {
		return watermarkOf(highest)
	}
	// Badger syncs a new table and the manifest, but syncs the table's name
	// only after the next compaction.
	if err := s.opts.Disk.SyncDir(s.dir); err != nil {
		err = fmt.Errorf("journal store: sync the directory of tables: %w", err)
		s.opts.Fatal(err)
		panic(err)
	}
	s.named = highest
	return watermarkOf(highest)
}

// Write writes the batch under the version, which must be above MaxVersion.
// When it returns, the batch is in Badger's memtable and readable at the
// version. A crash may lose any part of the batch until Watermark reaches the
// version. The batch may be reused afterwards. After an error the state of the
// store is unknown: the process must stop and recover.
func (s *Store) Write(b *Batch, version uint64) (err error) {
	if version <= s.MaxVersion() {
		return fmt.Errorf("%w: %d after %d", ErrVersion, version, s.MaxVersion())
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("write version %d: badger panicked: %v", version, r)
		}
	}()
	entries := make([]badger.Entry, len(b.kvs))
	txn := s.db.NewTransactionAt(math.MaxUint64, true)
	defer func() { txn.Discard() }()
	part := 0 // start of the current part in the batch
	for i := range b.kvs {
		e, err := s.entry(b, i, &entries[i])
		if err != nil {
			return err
		}
		full := b.kvs[i].key-part >= partBytes
		if !full {
			err = set(txn, e)
			full = errors.Is(err, badger.ErrTxnTooBig)
		}
		if full {
			// The rest is committed under the same version, which is why the
			// watermark stays one below the highest version of the tables.
			if err = s.commitPart(txn, version, b.Pause); err == nil {
				txn, part = s.db.NewTransactionAt(math.MaxUint64, true), b.kvs[i].key
				err = set(txn, e)
			}
		}
		if err != nil {
			return fmt.Errorf("write version %d: %w", version, err)
		}
	}
	if err := txn.CommitAt(version, nil); err != nil {
		return fmt.Errorf("write version %d: %w", version, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
	return nil
}

// commitPart commits a part of a batch, except the last part.
func (s *Store) commitPart(txn *badger.Txn, version uint64, rest func(time.Duration)) error {
	began := s.opts.Now()
	if err := txn.CommitAt(version, nil); err != nil || rest == nil {
		return err
	}
	rest(s.opts.Now().Sub(began))
	return nil
}

func (s *Store) entry(b *Batch, i int, e *badger.Entry) (*badger.Entry, error) {
	p := b.kvs[i]
	if p.end-p.value > s.maxValueBytes()+frameBytes {
		return nil, fmt.Errorf("%w: %d bytes in %s", ErrValueTooLarge, p.end-p.value, DescribeKey(b.buf[p.key:p.value]))
	}
	e.Key = b.buf[p.key:p.value:p.value]
	if !p.delete {
		e.Value = b.buf[p.value:p.end:p.end]
	}
	return e, nil
}

func set(txn *badger.Txn, e *badger.Entry) error {
	if e.Value == nil {
		return txn.Delete(e.Key)
	}
	return txn.SetEntry(e)
}

// SetDiscard lets compaction drop values that were overwritten or deleted by
// versions up to version. It must not be above the watermark recorded in the
// log, because a restart reads at that version. Open views delay the removal.
func (s *Store) SetDiscard(version uint64) {
	s.mu.Lock()
	s.discard = max(s.discard, version)
	ts := s.discard
	for v := range s.views {
		ts = min(ts, v)
	}
	s.mu.Unlock()
	s.db.SetDiscardTs(ts)
}

// Discard returns the argument of the last SetDiscard.
func (s *Store) Discard() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.discard
}

// Close waits for open views, flushes the memtables and closes Badger. If the
// disk has no space for the memtables, Close leaves everything for the next
// Open to recover and returns ErrNoRoom. The process must then exit.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	for len(s.views) > 0 {
		s.idle.Wait()
	}
	s.mu.Unlock()
	if !s.hasSpaceToClose() {
		return fmt.Errorf("close journal store: %w", ErrNoRoom)
	}
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close journal store: %w", err)
	}
	return nil
}
