package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// view is a node's environment: its knowledge of leaders, and nodes with
// scripted answers.
type view struct {
	mu         sync.Mutex
	leader     target
	quorum     bool
	stopped    sharding.StopReason
	candidates []sharding.NodeID
	unheard    []sharding.NodeID
	changed    chan struct{}
	answer     map[sharding.NodeID]func(*request.Request) request.Result
	seen       []string // node and number of each request that reached a node
}

func (s *view) Leader(sharding.ShardID) (sharding.NodeID, bool, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leader.node, s.leader.self, s.leader != target{}
}

func (s *view) Candidates(sharding.ShardID) []sharding.NodeID { return s.candidates }

func (s *view) Missing(sharding.ShardID) sharding.Missing {
	return sharding.Missing{Unreachable: s.unheard}
}

func (s *view) Quorum(sharding.ShardID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quorum
}

func (s *view) StopReason(sharding.ShardID) sharding.StopReason {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

func (s *view) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *view) change(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
	close(s.changed)
	s.changed = make(chan struct{})
}

// node is a node to which requests are submitted.
type node struct {
	*view
	id sharding.NodeID
}

func (n node) Submit(reqs []*request.Request) { n.view.run(n.id, reqs) }

type others struct{ *view }

func (o others) Submit(to sharding.NodeID, reqs []*request.Request) { o.view.run(to, reqs) }

func (s *view) run(id sharding.NodeID, reqs []*request.Request) {
	for _, q := range reqs {
		s.mu.Lock()
		s.seen = append(s.seen, fmt.Sprint(id, ":", q.Tag))
		answer := s.answer[id]
		s.mu.Unlock()
		q.Result = request.Result{Err: &sharding.NotLeaderError{Shard: q.Shard}}
		if answer != nil {
			q.Result = answer(q)
		}
		q.Done.Complete(q)
	}
}

func fine(*request.Request) request.Result { return request.Result{Sequence: 1} }

// outcomes collects results.
type outcomes struct{ got chan request.Result }

func (o outcomes) Complete(q *request.Request) { o.got <- q.Result }

func play(t *testing.T, change func(*Options), run func(*view, *Router, func(tag int, patience time.Duration) chan request.Result)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &view{quorum: true, changed: make(chan struct{}), answer: map[sharding.NodeID]func(*request.Request) request.Result{}, candidates: []sharding.NodeID{"n1", "n2", "n3"}}
		o := Options{Self: "n1", Shards: 1, Local: node{s, "n1"}, Remote: others{s}, Leaders: s}
		if change != nil {
			change(&o)
		}
		r, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		run(s, r, func(tag int, patience time.Duration) chan request.Result {
			got := make(chan request.Result, 1)
			r.Submit([]*request.Request{{
				Kind: request.Command, Entity: sharding.EntityID{Type: "t", ID: "e"}, Tag: uint64(tag),
				Deadline: time.Now().Add(patience), Done: outcomes{got}, Payload: make([]byte, 100),
			}})
			return got
		})
		if err := r.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// Requests wait for a leader and run in order, also on another node.
func TestRequestsWaitForLeader(t *testing.T) {
	play(t, nil, func(s *view, r *Router, send func(int, time.Duration) chan request.Result) {
		s.answer["n2"] = fine
		var got []chan request.Result
		for i := range 5 {
			got = append(got, send(i, 10*time.Second))
		}
		synctest.Wait()
		if len(s.seen) != 0 {
			t.Fatalf("went out without a leader: %v", s.seen)
		}
		s.change(func() { s.leader = target{node: "n2"} })
		for _, g := range got {
			if res := <-g; res.Err != nil || res.Node != "n2" {
				t.Errorf("%+v", res)
			}
		}
		if want := []string{"n2:0", "n2:1", "n2:2", "n2:3", "n2:4"}; !slices.Equal(s.seen, want) {
			t.Errorf("saw %v", s.seen)
		}
	})
}

// Without a quorum no request waits, whether held or new, and a request that
// may have run does not fail as unavailable.
func TestRequestFailsImmediatelyWithoutQuorum(t *testing.T) {
	play(t, nil, func(s *view, r *Router, send func(int, time.Duration) chan request.Result) {
		s.answer["n2"] = func(q *request.Request) request.Result {
			s.change(func() { s.leader = target{} }) // the leader disappears
			return request.Result{Err: request.ErrOutcomeUnknown}
		}
		s.change(func() { s.leader = target{node: "n2"} })
		synctest.Wait()
		lost := send(0, time.Hour)
		held := send(1, time.Hour)
		began := time.Now()
		s.change(func() { s.quorum = false })
		if res := <-lost; !errors.Is(res.Err, request.ErrOutcomeUnknown) {
			t.Errorf("sent before: %v", res.Err)
		}
		var notLeader *sharding.NotLeaderError
		if res := <-held; !errors.As(res.Err, &notLeader) {
			t.Errorf("held: %v", res.Err)
		}
		if res := <-send(2, time.Hour); !errors.As(res.Err, &notLeader) {
			t.Errorf("new: %v", res.Err)
		}
		s.change(func() { s.leader, s.stopped = target{}, sharding.StopDamaged })
		synctest.Wait()
		if res := <-send(2, time.Hour); !errors.As(res.Err, &notLeader) || !strings.Contains(notLeader.Error(), "has stopped (damaged)") {
			t.Errorf("without the only replica: %v", res.Err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took) // virtual time
		}
		s.answer["n3"] = fine
		s.change(func() { s.quorum, s.leader = true, target{node: "n3"} })
		synctest.Wait()
		if res := <-send(3, time.Hour); res.Err != nil {
			t.Errorf("healed: %v", res.Err)
		}
	})
}

// Deadlines and the limits of held requests end the wait. Nothing was sent, so
// callers learn that before their deadlines end.
func TestDeadlinesEndTheWait(t *testing.T) {
	play(t, func(o *Options) { o.HeldRequests = 3 }, func(s *view, r *Router, send func(int, time.Duration) chan request.Result) {
		var got []chan request.Result
		for i := range 4 {
			got = append(got, send(i, time.Duration(i+1)*100*time.Millisecond))
		}
		if res := <-got[3]; !errors.Is(res.Err, request.ErrBusy) {
			t.Errorf("beyond the bound: %v", res.Err)
		}
		began := time.Now()
		for i := range 3 {
			res := <-got[i]
			var notLeader *sharding.NotLeaderError
			if !errors.As(res.Err, &notLeader) {
				t.Errorf("%d: %v", i, res.Err)
			}
			if took, deadline := time.Since(began), time.Duration(i+1)*100*time.Millisecond; took < deadline/2 || took >= deadline {
				t.Errorf("%d: answered after %v, its deadline is %v", i, took, deadline) // virtual time
			}
		}
	})
	play(t, func(o *Options) { o.HeldBytes = 1500 }, func(s *view, r *Router, send func(int, time.Duration) chan request.Result) {
		send(0, time.Second)
		send(1, time.Second)
		if res := <-send(2, time.Second); !errors.Is(res.Err, request.ErrBusy) {
			t.Errorf("beyond the bytes: %v", res.Err)
		}
	})
}

// A request that certainly did not run fails as unavailable after the patience,
// with the nodes that are not alive, however long its deadline is. A request
// that may have run waits for its deadline and then has an unknown outcome.
func TestRequestFailsSoonWithoutLeader(t *testing.T) {
	play(t, nil, func(s *view, r *Router, send func(int, time.Duration) chan request.Result) {
		s.unheard = []sharding.NodeID{"n2"}
		s.answer["n2"] = func(q *request.Request) request.Result {
			s.change(func() { s.leader = target{} })
			return request.Result{Err: request.ErrOutcomeUnknown}
		}
		s.change(func() { s.leader = target{node: "n2"} })
		synctest.Wait()
		began := time.Now()
		unknown, held := send(0, time.Minute), send(1, time.Minute)
		res := <-held
		if _, ok := errors.AsType[*sharding.NotLeaderError](res.Err); !ok || !strings.Contains(res.Err.Error(), "cannot reach n2") {
			t.Errorf("held: %v", res.Err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took) // virtual time
		}
		if res := <-unknown; !errors.Is(res.Err, request.ErrOutcomeUnknown) {
			t.Errorf("sent before: %v", res.Err)
		}
		if took := time.Since(began); took < time.Minute {
			t.Errorf("what may have run is given up after %v", took)
		}
	})
}

// A node without a replica asks all candidates and reports soon that none of
// them leads. It does not take a slow answer for a rejection.
func TestCandidateRejectionsAreReported(t *testing.T) {
	play(t, func(o *Options) { o.Self = "proxy"; o.Local = nothing{} }, func(s *view, r *Router, send func(int, time.Duration) chan request.Result) {
		s.answer["n2"] = func(q *request.Request) request.Result { return request.Result{Err: request.ErrUnreachable} }
		began := time.Now()
		for i := range 3 {
			res := <-send(i, time.Minute)
			if _, ok := errors.AsType[*sharding.NotLeaderError](res.Err); !ok {
				t.Errorf("%d: %v", i, res.Err)
			}
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it took %v", took) // virtual time
		}
		for _, node := range []string{"n1:0", "n2:0", "n3:0"} {
			if !slices.Contains(s.seen, node) {
				t.Errorf("%s was not asked: %v", node, s.seen)
			}
		}
		s.answer["n1"] = func(q *request.Request) request.Result {
			time.Sleep(10 * time.Second)
			return fine(q)
		}
		s.answer["n2"], s.answer["n3"] = s.answer["n1"], s.answer["n1"]
		first, second := send(3, time.Minute), send(4, time.Minute)
		for _, got := range []chan request.Result{first, second} {
			if res := <-got; res.Err != nil {
				t.Errorf("a slow leader: %v", res.Err)
			}
		}
	})
}

// A node that does not lead names the leader, and the router follows.
func TestRouterFollowsLeaderHints(t *testing.T) {
	play(t, nil, func(s *view, r *Router, send func(int, time.Duration) chan request.Result) {
		s.answer["n2"] = func(q *request.Request) request.Result {
			return request.Result{Err: &sharding.NotLeaderError{Shard: q.Shard, Leader: "n3"}}
		}
		s.answer["n3"] = fine
		s.change(func() { s.leader = target{node: "n2"} })
		for i := range 3 {
			if res := <-send(i, time.Second); res.Err != nil || res.Node != "n3" {
				t.Errorf("%d: %+v", i, res)
			}
		}
		if want := []string{"n2:0", "n3:0", "n3:1", "n3:2"}; !slices.Equal(s.seen, want) {
			t.Errorf("saw %v", s.seen)
		}
	})
}

// A node without a replica sends one request to one candidate after another
// until it finds the leader.
func TestNodeWithoutReplicaProbesCandidates(t *testing.T) {
	play(t, func(o *Options) { o.Self = "proxy"; o.Local = nothing{} }, func(s *view, r *Router, send func(int, time.Duration) chan request.Result) {
		s.answer["n3"] = fine
		first, second := send(0, time.Second), send(1, time.Second)
		for _, got := range []chan request.Result{first, second} {
			if res := <-got; res.Err != nil || res.Node != "n3" {
				t.Errorf("%+v", res)
			}
		}
		for _, seen := range s.seen {
			if seen == "n1:1" || seen == "n2:1" {
				t.Errorf("the second was tried before the first had an answer: %v", s.seen)
			}
		}
	})
}

type nothing struct{}

func (nothing) Submit([]*request.Request) { panic("this node has no replicas") }

// A request with an unknown outcome is sent again under the same id, and the
// final answer holds for all attempts.
func TestUnknownOutcomeIsSentAgain(t *testing.T) {
	for _, c := range []struct {
		name  string
		last  error
		wants error
	}{
		{"succeeds", nil, nil},
		{"is rejected", &request.RejectedError{Code: "no"}, &request.RejectedError{Code: "no"}},
		{"is rejected here and may come through there", &request.RejectedError{Code: "no"}, request.ErrOutcomeUnknown},
		{"is busy", request.ErrBusy, request.ErrOutcomeUnknown},
		{"type is gone", request.ErrUnknownType, request.ErrOutcomeUnknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			play(t, nil, func(s *view, r *Router, send func(int, time.Duration) chan request.Result) {
				attempts := 0
				s.answer["n2"] = func(q *request.Request) request.Result {
					if attempts++; attempts < 3 {
						if attempts == 1 && strings.HasSuffix(c.name, "there") {
							return request.Result{Err: request.ErrMayStillApply}
						}
						return request.Result{Err: request.ErrOutcomeUnknown}
					}
					return request.Result{Err: c.last}
				}
				s.change(func() { s.leader = target{node: "n2"} })
				res := <-send(0, time.Minute)
				var rejected *request.RejectedError
				if attempts != 3 || !errors.Is(res.Err, c.wants) && !(errors.As(c.wants, &rejected) && errors.As(res.Err, &rejected)) {
					t.Errorf("after %d attempts: %v", attempts, res.Err)
				}
				if c.wants == request.ErrOutcomeUnknown && errors.Is(res.Err, c.last) {
					t.Errorf("%v counts as a definite outcome", res.Err)
				}
			})
		})
	}
}

// If an earlier attempt of an operation that leaves a record may have taken
// effect, the outcome stays unknown.
func TestUnknownOutcomesStayUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		kind    request.Kind
		unknown bool
	}{
		"command": {request.Command, true}, "delete": {request.Delete, true}, "skip a timer": {request.SkipTimer, true}, "redeliver": {request.Redeliver, true},
		"query": {request.Query, false}, "passivate": {request.Passivate, false}, "deliver": {request.Deliver, false},
	} {
		q := &request.Request{Kind: c.kind, Result: request.Result{Err: request.ErrOutcomeUnknown}}
		if !comesBack(q) || q.Again != c.unknown {
			t.Errorf("%s: is sent again as another attempt: %v, want %v", name, q.Again, c.unknown)
		}
		if fail(q, request.ErrBusy); errors.Is(q.Result.Err, request.ErrOutcomeUnknown) != c.unknown {
			t.Errorf("%s: ends with %v", name, q.Result.Err)
		}
	}
}

// epochs counts the pauses of a process.
type epochs struct{ atomic.Uint64 }

func (e *epochs) Epoch() uint64 { return e.Load() }

// Held requests, and requests that come back, are not sent after the process
// was paused.
func TestPausedProcessFailsHeldRequests(t *testing.T) {
	var epoch epochs
	play(t, func(o *Options) { o.Pauses = &epoch }, func(s *view, r *Router, send func(int, time.Duration) chan request.Result) {
		attempts := 0
		s.answer["n2"] = func(*request.Request) request.Result {
			if attempts++; attempts == 1 {
				return request.Result{Err: request.ErrOutcomeUnknown}
			}
			return request.Result{}
		}
		held := send(0, time.Minute)
		synctest.Wait()
		epoch.Add(1)
		s.change(func() { s.leader = target{node: "n2"} })
		if res := <-held; !errors.Is(res.Err, request.ErrDeadline) || attempts != 0 {
			t.Errorf("held over a pause: %v after %d attempts", res.Err, attempts)
		}
		s.answer["n2"] = func(*request.Request) request.Result {
			attempts++
			epoch.Add(1)
			return request.Result{Err: request.ErrOutcomeUnknown}
		}
		if res := <-send(1, time.Minute); !errors.Is(res.Err, request.ErrOutcomeUnknown) || attempts != 1 {
			t.Errorf("out during a pause: %v after %d attempts", res.Err, attempts)
		}
		s.answer["n2"] = fine
		if res := <-send(2, time.Minute); res.Err != nil {
			t.Errorf("after the pauses: %v", res.Err)
		}
	})
}

// No request waits for a closed router.
func TestCloseAnswersHeldRequests(t *testing.T) {
	play(t, nil, func(s *view, r *Router, send func(int, time.Duration) chan request.Result) {
		held := send(0, time.Hour)
		if err := r.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		if res := <-held; !errors.Is(res.Err, request.ErrStopped) {
			t.Errorf("held: %v", res.Err)
		}
		if res := <-send(1, time.Hour); !errors.Is(res.Err, request.ErrStopped) {
			t.Errorf("new: %v", res.Err)
		}
	})
}

// shared is a cluster whose leaders do not change: even shards are led here,
// odd ones by two other nodes.
type shared struct{}

func (shared) Leader(shard sharding.ShardID) (sharding.NodeID, bool, bool) {
	if shard%2 == 0 {
		return "n1", true, true
	}
	return sharding.NodeID(fmt.Sprint("n", 2+shard/2%2)), false, true
}
func (shared) Candidates(sharding.ShardID) []sharding.NodeID   { return nil }
func (shared) Missing(sharding.ShardID) sharding.Missing       { return sharding.Missing{} }
func (shared) Quorum(sharding.ShardID) bool                    { return true }
func (shared) StopReason(sharding.ShardID) sharding.StopReason { return 0 }
func (shared) Changed() <-chan struct{}                        { return nil }

// If the requests of one Submit go to several nodes, each arrives once and in
// order, also with several concurrent callers.
func TestSubmitSplitsByNode(t *testing.T) {
	s := &view{answer: map[sharding.NodeID]func(*request.Request) request.Result{}}
	var mu sync.Mutex
	last := map[sharding.EntityID]uint64{}
	for _, id := range []sharding.NodeID{"n1", "n2", "n3"} {
		s.answer[id] = func(q *request.Request) request.Result {
			mu.Lock()
			defer mu.Unlock()
			if q.Tag != last[q.Entity]+1 {
				t.Errorf("%v got number %d after %d", q.Entity, q.Tag, last[q.Entity])
			}
			last[q.Entity] = q.Tag
			if at, _, _ := (shared{}).Leader(q.Shard); at != id {
				t.Errorf("a request of shard %d came to %s", q.Shard, id)
			}
			return request.Result{}
		}
	}
	const shards, callers, rounds, each = 16, 4, 200, 40
	r, err := New(Options{Self: "n1", Shards: shards, Local: node{s, "n1"}, Remote: others{s}, Leaders: shared{}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close(context.Background())
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			done := outcomes{make(chan request.Result, each)}
			for round := range rounds {
				var reqs []*request.Request
				for i := range each {
					reqs = append(reqs, &request.Request{
						Kind: request.Command, Entity: sharding.EntityID{Type: "t", ID: fmt.Sprint("c", c, "e", i)}, Tag: uint64(round + 1), Done: done,
					})
				}
				r.Submit(reqs)
				for range each {
					if res := <-done.got; res.Err != nil || res.Node == "" {
						t.Errorf("%+v", res)
					}
				}
			}
		})
	}
	all.Wait()
	if len(last) != callers*each {
		t.Errorf("%d entities were reached", len(last))
	}
}
