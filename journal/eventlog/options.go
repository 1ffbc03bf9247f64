package eventlog

import (
	"errors"
	"log/slog"

	"github.com/hostd/hostd/journal/statefile"
	"github.com/hostd/hostd/sharding"
)

// KV is one stored pair of the metadata state machine. A nil Value deletes the
// key.
type KV struct{ Key, Value []byte }

// Metadata is the state machine of the metadata shard. Its methods are called
// by the applying goroutine.
type Metadata interface {
	// Apply applies one committed command. It must be deterministic. The
	// results belong to the caller; body must not be retained. An error stops
	// shard 0 at the command. The error wraps journal.ErrUnsupported if the
	// command was written by a later release.
	Apply(index uint64, body []byte) (writes []KV, result []byte, err error)
	// Replace replaces the whole state by the pairs passed to put, as of the
	// log index. It is called before the first Apply with the pairs in the
	// store, and later if shard 0 is removed or installed from a snapshot.
	// Readers see either the old or the new state. The slices passed to put
	// must not be retained. After an error, including one returned by restore,
	// the old state must still be in place.
	Replace(index uint64, restore func(put func(key, value []byte) error) error) error
}

// Options configure a Machine. Zero fields get the default.
type Options struct {
	// Metadata applies the commands of shard 0; if nil, shard 0 stops at its
	// first command.
	Metadata Metadata
	// Generations are the current generations of shards according to the log.
	// For a shard that is not listed, the highest generation in the store is
	// current.
	Generations []statefile.Generation
	// MaxEntityRows limits the entity rows kept in memory, except those with
	// changes on their way to the store. Each takes about 500 bytes. Default
	// 131,072.
	MaxEntityRows int
	// MaxSubscribers limits Subscribe. Default 10,000.
	MaxSubscribers int
	// BlockBytes is the size of an event block. A read that starts within a
	// block reads all of it; larger blocks are cheaper to write. Default 64
	// KiB.
	BlockBytes int
	// ClusterVersion returns the cluster version, which determines the formats
	// that are written. If nil, it is sharding.Version1.
	ClusterVersion func() sharding.ClusterVersion
	// Stopped is called by the applying goroutine when a shard has stopped on
	// this node. It must not block.
	Stopped func(Stopped)
	// Differs is called by the applying goroutine when a checksum in the log
	// differs from this replica's own. It must not block.
	Differs func(Difference)
	// Seed is the key of the hashes that identify stored rows. It can be any
	// number that clients do not know, because a client that knows it could choose
	// entity names that collide.
	Seed uint64
	// Logger receives messages for operators. By default they are discarded.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.MaxEntityRows, 1<<17)
	def(&o.MaxSubscribers, 10_000)
	def(&o.BlockBytes, 64<<10)
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

// Validate returns all errors in the options, joined.
func (o Options) Validate() error {
	o = o.withDefaults()
	var errs []error
	if o.MaxEntityRows < 1 || o.MaxSubscribers < 1 {
		errs = append(errs, errors.New("entity rows and subscribers must be at least 1"))
	}
	if o.BlockBytes < 1 || o.BlockBytes > 512<<10 {
		errs = append(errs, errors.New("block size must be 1 byte to 512 KiB"))
	}
	return errors.Join(errs...)
}
