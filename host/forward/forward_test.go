package forward

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/rpctest"
)

func commandID() journal.CommandID {
	return journal.CommandID(fmt.Sprintf("%032d", commandNumber.Add(1)))
}

// An outcome from another node is the same as if the request had run on this
// node.
func TestOutcomes(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	n2 := newSite(t, "n2", w, newLeads("n2"))
	to := toNode{newTestClient(t, newNetwork(t, n2)), "n2"}

	add := command("a", "add", amount(3))
	run(t, to, add)
	if r := add.Result; r.Err != nil || string(r.Payload) != `{"total":3}` || r.Sequence != 1 || r.EventCount != 1 || r.Duplicate {
		t.Errorf("add: %+v", r)
	}
	again := command("a", "add", amount(3))
	again.ID = add.ID
	run(t, to, again)
	if r := again.Result; r.Err != nil || !r.Duplicate || string(r.Payload) != `{"total":3}` {
		t.Errorf("again: %+v", r)
	}
	total := command("a", "total", "")
	total.Kind, total.ID = request.Query, ""
	run(t, to, total)
	if r := total.Result; r.Err != nil || string(r.Payload) != `{"total":3}` || r.Sequence != 1 {
		t.Errorf("query: %+v", r)
	}
	expecting := command("a", "add", amount(1))
	expecting.ExpectedSequence = 7
	run(t, to, expecting)
	var mismatch *request.SequenceMismatchError
	if !errors.As(expecting.Result.Err, &mismatch) || mismatch.Expected != 7 || mismatch.Actual != 1 {
		t.Errorf("expecting: %v", expecting.Result.Err)
	}
	expecting = command("b", "add", amount(1))
	expecting.ExpectedSequence = 0
	run(t, to, expecting)
	if r := expecting.Result; r.Err != nil {
		t.Errorf("expecting the start: %+v", r)
	}
	reject := command("a", "reject", "")
	run(t, to, reject)
	var rejected *request.RejectedError
	if !errors.As(reject.Result.Err, &rejected) || *rejected != (request.RejectedError{Code: "insufficient_funds", Message: "the balance is too low"}) {
		t.Errorf("reject: %v", reject.Result.Err)
	}
	late := command("a", "add", amount(1))
	late.Deadline = time.Now().Add(-time.Second)
	run(t, to, late)
	if !errors.Is(late.Result.Err, request.ErrDeadline) {
		t.Errorf("late: %v", late.Result.Err)
	}
	if w.Total("a") != 3 {
		t.Errorf("total %d", w.Total("a"))
	}
}

// Requests to an entity run in the order of Submit, whatever the message sizes,
// and each is completed once with its own outcome.
func TestOrder(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	n2 := newSite(t, "n2", w, newLeads("n2"))
	c := newTestClient(t, newNetwork(t, n2))
	const entities, each = 10, 1000
	var reqs []*request.Request
	for i := range each {
		for e := range entities {
			reqs = append(reqs, command(fmt.Sprint("e", e), "add", amount(i)))
		}
	}
	all := collect(len(reqs), nil)
	for i := 0; i < len(reqs); i += 7 {
		for _, q := range reqs[i:min(i+7, len(reqs))] {
			q.Done = all
		}
		c.Submit("n2", reqs[i:min(i+7, len(reqs))])
	}
	all.wait(t)
	for k, q := range reqs {
		if i := k / entities; q.Result.Err != nil || q.Result.Sequence != journal.Sequence(i+1) || string(q.Result.Payload) != fmt.Sprintf(`{"total":%d}`, i*(i+1)/2) {
			t.Fatalf("command %d: %+v", k, q.Result)
		}
	}
	big := command("big", "echo", string(make([]byte, 1<<20)))
	run(t, toNode{c, "n2"}, big)
	if len(big.Result.Payload) != 1<<20 {
		t.Errorf("a large reply: %d bytes, %v", len(big.Result.Payload), big.Result.Err)
	}
}

// A node that does not lead a shard names the leader and runs nothing,
// including later requests of the same round.
func TestWrongNode(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	l := newLeads("n3")
	n2 := newSite(t, "n2", w, l)
	to := toNode{newTestClient(t, newNetwork(t, n2)), "n2"}
	first := command("a", "add", amount(1))
	first.Route.Round = 5
	run(t, to, first)
	var notLeader *sharding.NotLeaderError
	if !errors.As(first.Result.Err, &notLeader) || notLeader.Leader != "n3" || notLeader.Shard != first.Shard {
		t.Fatalf("first: %v", first.Result.Err)
	}
	l.move(first.Shard, "n2")
	for _, c := range []struct {
		round uint64
		runs  bool
	}{{5, false}, {4, false}, {6, true}, {0, true}} {
		q := command("a", "add", amount(1))
		q.Route.Round = c.round
		run(t, to, q)
		if (q.Result.Err == nil) != c.runs {
			t.Errorf("round %d: %v", c.round, q.Result.Err)
		}
	}
}

// If a stream breaks, sent requests have an unknown outcome and queued
// requests fail as unreachable. The stream is opened again, but requests of
// the lost round still fail.
func TestBrokenStream(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	n2 := newSite(t, "n2", w, newLeads("n2"))
	net := newNetwork(t, n2)
	c := newTestClient(t, net)
	w.Pause()
	sent := command("a", "add", amount(1))
	sent.Route.Round = 1
	done := collect(1, nil)
	sent.Done = done
	c.Submit("n2", []*request.Request{sent})
	eventually(t, "the request to arrive", func() bool { now, _, _ := w.Queued(); return now == 1 })
	n2.conns.cut()
	done.wait(t)
	w.Resume()
	if !errors.Is(sent.Result.Err, request.ErrOutcomeUnknown) || errors.Is(sent.Result.Err, request.ErrMayStillApply) {
		t.Errorf("sent: %v", sent.Result.Err)
	}
	c.PeerAlive("n2") // ends the back-off
	old := command("a", "add", amount(1))
	old.Route.Round = 1
	run(t, toNode{c, "n2"}, old)
	if !errors.Is(old.Result.Err, request.ErrUnreachable) {
		t.Errorf("of the same round: %v", old.Result.Err)
	}
	repeat := command("a", "add", amount(1))
	repeat.ID, repeat.Route.Round = sent.ID, 2
	run(t, toNode{c, "n2"}, repeat)
	if repeat.Result.Err != nil || w.Total("a") != 1 {
		t.Errorf("again: %+v, total %d", repeat.Result, w.Total("a"))
	}
	w.Pause()
	frozen := command("a", "add", amount(1))
	done = collect(1, nil)
	frozen.Done = done
	c.Submit("n2", []*request.Request{frozen})
	eventually(t, "the request to arrive", func() bool { now, _, _ := w.Queued(); return now == 1 })
	c.PeerSuspected("n2")
	done.wait(t)
	w.Resume()
	if !errors.Is(frozen.Result.Err, request.ErrMayStillApply) {
		t.Errorf("sent to a node that fell silent: %v", frozen.Result.Err)
	}
	dead := command("a", "add", amount(1))
	run(t, toNode{c, "n2"}, dead)
	if !errors.Is(dead.Result.Err, request.ErrUnreachable) {
		t.Errorf("to a silent node: %v", dead.Result.Err)
	}
	nowhere := command("a", "add", amount(1))
	run(t, toNode{c, "n9"}, nowhere)
	if !errors.Is(nowhere.Result.Err, request.ErrUnreachable) {
		t.Errorf("to an unknown node: %v", nowhere.Result.Err)
	}
}

// A node that accepts connections and does nothing never blocks Submit. Its
// queue is bounded, and the waiting requests fail as soon as the node is
// suspected.
func TestStalledPeer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // the listener never accepts, but the kernel does
	n := newNetwork(t)
	n.sites["n2"] = l.Addr().String()
	c := newTestClient(t, n, func(o *Options) { o.StreamRequests, o.OpenTimeout = 100, time.Minute })
	const all = 150
	busy := 0
	done := collect(all, nil)
	var reqs []*request.Request
	for range all {
		q := command("a", "add", amount(1))
		q.Done = done
		reqs = append(reqs, q)
		c.Submit("n2", []*request.Request{q})
	}
	c.PeerSuspected("n2")
	done.wait(t)
	for _, q := range reqs {
		switch {
		case errors.Is(q.Result.Err, request.ErrBusy):
			busy++
		case !errors.Is(q.Result.Err, request.ErrUnreachable):
			t.Fatalf("%v", q.Result.Err)
		}
	}
	if busy != all-100 {
		t.Errorf("%d were refused", busy)
	}
}

// When a node opens a stream again, nothing that it sent over the previous
// stream runs afterwards.
func TestNewStreamReplacesOlder(t *testing.T) {
	w := rpctest.New()
	defer w.Close()
	n2 := newSite(t, "n2", w, newLeads("n2"))
	net := newNetwork(t, n2)
	held, entered := make(chan struct{}), make(chan struct{}, 1)
	first := true
	n2.gate.hook = func([]*request.Request) {
		if first { // the reading goroutine of the first stream
			first = false
			entered <- struct{}{}
			<-held
		}
	}
	one := newTestClient(t, net)
	var reqs []*request.Request
	unknown := collect(2, nil)
	for range 2 {
		q := command("a", "add", amount(1))
		q.Done = unknown
		reqs = append(reqs, q)
	}
	one.Submit("n2", reqs[:1])
	<-entered
	one.Submit("n2", reqs[1:]) // after the first
	eventually(t, "both to be sent", func() bool {
		l := one.links("n2")[int(reqs[0].Shard)%4]
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.queue) == 0
	})
	two := newTestClient(t, net) // the same name, as after a restart of the node
	later := command("a", "add", amount(1))
	after := collect(1, nil)
	later.Done = after
	two.Submit("n2", []*request.Request{later})
	eventually(t, "the older stream to be told", func() bool {
		n2.server.mu.Lock()
		defer n2.server.mu.Unlock()
		for st := range n2.server.open {
			if st.replaced.Load() {
				return true
			}
		}
		return false
	})
	close(held)
	after.wait(t)
	unknown.wait(t)
	if later.Result.Err != nil || later.Result.Sequence != 2 {
		t.Errorf("over the new stream: %+v", later.Result)
	}
	if w.Total("a") != 2 {
		t.Errorf("%d commands ran", w.Total("a"))
	}
}
