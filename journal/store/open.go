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
// table before Badger opens them: damage is a *DamageError and leaves the
// directory as it was. The caller closes the Store.
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
			What: fmt.Sprintf("they reach version %d, the log was cut at %d", w, opts.Watermark),
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

// openDB opens Badger; a refusal is tried once more after memtable logs of
// zero bytes are gone.
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
		opts.Logger.Warn("open the journal store again", "error", err)
	}
}

var errPanicked = errors.New("badger panicked")

func openOnce(dir string, opts Options) (db *badger.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			db, err = nil, fmt.Errorf("%w: %w while opening: %v",
				&DamageError{Where: "store", What: "it cannot be opened", Action: actionRebuild}, errPanicked, r)
		}
	}()
	db, err = badger.OpenManaged(badgerOptions(dir, opts))
	if err != nil {
		return nil, fmt.Errorf("open journal store: %w", err)
	}
	return db, nil
}

// tableBytes is the size of tables of the level below the first, and tableGrowth
// how much larger they are from level to level: with 100 GB there are five. To
// build one takes up to six times as much memory, keeps a processor for 20 ms a
// MiB, and several are built at a time. A system maps 65,530 of them.
const (
	tableBytes  = 1 << 20
	tableGrowth = 2
)

// newTables is how many tables, each of a memtable, are merged into the levels
// at a time: 160 MiB, for as much is read and written again the less often the
// more they are. A read looks into at most twice as many, or three times where
// merging falls behind.
const newTables = 20

// stalledTables is how many new ones there may be: then writing waits for the
// merging.
const stalledTables = 3 * newTables

// badgerOptions: nothing is synced in the commit path, nothing goes to the
// value log, old versions are kept until SetDiscard allows otherwise. Badger's
// own checksums are left to preflight, the strict reads and Scrub. When Badger
// finds a bad block it tells nobody: a read does not find the block's keys, and
// a merge leaves out all that is behind it in the table, for good. Unverified,
// most bad blocks are read and merged with their values, whose own checksums say
// damage wherever they are read.
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

// watermarkOf: tables are finished in the order of versions, but a batch of
// the highest version may continue in the next table.
func watermarkOf(highest uint64) uint64 {
	if highest == 0 || highest == math.MaxUint64 {
		return 0
	}
	return highest - 1
}

// badgerLogger passes Badger's lines on; its info is our debug, its debug nobody's.
type badgerLogger struct{ log *slog.Logger }

func line(format string, args []any) slog.Attr {
	return slog.String("line", strings.TrimSpace(fmt.Sprintf(format, args...)))
}

func (l badgerLogger) Errorf(format string, args ...any) {
	l.log.Error("badger reports an error", line(format, args))
}

func (l badgerLogger) Warningf(format string, args ...any) {
	l.log.Warn("badger warns", line(format, args))
}

func (l badgerLogger) Infof(format string, args ...any) {
	l.log.Debug("badger reports", line(format, args))
}

func (badgerLogger) Debugf(string, ...any) {}
