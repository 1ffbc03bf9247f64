package store

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/sharding"
)

// Options of a Store. The zero value of a field is its default.
type Options struct {
	// MemTableBytes is the size of a memtable; what is not durable yet, and so
	// what a start has to apply again, is about this much times Memtables.
	// After a kill under a larger size it is that size once more. Anonymous memory is about 1.3 times this for each memtable. To make one a table keeps a processor for 4 ms a MiB. Default
	// 8 MiB.
	MemTableBytes int64
	// Memtables that may wait for the disk. Default 4.
	Memtables int
	// BlockCacheBytes holds uncompressed blocks. Default 16 MiB.
	BlockCacheBytes int64
	// IndexCacheBytes holds table indexes and bloom filters. Default 16 MiB.
	IndexCacheBytes int64
	// Compactors, at least 2. Default 2.
	Compactors int
	// Watermark is what the log recorded last: Open refuses a store whose
	// tables hold less, before anything in it is changed.
	Watermark uint64
	// Leftover tells Verify whether a generation of a shard may be incomplete,
	// where the log knows: it is being deleted, or its snapshot is read in again
	// by the next start. Default: one beside a complete generation of the shard
	// may be.
	Leftover func(shard sharding.ShardID, generation uint32) bool
	// ReadOnly opens without writing anything: for Verify.
	ReadOnly bool
	// Disk is what files of tables are read from where Badger does not read
	// them, at Open, by the strict reads and by the scrub, and what syncs their
	// names. Default disk.OS.
	Disk disk.FS
	// Now and After are the clock by which batches are written with rests, and the
	// scrub reads. Default time.Now and time.After.
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
	// Fatal is called when the store cannot go on, from whichever goroutine finds
	// that, and should end the process: what it is told names the file. Default,
	// and where it returns: a panic.
	Fatal func(error)
	// Logger gets what Badger warns of. Default: discarded.
	Logger *slog.Logger
}

const (
	minMemTableBytes = 256 << 10
	maxMemTableBytes = 1 << 30
)

func (o Options) withDefaults() Options {
	def := func(v *int64, d int64) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.MemTableBytes, 8<<20)
	def(&o.BlockCacheBytes, 16<<20)
	def(&o.IndexCacheBytes, 16<<20)
	if o.Memtables == 0 {
		o.Memtables = 4
	}
	if o.Compactors == 0 {
		o.Compactors = 2
	}
	if o.Disk == nil {
		o.Disk = disk.OS{}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.After == nil {
		o.After = time.After
	}
	if o.Fatal == nil {
		o.Fatal = func(err error) { panic(err) }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate joins all faults.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	if o.MemTableBytes < minMemTableBytes || o.MemTableBytes > maxMemTableBytes {
		errs = append(errs, fmt.Errorf("memtable of %d bytes: want %d to %d", o.MemTableBytes, minMemTableBytes, maxMemTableBytes))
	}
	if o.Memtables < 1 || o.Memtables > 64 {
		errs = append(errs, fmt.Errorf("%d memtables: want 1 to 64", o.Memtables))
	}
	if o.Compactors < 2 {
		errs = append(errs, fmt.Errorf("%d compactors: want at least 2", o.Compactors))
	}
	if o.BlockCacheBytes < 1<<20 || o.IndexCacheBytes < 1<<20 {
		errs = append(errs, errors.New("block and index cache: want at least 1 MiB each"))
	}
	return errors.Join(errs...)
}

// MaxValueBytes bounds a value's body: larger ones would leave the tables for
// the value log, where damage shows as an empty value. It is 1 MiB less the
// frame, and less with memtables under 7 MiB.
func (o Options) MaxValueBytes() int {
	return int(o.withDefaults().valueThreshold()) - frameBytes - 1
}

func (o Options) valueThreshold() int64 { return min(1<<20, o.MemTableBytes*14/100) }
