package cluster

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"hash/crc64"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/tests/support/testkit"
)

// The number of entities of each type, the number of briefs that are sometimes
// deleted, the number of callers, and the pause between calls.
const (
	wholes, briefs, mortalBriefs = 24, 3, 1
	chaosCallers                 = 16
	chaosPause                   = 20 * time.Millisecond
	// fatReply is the size of a large reply. A few of them fill an entity's
	// idempotency window, so that events can be truncated.
	fatReply = 200 << 10
	// fatEvery is the interval between large replies. It limits their number,
	// because all of them are stored.
	fatEvery = 100 * time.Millisecond
)

var chaosFaults = flag.Int("chaos.faults", 3, "how many faults TestChaos has, beside the last")

// dest identifies an entity.
type dest struct{ Type, ID string }

func (d dest) String() string { return d.Type + "/" + d.ID }

// chaosEntity returns the i-th entity, and whether it is sometimes deleted.
func chaosEntity(i int) (d dest, mortal bool) {
	if i < wholes {
		return dest{"whole", strconv.Itoa(i)}, true
	}
	return dest{"brief", strconv.Itoa(i - wholes)}, i-wholes >= briefs-mortalBriefs
}

// act is the payload of the guest's command.
type act struct {
	Sends   []to   `json:"sends"`
	Timer   string `json:"timer"`
	AfterMs int64  `json:"afterMs"`
	Cancel  string `json:"cancel"`
	More    int64  `json:"more"`
	Reply   int64  `json:"reply"`
	Leave   bool   `json:"leave"`
}

type to struct {
	Type   string `json:"type"`
	ID     string `json:"id"`
	Answer bool   `json:"answer"`
}

// ack is an acknowledged command.
type ack struct {
	command  client.Command
	of       dest
	act      *act // nil for a deletion
	sequence uint64
	events   int
	reply    uint64 // checksum of the reply
}

// chaosState is the guest's answer to a query.
type chaosState struct {
	Acts, Set, Ended, Rang, Awaited, Answered, Stray int64

	Armed map[string]string
	Heard map[string]struct{ Count, Digest int64 }
}

// chaosLoad holds the callers of all entities and the answers that they
// received. A caller retries a command until it knows the outcome.
type chaosLoad struct {
	t       *testing.T
	clients []*client.Client // one client for each node
	every   *client.Client   // a client that knows all nodes
	ctx     context.Context
	stop    context.CancelFunc
	callers sync.WaitGroup
	answers atomic.Int64
	resent  atomic.Int64
	fattest atomic.Int64 // when the last fat reply was requested, in unix nanoseconds

	mu      sync.Mutex
	acks    map[dest][]ack
	unknown []ack // commands whose outcome stays unknown
	fault   error
}

func startChaosLoad(w *world) *chaosLoad {
	l := &chaosLoad{t: w.t, acks: map[dest][]ack{}, every: w.c}
	l.ctx, l.stop = context.WithCancel(context.Background())
	for _, n := range w.Nodes() {
		l.clients = append(l.clients, n.Client(client.Options{Timeout: time.Second, MaxBackoff: 100 * time.Millisecond}))
	}
	for range chaosCallers {
		rng := rand.New(rand.NewPCG(w.rng.Uint64(), 2))
		l.callers.Go(func() {
			for l.ctx.Err() == nil && l.Fault() == nil {
				l.one(rng)
				time.Sleep(time.Duration(rng.Int64N(1 + 2*int64(max(*pause, chaosPause)))))
			}
		})
	}
	w.t.Cleanup(func() { _ = l.Stop() })
	return l
}

func (l *chaosLoad) Acknowledged() int { return int(l.answers.Load()) }

// Fault returns the first answer that no caller should receive.
func (l *chaosLoad) Fault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault
}

func (l *chaosLoad) failed(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault == nil {
		l.fault = fmt.Errorf(format, args...)
	}
}

// Stop stops the load and waits until the callers know the outcomes of their
// commands.
func (l *chaosLoad) Stop() error {
	l.stop()
	l.callers.Wait()
	return l.Fault()
}

// one makes one call.
func (l *chaosLoad) one(rng *rand.Rand) {
	of, mortal := chaosEntity(rng.IntN(wholes + briefs))
	if rng.IntN(4) == 0 { // few entities get many of the calls
		of, mortal = chaosEntity(wholes + rng.IntN(briefs))
	}
	switch p := rng.IntN(100); {
	case p < 15:
		l.again(rng, of)
	case p < 25:
		l.look(of)
	case p < 28 && mortal:
		l.send(rng, ack{of: of, command: client.Command{Name: "remove"}})
	default:
		a := &act{More: int64(rng.IntN(3)), Leave: rng.IntN(10) == 0}
		if rng.IntN(3) > 0 {
			a.Timer, a.AfterMs = "t"+strconv.Itoa(rng.IntN(4)), rng.Int64N(1500)
		}
		if rng.IntN(5) == 0 {
			a.Cancel = "t" + strconv.Itoa(rng.IntN(4))
		}
		for range rng.IntN(6) {
			// A message to an entity that is sometimes deleted can be checked
			// only in its events.
			if d, mortal := chaosEntity(rng.IntN(wholes + briefs)); d.Type == "whole" || !mortal {
				a.Sends = append(a.Sends, to{d.Type, d.ID, rng.IntN(2) == 0})
			}
		}
		if last, now := l.fattest.Load(), time.Now().UnixNano(); of.Type == "brief" && now-last > int64(fatEvery) && l.fattest.CompareAndSwap(last, now) {
			a.Reply = fatReply
		}
		data, err := json.Marshal(a)
		if err != nil {
			l.failed("%w", err)
			return
		}
		l.send(rng, ack{of: of, act: a, command: client.Command{Name: "act", Data: data}})
	}
}

// settledCode reports whether an error determines the outcome of an attempt.
func settledCode(err error) bool {
	switch client.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeResourceExhausted, connect.CodeDeadlineExceeded, connect.CodeCanceled, connect.CodeUnknown:
		return false
	}
	return true
}

// send executes a command. Some attempts are cancelled early, others go to only
// one node.
func (l *chaosLoad) send(rng *rand.Rand, a ack) {
	a.command.EntityType, a.command.EntityID, a.command.ID = a.of.Type, a.of.ID, client.NewCommandID()
	patience := testkit.Patience
	if rng.IntN(10) == 0 {
		patience = time.Duration(1 + rng.Int64N(int64(50*time.Millisecond)))
	}
	for end := time.Now().Add(2 * testkit.Patience); ; patience = testkit.Patience {
		c := l.every
		if rng.IntN(3) == 0 {
			c = l.clients[rng.IntN(len(l.clients))]
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		began := time.Now()
		r, err := c.Send(ctx, a.command)
		cancel()
		if a.command.FirstTried.IsZero() {
			a.command.FirstTried = began // for the age that the following attempts state
		}
		switch {
		case err == nil:
			a.sequence, a.events, a.reply = r.Sequence, r.EventCount, checksum(r.Data)
			l.mu.Lock()
			l.acks[a.of] = append(l.acks[a.of], a)
			l.mu.Unlock()
			l.answers.Add(1)
			return
		case client.CodeOf(err) == connect.CodeAborted:
			l.mu.Lock()
			l.unknown = append(l.unknown, a)
			l.mu.Unlock()
			return
		case settledCode(err), time.Now().After(end):
			l.failed("%s %s %s: %w", a.of, a.command.Name, a.command.ID, err)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func checksum(b []byte) uint64 { return crc64.Checksum(b, crc64.MakeTable(crc64.ECMA)) }

// again resends one of an entity's last commands to any node. The answer must
// be the same as the first answer.
func (l *chaosLoad) again(rng *rand.Rand, of dest) {
	l.mu.Lock()
	acks := l.acks[of]
	l.mu.Unlock()
	const last = 10
	if len(acks) == 0 {
		return
	}
	a := acks[len(acks)-1-rng.IntN(min(last, len(acks)))]
	r, err := l.clients[rng.IntN(len(l.clients))].Send(context.Background(), a.command)
	if err != nil {
		if settledCode(err) {
			l.failed("%s %s again: %w", of, a.command.ID, err)
		}
		return
	}
	if !r.Duplicate || r.Sequence != a.sequence || r.EventCount != a.events || checksum(r.Data) != a.reply {
		l.failed("%s %s again: sequence %d, %d events, %d bytes, duplicate %v; before sequence %d, %d events", of, a.command.ID,
			r.Sequence, r.EventCount, len(r.Data), r.Duplicate, a.sequence, a.events)
	}
	l.answers.Add(1)
	l.resent.Add(1)
}

// look reads an entity's state.
func (l *chaosLoad) look(of dest) {
	s, _, err := readState(context.Background(), l.every, of)
	switch {
	case err != nil && settledCode(err):
		l.failed("the state of %s: %w", of, err)
	case err == nil && s.Stray != 0:
		l.failed("%s got %d timers' commands that it should not have", of, s.Stray)
	}
	l.answers.Add(1)
}

func readState(ctx context.Context, c *client.Client, of dest) (s chaosState, raw []byte, err error) {
	r, err := c.Query(ctx, client.Query{EntityType: of.Type, EntityID: of.ID, Name: "state"})
	if err == nil {
		err = json.Unmarshal(r.Data, &s)
	}
	return s, r.Data, err
}
