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
	// checkEvery is the sampling interval: one stay in memory out of this many
	// is checked.
	checkEvery = 1000
	// checkQueue bounds the waiting states, each of at most
	// Limits.SnapshotBytes.
	checkQueue = 8
	// checkTime bounds one check, including its wait for the log.
	checkTime = 30 * time.Second
	// checkAgain is the interval of retries while the records of a state are not
	// applied yet, and checkTries is the number of these retries.
	checkAgain = 50 * time.Millisecond
	checkTries = 40
	// checkLogEvery is the minimum interval between two log messages for a
	// type.
	checkLogEvery = time.Hour
)

var (
	// errBehind means that the records of a state are not applied yet.
	errBehind = errors.New("the records of the state are not applied yet")
	// errNoBase means that the snapshot from which the state was loaded is
	// gone.
	errNoBase = errors.New("the snapshot from which the state was loaded no longer exists")
	// errOtherHistory means that records of the state were lost.
	errOtherHistory = errors.New("the history of the state has changed")
)

// StateCheckOptions configure a StateChecker. Zero numbers mean the default.
type StateCheckOptions struct {
	Histories  historyReader
	Every      int    // one stay in memory out of this many is checked, default 1,000; negative: none
	Seed       uint64 // determines which stays are checked
	ChunkBytes int    // events passed to a guest at a time, default 128 KiB
	Now        func() time.Time
	Logger     *slog.Logger
}

// StateChecker detects guests that are not deterministic, so that their state
// in memory differs from the state that their events give. It takes the state
// of some entities that leave memory, builds the state again in a new
// instance, and compares the two states. It starts from the snapshot with
// which the stay in memory began, because a later snapshot has the state that
// is being checked. If that snapshot is gone, it starts from the first event.
//
// It owns one goroutine, which Close joins, and never delays an executor: it
// makes one check at a time, and drops states when its queue is full. It is
// safe for concurrent use.
type StateChecker struct {
	opts   StateCheckOptions
	loads  atomic.Uint64
	queue  chan *checkedState
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	types map[string]*checkedType // counts by entity type; bounded by the number of types that were active
}

// StateCheckCounts counts the checks of a type's entities.
type StateCheckCounts struct {
	Compared uint64
	Diverged uint64 // checks that found a different state
}

// checkedType holds the counts of a type and the time of the last log message
// about a difference.
type checkedType struct {
	StateCheckCounts
	logged time.Time
}

// checkedState is an entity's state in memory and its origin.
type checkedState struct {
	ID       sharding.EntityID
	Shard    sharding.ShardID
	Type     *Type
	From     journal.Sequence // sequence of the snapshot that the entity was loaded from; 0 if it was loaded from the first event
	Sequence journal.Sequence
	Hash     journal.Hash
	Bytes    []byte
}

// NewStateChecker starts a StateChecker.
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

// Close interrupts the running check and waits for it, at most until ctx ends.
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

// Picks implements stateCheck.
func (s *StateChecker) Picks() bool {
	if s == nil || s.opts.Every < 0 {
		return false
	}
	var draw rand.PCG
	draw.Seed(s.opts.Seed, s.loads.Add(1))
	return draw.Uint64()%uint64(s.opts.Every) == 0
}

// Room implements stateCheck.
func (s *StateChecker) Room() bool { return len(s.queue) < cap(s.queue) }

// Offer implements stateCheck.
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

// check compares a state and retries while its records are not applied.
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
		s.opts.Logger.Debug("skipped a state check", "entity_type", r.ID.Type, "shard_id", uint64(r.Shard), "error", err)
		return
	}
	s.note(r, equal)
}

// Compare builds the state of r again and reports whether it is equal. It fails
// if some records of the state are missing.
func (s *StateChecker) Compare(ctx context.Context, r *checkedState) (equal bool, err error) {
	state, err := s.build(ctx, r)
	if errors.Is(err, errNoBase) {
		r.From = 0
		state, err = s.build(ctx, r)
	}
	return err == nil && bytes.Equal(state, r.Bytes), err
}

// note counts a check and logs a difference, at most once per checkLogEvery and
// type.
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
		s.opts.Logger.Error("guest is not pure: the entity's state in memory differs from the state replayed from its events",
			"entity_type", r.ID.Type, "module", r.Type.Digest.String(), "shard_id", uint64(r.Shard), "sequence", uint64(r.Sequence),
			"diverged", counted.Diverged, "compared", counted.Compared)
	}
}

// build rebuilds the state of r in a new instance, like a load.
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
			s.opts.Logger.Warn("cannot close a guest instance", "entity_type", r.ID.Type, "error", err)
		}
	}()
	l := &historyLoad{ID: r.ID, Shard: r.Shard, Type: r.Type, Below: r.From + 1, End: r.Sequence}
	var step historyStep
	err = context.Canceled // the result if the read ends before the last chunk
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

// evolveForCheck applies a chunk of a state's history.
func evolveForCheck(guest Guest, step *historyStep, l *historyLoad, ch *historyChunk, r *checkedState) error {
	first := !l.HasState()
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
