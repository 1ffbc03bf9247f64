package store

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

const compression = options.Snappy

// Open opens or creates the store in dir. It verifies the manifest and every
// table before Badger opens them. Damage is reported as a *DamageError and
// leaves the directory unchanged. The caller closes the Store.
func Open(dir string, opts Options) (*Store, error) {
	if err := opts.Validate(); err != nil {
		return nil, fmt.Errorf("journal store options: %w", err)
	}
	opts = opts.withDefaults()
	if !opts.ReadOnly {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("journal store: %w", err)
		}
	}
	highest, err := preflight(opts.Disk, dir)
	if err != nil {
		return nil, err
	}
	if w := watermarkOf(highest); w < opts.Watermark {
		return nil, &DamageError{
			Where: "tables", Action: actionRebuild,
			What: fmt.Sprintf("the tables reach version %d, but the log was truncated at %d", w, opts.Watermark),
		}
	}
	if opts.MemTableBytes, err = fitMemtables(dir, opts.MemTableBytes); err != nil {
		return nil, fmt.Errorf("journal store: %w", err)
	}
	db, err := openDB(dir, opts)
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, db: db, opts: opts, views: make(map[uint64]int)}
	s.idle = sync.NewCond(&s.mu)
	s.version = db.MaxVersion()
	return s, nil
}

// openDB opens Badger. If that fails it removes empty memtable logs and tries
// once more.
func openDB(dir string, opts Options) (*badger.DB, error) {
	if opts.ReadOnly {
		return openOnce(dir, opts)
	}
	for attempt := 0; ; attempt++ {
		removed, err := removeEmptyLogs(dir)
		if err != nil {
			return nil, fmt.Errorf("journal store: %w", err)
		}
		if removed > 0 {
			opts.Logger.Warn("removed empty memtable logs", "files", removed)
		}
		db, err := openOnce(dir, opts)
		if err == nil || attempt > 0 || errors.Is(err, errPanicked) {
			return db, err
		}
		opts.Logger.Warn("reopening the journal store", "error", err)
	}
}

var errPanicked = errors.New("badger panicked")

func openOnce(dir string, opts Options) (db *badger.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			db, err = nil, fmt.Errorf("%w: %w while opening: %v",
				&DamageError{Where: "store", What: "the store cannot be opened", Action: actionRebuild}, errPanicked, r)
		}
	}()
	db, err = badger.OpenManaged(badgerOptions(dir, opts))
	if err != nil {
		return nil, fmt.Errorf("open journal store: %w", err)
	}
	return db, nil
}

// tableBytes is the size of tables in the level below the first, and
// tableGrowth is the factor between levels: 100 GB need five levels. Building a
// table needs up to six times its size in memory and 20 ms of processor time
// per MiB, and several tables are built concurrently. Small tables keep both
// low, but a process can map at most 65,530 tables.
const (
	tableBytes  = 1 << 20
	tableGrowth = 2
)

// newTables is the number of new tables, one per memtable, that are compacted
// into the levels at a time: 160 MiB. The more new tables there are, the less
// often the same data is rewritten. A read checks at most twice as many tables,
// or three times as many if compaction lags.
const newTables = 20

// stalledTables is the number of new tables at which writes wait for
// compaction.
const stalledTables = 3 * newTables

// badgerOptions disables syncs in the commit path and the value log, and keeps
// old versions until SetDiscard allows their removal. Badger does not verify
// its own checksums on reads; preflight, the strict reads and Scrub do. If it
// did, it would hide a bad block: a read would not find the block's keys, and a
// compaction would permanently drop everything after the block in the table.
// Without that verification, most bad blocks are read and compacted together
// with their values, whose own checksums reveal the damage on every read.
func badgerOptions(dir string, opts Options) badger.Options {
	o := badger.DefaultOptions(dir).
		WithSyncWrites(false).
		WithDetectConflicts(false).
		WithMetricsEnabled(false).
		WithNumVersionsToKeep(1).
		WithCompactL0OnClose(false).
		WithCompression(compression).
		WithChecksumVerificationMode(options.NoVerification).
		WithMemTableSize(opts.MemTableBytes).
		WithNumMemtables(opts.Memtables).
		WithNumCompactors(opts.Compactors).
		WithBaseTableSize(tableBytes).
		WithNumLevelZeroTables(newTables).
		WithNumLevelZeroTablesStall(stalledTables).
		WithBlockCacheSize(opts.BlockCacheBytes).
		WithIndexCacheSize(opts.IndexCacheBytes).
		WithValueThreshold(opts.valueThreshold()).
		WithValueLogFileSize(2 << 20).
		WithReadOnly(opts.ReadOnly).
		WithLogger(badgerLogger{opts.Logger})
	o.TableSizeMultiplier = tableGrowth
	return o
}

// watermarkOf returns the highest complete version, given the highest version
// in the tables. Tables are finished in version order, but a batch of the
// highest version may continue in the next table.
func watermarkOf(highest uint64) uint64 {
	if highest == 0 || highest == math.MaxUint64 {
		return 0
	}
	return highest - 1
}

// badgerLogger forwards Badger's log lines. Its info lines become debug lines,
// and its debug lines are dropped.
type badgerLogger struct{ log *slog.Logger }

func line(format string, args []any) slog.Attr {
	return slog.String("line", strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (l badgerLogger) Errorf(format string, args ...any) {
	l.log.Error("badger error", line(format, args))
}

func (l badgerLogger) Warningf(format string, args ...any) {
	l.log.Warn("badger warning", line(format, args))
}

func (l badgerLogger) Infof(format string, args ...any) {
	l.log.Debug("badger message", line(format, args))
}

func (badgerLogger) Debugf(string, ...any) {}
