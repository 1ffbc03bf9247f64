package store

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"
)

// partBytes is about how much of a batch is given to Badger at once. It writes
// that in one go, and whoever else is ready to run meanwhile waits for a
// processor.
const partBytes = 64 << 10

// Store is the journal's Badger. Write is for one goroutine; everything else
// may be called from any.
type Store struct {
	dir  string
	db   *badger.DB
	opts Options

	strict sync.Mutex // one strict read at a time

	scrubbed scrubbed

	naming sync.Mutex
	named  uint64 // the names of tables up to this version are synced

	mu      sync.Mutex
	idle    *sync.Cond     // no view is open
	views   map[uint64]int // open views by version
	version uint64         // of the last batch, or found at Open
	discard uint64         // wanted: versions below may go
	closed  bool
}

// Dir is the directory the store lives in.
func (s *Store) Dir() string { return s.dir }

// MaxValueBytes bounds a value's body.
func (s *Store) MaxValueBytes() int { return s.opts.MaxValueBytes() }

// MaxVersion is the highest version in the store, durable or not: that of the
// last Write or, before the first, what Open found. New versions are above it.
func (s *Store) MaxVersion() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// Watermark is the highest version of which everything, and everything below,
// is in finished tables: synced, listed in a synced manifest, and by names that
// are synced. It costs microseconds, and the sync of a directory where there is
// a new table. It speaks of what is there: after a power cut a version below it
// may be missing if it was never told before the cut.
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
	// Badger syncs a new table and the manifest, but the name only after the
	// next merge.
	if err := s.opts.Disk.SyncDir(s.dir); err != nil {
		err = fmt.Errorf("journal store: sync the names of tables: %w", err)
		s.opts.Fatal(err)
		panic(err)
	}
	s.named = highest
	return watermarkOf(highest)
}

// Write writes the batch under the version, which must be above MaxVersion. It
// returns when the batch is in Badger's memtable and readable at the version;
// a crash may lose it, or any part of it, until Watermark has reached the
// version. The batch may be reused afterwards. After an error the store is in
// an unknown state: the process must stop and recover.
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
	part := 0 // where in the batch it began
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
			// The rest goes on under the same version, which is why the
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

// commitPart gives Badger a part of a batch that is not the last.
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
	if p.end-p.value > s.MaxValueBytes()+frameBytes {
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

// SetDiscard lets compaction drop what was overwritten or deleted by versions
// up to version. It must not be above the watermark that the log has recorded:
// a restart reads at that one. Open views hold it back.
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

// Discard is the version that SetDiscard was given last.
func (s *Store) Discard() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.discard
}

// Close waits for open views, writes the memtables out and closes Badger. On a
// disk without room for them it leaves everything as it is, for the next Open to
// recover, and returns ErrNoRoom: the process has to end then.
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
	if !s.closes() {
		return fmt.Errorf("close journal store: %w", ErrNoRoom)
	}
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close journal store: %w", err)
	}
	return nil
}
