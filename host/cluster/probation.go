package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hostd/hostd/host/datadir"
	"github.com/hostd/hostd/sharding/staledisk"
)

// ErrOlderCopy: the data directory is an older copy of itself, and the cluster
// goes on without what it has forgotten. The node is to be stopped, its
// directory given to Rejoin, and the node started again.
var ErrOlderCopy = errors.New("the data directory is an older copy of itself")

var (
	errOnProbation = errors.New("the node waits until a majority of those who vote on the metadata know of no later start of it")
	errOlderCopy   = errors.New("the data directory is an older copy of itself: other nodes know of a later start of this one; " +
		"it votes on nothing, and joins with a new disk id once the others have a leader")
)

// askLed is how often a node whose directory is an older copy looks whether the
// others can take it back.
const askLed = 500 * time.Millisecond

// ProbationOptions are what a Probation works with. All are required.
type ProbationOptions struct {
	Identity    *datadir.Record
	Entry       func() Entry
	AddressBook *AddressBook
	Metadata    *Metadata
	Release     func() error // lets the raft groups vote
	Stopping    func() bool
	End         func(error) // says why the node is to be stopped
	Logger      *slog.Logger
}

// Probation lets a node vote once others have vouched for its start. If they
// know of a later one, its replicas are lost: when the others have a leader
// without it, the node ends with ErrOlderCopy. It owns one goroutine, which
// Close joins. It is safe for concurrent use.
type Probation struct {
	opts      ProbationOptions
	asks      bool                  // this start has to be vouched for
	admitted  chan struct{}         // closed when the node may vote
	recovered chan struct{}         // closed when the metadata has all that was known to be committed
	older     atomic.Bool           // the data directory is an older copy of itself
	refused   atomic.Pointer[error] // why others refuse this start whatever they know of it

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// NewProbation makes the probation of a start. One that has nobody to ask may
// vote from Start on.
func NewProbation(opts ProbationOptions) *Probation {
	return &Probation{
		opts: opts, asks: opts.Identity.Now().Several, admitted: make(chan struct{}), recovered: make(chan struct{}), cancel: func() {},
	}
}

// Asks says whether this start has to be vouched for.
func (p *Probation) Asks() bool { return p.asks }

// Admitted is closed when the node may vote.
func (p *Probation) Admitted() <-chan struct{} { return p.admitted }

// Recovered is closed when the metadata has all that the node knew to be
// committed when it started.
func (p *Probation) Recovered() <-chan struct{} { return p.recovered }

// Start begins to ask. It does not wait for the others. committed is how far
// the node knew the metadata shard to be committed.
func (p *Probation) Start(committed uint64) {
	if !p.asks {
		close(p.admitted)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.running.Go(func() {
		if p.opts.Metadata.Await(ctx, committed) != nil {
			return // the node stops
		}
		close(p.recovered)
		if p.asks {
			p.prove(ctx)
		}
	})
}

// Close ends the questions.
func (p *Probation) Close(context.Context) error {
	p.cancel()
	p.running.Wait()
	return nil
}

// prove asks others to vouch for this start. The node's metadata has all that
// it knew to be committed when it started.
func (p *Probation) prove(ctx context.Context) {
	id := p.opts.Identity.Now()
	start := staledisk.Start{Node: id.Node, Attested: id.Vouched, Requested: id.Asked}
	index, view := p.opts.Metadata.AppliedIndex(), p.opts.Metadata.View()
	p.opts.AddressBook.Learn(view)
	candidate := staledisk.New(start, index, MetaVoters(view))
	verdict, err := Prove(ctx, p.opts.Entry, candidate, start, p.opts.AddressBook.Addresses, p.noteRefusal)
	switch {
	case err != nil: // the node stops
	case verdict == staledisk.Passed:
		p.release()
	default:
		p.older.Store(true)
		p.opts.Logger.Error(errOlderCopy.Error())
		p.awaitLed(ctx)
	}
}

// noteRefusal keeps why others refuse this start, and logs it once.
func (p *Probation) noteRefusal(err error) {
	if err == nil {
		p.refused.Store(nil)
		return
	}
	if p.refused.Swap(&err) == nil {
		p.opts.Logger.Error("other nodes refuse this start of the node", "error", err)
	}
}

// release makes it durable that this start was vouched for, and lets the raft
// groups vote.
func (p *Probation) release() {
	err := p.opts.Identity.Save(func(id *datadir.Identity) bool {
		id.Vouch()
		return true
	})
	if err == nil {
		err = p.opts.Release()
	}
	if err != nil {
		if !p.opts.Stopping() {
			p.opts.End(err)
		}
		return
	}
	close(p.admitted)
}

// awaitLed waits until the others have a leader, and ends the node then.
func (p *Probation) awaitLed(ctx context.Context) {
	every := time.NewTicker(askLed)
	defer every.Stop()
	for !p.opts.Entry().Led(ctx, p.opts.AddressBook.Addresses()) {
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
	err := p.opts.Identity.Save(func(id *datadir.Identity) bool {
		id.Known = p.opts.AddressBook.Addresses()
		return true
	})
	if err != nil {
		p.opts.Logger.Error("the identity was not written", "error", err)
	}
	p.opts.End(ErrOlderCopy)
}

// Proven says why the node does not vote yet.
func (p *Probation) Proven() error {
	select {
	case <-p.admitted:
		return nil
	default:
	}
	if p.older.Load() {
		return errOlderCopy
	}
	if err := p.refused.Load(); err != nil {
		return fmt.Errorf("other nodes refuse this start of the node: %w", *err)
	}
	return errOnProbation
}
