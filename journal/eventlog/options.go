package eventlog

import (
	"errors"
	"log/slog"

	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
)

// KV is one stored pair of the metadata machine. A nil Value deletes the key.
type KV struct{ Key, Value []byte }

// Metadata is the state machine of the metadata shard. Its methods are called
// from the goroutine that applies.
type Metadata interface {
	// Apply carries out one committed command. Both results become the
	// caller's; body is only lent. It must be deterministic. An error stops
	// shard 0 at the command: it wraps journal.ErrUnsupported where a later
	// release wrote it.
	Apply(index uint64, body []byte) (writes []KV, result []byte, err error)
	// Replace forgets everything and takes the pairs that restore puts, as of
	// the log index: before the first Apply what the store has, and later where
	// shard 0 is removed or installed from a snapshot. Readers see the old
	// state or the new one. The slices are lent. After an error, that of
	// restore included, the old state is in place.
	Replace(index uint64, restore func(put func(key, value []byte) error) error) error
}

// Options of a Machine. The zero value of a field is its default.
type Options struct {
	// Metadata takes the commands of shard 0; nil stops shard 0 at the first.
	Metadata Metadata
	// Generations says which generation of a shard is the present one, as the
	// log has it. Of a shard that is not in it the store's highest is taken.
	Generations []statefile.Generation
	// MaxHeads bounds the entities whose head is kept in memory, but for those
	// with records on their way to the store. About 500 bytes each. Default
	// 131,072.
	MaxHeads int
	// MaxSubscribers bounds Subscribe. Default 10,000.
	MaxSubscribers int
	// PackBytes is the size at which a pack of records is full. A read that
	// starts within a pack reads it whole; a larger pack costs less to write.
	// Default 64 KiB.
	PackBytes int
	// ClusterVersion gives the cluster's level, for what is written; see sharding.ClusterVersion.
	// Nil: sharding.Level1.
	ClusterVersion func() sharding.ClusterVersion
	// Stopped is told, from the applying goroutine, that a shard has stopped on
	// this node. It must not block. Default: nobody is.
	Stopped func(Stopped)
	// Differs is told, from the applying goroutine, that a digest in the log is
	// another than this replica's. It must not block. Default: nobody is.
	Differs func(Difference)
	// Seed keys the hashes by which the rows of the store are known again. It
	// is any number that those who choose the names of entities do not know.
	Seed uint64
	// Logger gets what an operator wants to know once. Default: discarded.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.MaxHeads, 1<<17)
	def(&o.MaxSubscribers, 10_000)
	def(&o.PackBytes, 64<<10)
	if o.Stopped == nil {
		o.Stopped = func(Stopped) {}
	}
	if o.Differs == nil {
		o.Differs = func(Difference) {}
	}
	if o.ClusterVersion == nil {
		o.ClusterVersion = sharding.FirstVersion
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
	if o.MaxHeads < 1 || o.MaxSubscribers < 1 {
		errs = append(errs, errors.New("heads and subscribers: want at least 1"))
	}
	if o.PackBytes < 1 || o.PackBytes > 512<<10 {
		errs = append(errs, errors.New("pack size: want 1 byte to 512 KiB"))
	}
	return errors.Join(errs...)
}
