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
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/staledisk"
)

// ErrOlderCopy means that the data directory is an older copy of itself, and
// the cluster continues without the data that the copy lacks. Stop the node,
// pass its directory to Rejoin and start it again.
var ErrOlderCopy = errors.New("the data directory is an outdated copy")

var (
	errUnattested = errors.New("the node is waiting until a majority of the metadata voters confirm that they know no later start of it")
	errOlderCopy  = errors.New("the data directory is an outdated copy: other nodes know a later start of this node; " +
		"the node does not vote, and joins with a new disk id once the leader of the metadata shard says that it has not left the cluster")
	errLeftBefore = errors.New("the data directory is an outdated copy, and this node has left the cluster: stop it")
)

// askLeader is how often a node with an older copy asks whether it may join
// again. probeTimeout bounds each round.
const askLeader = 500 * time.Millisecond

// releaser is the raft loop, which holds its groups back until the node may
// vote.
type releaser interface {
	// Release lets the groups vote.
	Release() error
}

// StaleDiskCheckOptions are the dependencies of a StaleDiskCheck. All are required.
type StaleDiskCheckOptions struct {
	Identity    *datadir.Record
	Entrance    entrance
	AddressBook *AddressBook
	Metadata    *Metadata
	Raft        releaser
	Lifecycle   lifecycle
	Logger      *slog.Logger
}

// StaleDiskCheck is the stale-disk check of a node that starts. If a data
// directory was restored from an older copy, its replicas have forgotten
// votes and acknowledged entries, and voting could lose committed data. So a
// node votes only after a majority of the metadata voters attested that they
// know of no later incarnation of the node. If they know of a later
// incarnation, the node's replicas are lost. When the other nodes have a
// leader without it, the node ends with ErrOlderCopy.
//
// It owns one goroutine, which Close joins. It is safe for concurrent use.
type StaleDiskCheck struct {
	opts             StaleDiskCheckOptions
	needsAttestation bool                  // this incarnation needs attestations
	admitted         chan struct{}         // closed when the node may vote
	recovered        chan struct{}         // closed when the metadata has everything that was known to be committed when the node started
	older            atomic.Bool           // the data directory is an older copy of itself
	left             atomic.Bool           // the directory also belongs to a node that was asked to leave and has left
	refused          atomic.Pointer[error] // why other nodes reject this incarnation, whatever incarnations they have recorded
	unanswered       atomic.Pointer[error] // why an older copy does not know yet whether it may join again

	cancel  context.CancelFunc
	running sync.WaitGroup
}

// NewStaleDiskCheck returns the check of a node that starts. If there are no
// other nodes to ask, the node may vote as soon as Start was called.
func NewStaleDiskCheck(opts StaleDiskCheckOptions) *StaleDiskCheck {
	return &StaleDiskCheck{
		opts: opts, needsAttestation: opts.Identity.Now().Several, admitted: make(chan struct{}), recovered: make(chan struct{}), cancel: func() {},
	}
}

// NeedsAttestation reports whether this incarnation needs attestations.
func (p *StaleDiskCheck) NeedsAttestation() bool { return p.needsAttestation }

// Admission returns a channel that is closed when the node may vote.
func (p *StaleDiskCheck) Admission() <-chan struct{} { return p.admitted }

// Recovery returns a channel that is closed when the metadata has everything
// that the node knew to be committed when it started.
func (p *StaleDiskCheck) Recovery() <-chan struct{} { return p.recovered }

// Start starts the check and does not wait for it. committed is the index of
// the metadata shard up to which the node knew entries to be committed.
func (p *StaleDiskCheck) Start(committed uint64) {
	if !p.needsAttestation {
		close(p.admitted)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	p.running.Go(func() {
		if p.opts.Metadata.Await(ctx, committed) != nil {
			return // the node is stopping
		}
		close(p.recovered)
		if p.needsAttestation {
			p.requestAttestations(ctx)
		}
	})
}

// Close ends the check and waits for it.
func (p *StaleDiskCheck) Close(context.Context) error {
	p.cancel()
	p.running.Wait()
	return nil
}

// requestAttestations asks the other nodes to attest this incarnation. It
// must be called after the metadata has recovered.
func (p *StaleDiskCheck) requestAttestations(ctx context.Context) {
	id := p.opts.Identity.Now()
	start := staledisk.Start{Node: id.Node, Attested: id.Attested, Requested: id.Requested}
	index, view := p.opts.Metadata.AppliedIndex(), p.opts.Metadata.View()
	p.opts.AddressBook.learn(view)
	candidate := staledisk.New(start, index, votersOf(view, sharding.MetaShard))
	verdict, err := Prove(ctx, p.opts.Entrance, candidate, start, p.opts.AddressBook, p.noteRefusal)
	switch {
	case err != nil: // the node is stopping
	case verdict == staledisk.Passed:
		p.release()
	default:
		p.older.Store(true)
		p.opts.Logger.Error(errOlderCopy.Error())
		p.awaitLeader(ctx)
	}
}

// noteRefusal stores why other nodes reject this incarnation, and logs it
// once.
func (p *StaleDiskCheck) noteRefusal(err error) {
	if err == nil {
		p.refused.Store(nil)
		return
	}
	if p.refused.Swap(&err) == nil {
		p.opts.Logger.Error("other nodes reject this start of the node", "error", err)
	}
}

// release durably records that this incarnation was attested, and lets the
// raft groups vote.
func (p *StaleDiskCheck) release() {
	err := p.opts.Identity.Save(func(id *datadir.Identity) bool {
		id.Attest()
		return true
	})
	if err == nil {
		err = p.opts.Raft.Release()
	}
	if err != nil {
		if !p.opts.Lifecycle.Stopping() {
			p.opts.Lifecycle.End(err)
		}
		return
	}
	close(p.admitted)
}

// awaitLeader asks until it knows whether this node has left the cluster, and
// ends the node if it has not. A node that has left stays as it is, because with
// a new disk id it would join again. Silence proves nothing: a lost answer must
// not bring back a node that an operator removed.
func (p *StaleDiskCheck) awaitLeader(ctx context.Context) {
	every, said := time.NewTicker(askLeader), time.Now()
	defer every.Stop()
	for {
		left, err := p.opts.Entrance.Entry().askDeparture(ctx, p.opts.AddressBook.Addresses())
		if left {
			p.left.Store(true)
			p.opts.Logger.Error(errLeftBefore.Error())
			return
		}
		if err == nil {
			break
		}
		p.unanswered.Store(&err)
		if time.Since(said) >= logSearching {
			said = time.Now()
			p.opts.Logger.Warn("waiting to learn whether this node has left the cluster", "error", err)
		}
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
		p.opts.Logger.Error("cannot write the node's identity file", "error", err)
	}
	p.opts.Lifecycle.End(ErrOlderCopy)
}

// VoteError returns why the node does not vote yet, or nil if it may.
func (p *StaleDiskCheck) VoteError() error {
	select {
	case <-p.admitted:
		return nil
	default:
	}
	if p.left.Load() {
		return errLeftBefore
	}
	if p.older.Load() {
		if err := p.unanswered.Load(); err != nil {
			return fmt.Errorf("%w: %w", errOlderCopy, *err)
		}
		return errOlderCopy
	}
	if err := p.refused.Load(); err != nil {
		return fmt.Errorf("other nodes reject this start of the node: %w", *err)
	}
	return errUnattested
}
