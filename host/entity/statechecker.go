package entity

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
)

const (
	// checkEvery is of how many stays in memory one is checked.
	checkEvery = 1000
	// checkQueue bounds the states that wait, of at most Limits.SnapshotBytes.
	checkQueue = 8
	// checkTime bounds one check, its wait for the log included.
	checkTime = 30 * time.Second
	// checkAgain is how long the records of a state may take to be applied, and
	// checkTries how often that is looked at.
	checkAgain = 50 * time.Millisecond
	checkTries = 40
	// checkLogEvery is between two lines of one type.
	checkLogEvery = time.Hour
)

var (
	// errBehind: the records of a state are not applied yet.
	errBehind = errors.New("the records of the state are not applied")
	// errNoBase: the snapshot that the stay in memory began with is gone.
	errNoBase = errors.New("the snapshot before the state is gone")
	// errOtherHistory: the records of the state were lost.
	errOtherHistory = errors.New("the history of the state is another one by now")
)

// StateCheckOptions configure a Checker. The zero value of a number means
// its default.
type StateCheckOptions struct {
	Histories  HistoryReader
	Every      int    // of so many stays in memory one is checked, default 1,000; negative: none
	Seed       uint64 // decides which ones
	ChunkBytes int    // events handed to a guest at once, default 128 KiB
	Now        func() time.Time
	Logger     *slog.Logger
}

// StateChecker finds guests that are not pure: whose state in memory is not what
// their events make of it. Of some entities that leave memory it takes the
// state, builds it a second time, in an instance of its own, and compares the
// two. It begins with the snapshot that the stay in memory began with, for a
// later one is of the state that is to be checked; where that is gone, with the
// first event.
//
// It owns a goroutine, which Close joins, and disturbs no executor: one check is
// made at a time, and what finds its queue full is not checked. It is safe for
// concurrent use.
type StateChecker struct {
	opts   StateCheckOptions
	stays  atomic.Uint64
	queue  chan *checkedState
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	types map[string]*checkedType // as many as are bound to modules
}

// StateCheckCounts counts the checks of the entities of one type.
type StateCheckCounts struct {
	Compared uint64
	Diverged uint64 // of these: the states differ
}

// checkedType counts the checks of one type, and knows when a difference was
// logged last.
type checkedType struct {
	StateCheckCounts
	logged time.Time
}

// checkedState is what an entity had in memory, and what it came from.
type checkedState struct {
	ID       sharding.EntityID
	Shard    sharding.ShardID
	Type     *Type
	From     journal.Sequence // of the snapshot that its stay began with; 0: with the first event
	Sequence journal.Sequence
	Hash     journal.Hash
	Bytes    []byte
}

// NewStateChecker starts a Checker.
func NewStateChecker(opts StateCheckOptions) *StateChecker {
	if opts.Every == 0 {
		opts.Every = checkEvery
	}
	if opts.ChunkBytes == 0 {
		opts.ChunkBytes = 128 << 10
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &StateChecker{opts: opts, queue: make(chan *checkedState, checkQueue), cancel: cancel, done: make(chan struct{}), types: map[string]*checkedType{}}
	go s.run(ctx)
	return s
}

// Close ends the check under way and waits for it.
func (s *StateChecker) Close(ctx context.Context) error {
	s.cancel()
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stats returns the counters by entity type.
func (s *StateChecker) Stats() map[string]StateCheckCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]StateCheckCounts, len(s.types))
	for name, t := range s.types {
		out[name] = t.StateCheckCounts
	}
	return out
}

// Picks reports whether the stay in memory that begins now is to be checked.
func (s *StateChecker) Picks() bool {
	if s == nil || s.opts.Every < 0 {
		return false
	}
	var draw rand.PCG
	draw.Seed(s.opts.Seed, s.stays.Add(1))
	return draw.Uint64()%uint64(s.opts.Every) == 0
}

// Room reports whether another state would be taken now.
func (s *StateChecker) Room() bool { return len(s.queue) < cap(s.queue) }

// Offer hands a state over; it never blocks.
func (s *StateChecker) Offer(r *checkedState) {
	select {
	case s.queue <- r:
	default:
	}
}

func (s *StateChecker) run(ctx context.Context) {
	defer close(s.done)
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-s.queue:
			if ctx.Err() == nil {
				s.check(ctx, r)
			}
		}
	}
}

// check builds a state anew and compares it.
func (s *StateChecker) check(ctx context.Context, r *checkedState) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	retry := time.NewTicker(checkAgain)
	defer retry.Stop()
	equal, err := s.Compare(ctx, r)
	for tries := 0; errors.Is(err, errBehind) && tries < checkTries; tries++ {
		select {
		case <-ctx.Done():
			return
		case <-retry.C:
			equal, err = s.Compare(ctx, r)
		}
	}
	if err != nil {
		s.opts.Logger.Debug("a state was not checked", "entity_type", r.ID.Type, "shard_id", uint64(r.Shard), "error", err)
		return
	}
	s.note(r, equal)
}

// Compare builds a state a second time and reports that it is the same. It
// fails where the records that led to the state are not all there.
func (s *StateChecker) Compare(ctx context.Context, r *checkedState) (equal bool, err error) {
	state, err := s.build(ctx, r)
	if errors.Is(err, errNoBase) {
		r.From = 0
		state, err = s.build(ctx, r)
	}
	return err == nil && bytes.Equal(state, r.Bytes), err
}

// note counts a check, and says now and then that a type has diverged.
func (s *StateChecker) note(r *checkedState, equal bool) {
	s.mu.Lock()
	t := s.types[r.ID.Type]
	if t == nil {
		t = &checkedType{}
		s.types[r.ID.Type] = t
	}
	t.Compared++
	now := s.opts.Now()
	say := !equal && (t.logged.IsZero() || now.Sub(t.logged) >= checkLogEvery)
	if !equal {
		t.Diverged++
	}
	if say {
		t.logged = now
	}
	counted := t.StateCheckCounts
	s.mu.Unlock()
	if say {
		s.opts.Logger.Error("a guest is not pure: the state that an entity had in memory is not what its events make of it",
			"entity_type", r.ID.Type, "module", r.Type.Digest.String(), "shard_id", uint64(r.Shard), "sequence", uint64(r.Sequence),
			"diverged", counted.Diverged, "compared", counted.Compared)
	}
}

// build makes the state of that sequence in a new instance, as a load does.
func (s *StateChecker) build(ctx context.Context, r *checkedState) ([]byte, error) {
	guest, err := r.Type.Instantiate(ctx)
	if err != nil {
		return nil, err
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { guest.Interrupt(); close(interrupted) })
	defer func() {
		if !stop() {
			<-interrupted
		}
		if err := guest.Close(); err != nil {
			s.opts.Logger.Warn("closing a guest instance failed", "entity_type", r.ID.Type, "error", err)
		}
	}()
	l := &historyLoad{ID: r.ID, Shard: r.Shard, Type: r.Type, Below: r.From + 1, End: r.Sequence}
	var step historyStep
	err = context.Canceled // what a reading says that ends before its last chunk
	l.Read(ctx, s.opts.Histories, s.opts.ChunkBytes, func(ch *historyChunk) error {
		if err = ch.Err; err == nil {
			err = evolveForCheck(guest, &step, l, ch, r)
		}
		if err == nil && !ch.Last {
			err = context.Canceled
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	state, err := guest.Snapshot(0)
	return bytes.Clone(state), err
}

// evolveForCheck lets a guest apply a chunk of a state's history.
func evolveForCheck(guest Guest, step *historyStep, l *historyLoad, ch *historyChunk, r *checkedState) error {
	first := !l.Begun()
	if ch.Commands {
		return nil
	}
	l.Step(step, ch)
	if first && !r.Type.Durable && l.From() != r.From {
		return errNoBase
	}
	if err := step.Do(guest, 0); err != nil || !ch.Last {
		return err
	}
	switch {
	case ch.Sequence < r.Sequence:
		return errBehind
	case ch.Sequence > r.Sequence || ch.Hash != r.Hash:
		return errOtherHistory
	}
	return nil
}
