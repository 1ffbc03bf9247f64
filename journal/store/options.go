package store

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hostd/hostd/journal/disk"
	"github.com/hostd/hostd/sharding"
)

// Options configure a Store. Zero fields get the default.
type Options struct {
	// MemTableBytes is the size of a memtable. About MemTableBytes times
	// Memtables of data are not durable and have to be applied again at a
	// start. If the store was killed with a larger memtable size, one memtable
	// of that size is added to this amount. Each memtable needs about 1.3 times
	// MemTableBytes of anonymous memory. Turning a memtable into a table takes
	// 4 ms of processor time per MiB. Default 8 MiB.
	MemTableBytes int64
	// Memtables is the number of memtables that may wait for the disk. Default
	// 4.
	Memtables int
	// BlockCacheBytes is the size of the cache of uncompressed blocks. Default
	// 16 MiB.
	BlockCacheBytes int64
	// IndexCacheBytes is the size of the cache of table indexes and Bloom
	// filters. Default 16 MiB.
	IndexCacheBytes int64
	// Compactors is the number of compaction goroutines, at least 2. Default 2.
	Compactors int
	// Watermark is the last durable version recorded in the log. If the tables
	// end before this version, Open fails and changes nothing.
	Watermark uint64
	// Leftover reports to Verify whether a generation of a shard may be
	// incomplete according to the log: it is being deleted, or the next start
	// installs its snapshot again. By default a generation may be incomplete if
	// the shard has a complete generation.
	Leftover func(shard sharding.ShardID, generation uint32) bool
	// ReadOnly opens without writing anything, for Verify.
	ReadOnly bool
	// Disk is used to read table files without Badger: at Open, in strict reads
	// and in Scrub. It also syncs the directory with their names. Default disk.OS.
	Disk disk.FS
	// Now and After are the clock that paces batches and the scrub. Default
	// time.Now and time.After.
	Now   func() time.Time
	After func(time.Duration) <-chan time.Time
	// Fatal is called from any goroutine if the store cannot continue, and
	// should end the process. Its argument names the file. If Fatal is not set,
	// or if it returns, the store panics.
	Fatal func(error)
	// Logger receives Badger's warnings. Default: discarded.
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

// Validate returns every problem with the options.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	if o.MemTableBytes < minMemTableBytes || o.MemTableBytes > maxMemTableBytes {
		errs = append(errs, fmt.Errorf("memtable size: must be between %[2]d and %[3]d bytes, got %[1]d", o.MemTableBytes, minMemTableBytes, maxMemTableBytes))
	}
	if o.Memtables < 1 || o.Memtables > 64 {
		errs = append(errs, fmt.Errorf("memtables: must be between 1 and 64, got %d", o.Memtables))
	}
	if o.Compactors < 2 {
		errs = append(errs, fmt.Errorf("compactors: must be at least 2, got %d", o.Compactors))
	}
	if o.BlockCacheBytes < 1<<20 || o.IndexCacheBytes < 1<<20 {
		errs = append(errs, errors.New("block and index caches: must be at least 1 MiB each"))
	}
	return errors.Join(errs...)
}

// maxValueBytes bounds a value's body. Badger would store larger values in its
// value log, which returns an empty value for damaged data. The bound is 1 MiB
// minus the frame, and less with memtables below 7 MiB.
func (o Options) maxValueBytes() int {
	return int(o.withDefaults().valueThreshold()) - frameBytes - 1
}

func (o Options) valueThreshold() int64 { return min(1<<20, o.MemTableBytes*14/100) }
