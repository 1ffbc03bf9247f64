package modules

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/signing"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// verifyingWorld is a node that leads the metadata of a cluster in which module
// 2 is verified for the type "a", which module 1 serves.
type verifyingWorld struct {
	*failing
	t     *testing.T
	v     *verifications
	looks []CompatibilityQuery
	// find returns the result of a comparison.
	find func(ctx context.Context, q CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error)
}

// compiled is a preparer of modules that all nodes have.
type compiled struct{}

func (compiled) PrepareToRun(context.Context, journal.Digest) error { return nil }

func newVerifyingWorld(t *testing.T, change func(*meta.Rollout)) *verifyingWorld {
	f, h := newFailing(t)
	f.w.do(meta.PutModule(meta.Module{Digest: meta.Digest{2}, Size: 1, Name: "m", Version: "2", EntityTypes: []string{"a"}, UploadedAt: 2}))
	w := &verifyingWorld{failing: f, t: t, find: func(context.Context, CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error) {
		return found(3), nil
	}}
	h.shards = shardsFunc(func(ctx context.Context, q CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error) {
		w.looks = append(w.looks, q)
		return w.find(ctx, q)
	})
	w.begin(change)
	w.v = w.verifications(h.Service)
	return w
}

// begin begins the verification of module 2.
func (w *verifyingWorld) begin(change func(*meta.Rollout)) {
	next := &meta.Rollout{Digest: meta.Digest{2}, State: meta.RolloutVerifying, Types: []string{"a"}, By: "token:ann"}
	change(next)
	w.w.do(meta.PutRollouts("", 3, meta.PutRollout{EntityType: "a", Over: w.binding().Revision, Rollout: next}))
}

// verifications returns the verifications of a node that has just begun to
// lead.
func (w *verifyingWorld) verifications(s *Service) *verifications {
	return &verifications{Service: s, rollouts: &Rollouts{Service: s, now: time.Now}, nodes: compiled{}, now: time.Now, late: map[string]retry{}, tries: map[string]int{}}
}

// pass asserts that a pass ends by itself.
func (w *verifyingWorld) pass(v *verifications) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), 24*time.Hour)
	defer cancel()
	if v.pass(ctx); ctx.Err() != nil {
		w.t.Fatal("it does not end")
	}
}

func (w *verifyingWorld) binding() meta.Activation {
	b, _ := w.w.state.View().Activation("a")
	return b
}

// served asserts which module serves, that the type is not write-paused, and
// the state of the rollout.
func (w *verifyingWorld) served(module byte, state meta.RolloutState) {
	w.t.Helper()
	b := w.binding()
	var now meta.RolloutState
	if b.Rollout != nil {
		now = b.Rollout.State
	}
	if b.Digest != (meta.Digest{module}) || now != state || b.PausedSince != 0 {
		w.t.Fatalf("want module %d, %q: %+v %+v", module, state, b, b.Rollout)
	}
}

func unchanged(*meta.Rollout) {}

func found(entities uint64) *modulev1.CheckCompatibilityResponse {
	return &modulev1.CheckCompatibilityResponse{Entities: entities, SnapshotDigests: []string{meta.Digest{1}.String()}}
}

func differing(message string) *modulev1.CheckCompatibilityResponse {
	out := found(3)
	out.DifferingEntities, out.Differences = 1, []*modulev1.CheckCompatibilityResponse_Fault{{EntityId: "e", Sequence: 7, Message: message}}
	return out
}

// TestActivationIsVerifiedThenWritePaused checks that all entities are first
// compared at a limited rate. Then the type is write-paused, and once its logs
// have the revision of the pause, the entities written meanwhile are compared.
// Then the module serves, and loads the snapshots that were compared.
func TestActivationIsVerifiedThenWritePaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVerifyingWorld(t, func(r *meta.Rollout) { r.Accept = true })
		w.find = func(_ context.Context, q CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error) {
			b := w.binding()
			if q.MinRevision != b.PausedSince || q.Paced != (b.PausedSince == 0) || !q.AcceptDifferences || b.Digest != (meta.Digest{1}) {
				t.Errorf("%+v while %+v", q, b)
			}
			return found(3), nil
		}
		w.pass(w.v)
		w.served(2, "")
		if n := len(w.looks); n != 2 || w.looks[0].MinRevision != 0 || w.looks[1].MinRevision == 0 {
			t.Errorf("%+v", w.looks)
		}
		b := w.binding()
		if log := b.ChangeLog(); log[len(log)-1].Kind != meta.ChangeActivate || log[len(log)-1].By != "token:ann" || !slices.Equal(b.TruncatedModules(), []meta.Digest{{1}}) {
			t.Errorf("%+v", b)
		}
	})
}

// TestLongComparisonsAreRepeated checks that writes during a long comparison
// are compared again before commands must wait, as long as each pass is shorter
// than the previous one.
func TestLongComparisonsAreRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVerifyingWorld(t, unchanged)
		takes := time.Hour
		w.find = func(_ context.Context, q CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error) {
			if q.MinRevision == 0 {
				time.Sleep(takes)
				takes /= 16
			}
			return found(3), nil
		}
		w.pass(w.v)
		w.served(2, "")
		if n := len(w.looks); n != 5 { // passes of an hour, 225 s, 14 s and less than a second, and the last one under the write pause
			t.Errorf("%d looks", n)
		}
	})
}

// TestIncompatibleModuleIsRejected checks that whichever comparison fails, the
// previous module continues to serve, the type is not write-paused, and the
// rollout contains the reason.
func TestIncompatibleModuleIsRejected(t *testing.T) {
	for _, held := range []bool{false, true} {
		for _, forced := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				w := newVerifyingWorld(t, func(r *meta.Rollout) { r.Force = forced })
				w.find = func(_ context.Context, q CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error) {
					if (q.MinRevision > 0) == held {
						return differing("it lacks\nsomething" + strings.Repeat(" of it", 400)), nil
					}
					return found(3), nil
				}
				w.pass(w.v)
				if forced {
					w.served(2, "")
					if b := w.binding(); b.ForcedBy != "token:ann" || len(b.TruncatedModules()) > 0 {
						t.Errorf("%+v", b)
					}
					return
				}
				w.served(1, meta.RolloutRefused)
				if note := w.binding().Rollout.Note; !strings.Contains(note, "e at event 7: it lacks something") {
					t.Errorf("%q", note)
				}
				looks := len(w.looks)
				w.pass(w.v)
				if len(w.looks) != looks {
					t.Error("it is looked at again")
				}
			})
		}
	}
}

// TestVerificationRestartsOnNewLeader checks that a node that stops leading
// the metadata ends its comparison and changes nothing, and that the next
// leader makes its own comparison.
func TestVerificationRestartsOnNewLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVerifyingWorld(t, unchanged)
		w.find = func(ctx context.Context, _ CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error) {
			w.m.LeaderChanged(w.term, 0, false)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		w.pass(w.v)
		w.served(1, meta.RolloutVerifying)
		w.pass(w.v) // run would not call this, because the node does not lead
		w.served(1, meta.RolloutVerifying)

		w.elect()
		w.find = func(context.Context, CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error) {
			return found(3), nil
		}
		w.looks = nil
		w.pass(w.verifications(w.v.Service))
		w.served(2, "")
		if len(w.looks) != 2 {
			t.Errorf("%+v", w.looks)
		}
	})
}

// TestAbortEndsVerification checks that an abort ends the running comparison,
// and that the module is not activated.
func TestAbortEndsVerification(t *testing.T) {
	for _, held := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newVerifyingWorld(t, unchanged)
			w.find = func(ctx context.Context, q CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error) {
				if (q.MinRevision > 0) != held {
					return found(3), nil
				}
				if _, err := w.m.Do(t.Context(), meta.PutRollouts(meta.ChangeAbort, 9, meta.PutRollout{EntityType: "a", Over: w.binding().Revision})); err != nil {
					t.Fatal(err)
				}
				if !held {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return found(3), nil
			}
			w.pass(w.v)
			w.served(1, "")
			w.pass(w.v)
			w.served(1, "")
			if len(w.v.late) > 0 || len(w.v.tries) > 0 {
				t.Errorf("it remembers %+v, %+v", w.v.late, w.v.tries)
			}
		})
	}
}

// TestFailedComparisonsAreRetriedLater checks that failed comparisons leave the
// module verifying, and that comparisons for which commands wait are few and
// far apart.
func TestFailedComparisonsAreRetriedLater(t *testing.T) {
	for _, held := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newVerifyingWorld(t, unchanged)
			failed := 0
			w.find = func(_ context.Context, q CompatibilityQuery) (*modulev1.CheckCompatibilityResponse, error) {
				if (q.MinRevision > 0) != held {
					return found(3), nil
				}
				failed++
				return nil, errors.New("a shard cannot be looked at")
			}
			for try := 1; try < pausedTries; try++ {
				w.pass(w.v)
				w.served(1, meta.RolloutVerifying)
				w.pass(w.v) // too early for the next attempt
				if late := time.Until(w.v.late["a"].at); failed != try || held && late < pausedRetry || late <= 0 || late > maxRetry {
					t.Fatalf("%d looks, the next one in %v", failed, late)
				}
				time.Sleep(maxRetry)
			}
			w.pass(w.v)
			if !held {
				w.served(1, meta.RolloutVerifying)
				return
			}
			w.served(1, meta.RolloutRefused)
			if note := w.binding().Rollout.Note; !strings.Contains(note, "while writes were paused, in 5 attempts") {
				t.Errorf("%q", note)
			}
		})
	}
}

// TestCallsDuringVerification checks that a repeated call changes nothing, and
// that any other call is rejected with the name of the module being verified.
func TestCallsDuringVerification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVerifyingWorld(t, func(r *meta.Rollout) { r.Limits = &meta.Limits{MaxEvents: 3} })
		same := Activation{EntityType: "a", Digest: journal.Digest{2}, Limits: &Limits{MaxEvents: 3}, Truncated: Truncated{Prove: true, Later: true}}
		now, kept, err := w.v.verify(t.Context(), w.m.View(), w.binding(), nil, same)
		if err != nil || !kept || !now.Verifying || now.Revision != w.binding().Revision {
			t.Errorf("%+v, %v, %v", now, kept, err)
		}
		for name, change := range map[string]func(*Activation){
			"module":      func(a *Activation) { a.Digest = journal.Digest{3} },
			"limits":      func(a *Activation) { a.Limits = &Limits{MaxEvents: 4} },
			"no limits":   func(a *Activation) { a.Limits = nil },
			"force":       func(a *Activation) { a.Force = true },
			"differences": func(a *Activation) { a.Accept = true },
			"at once":     func(a *Activation) { a.Later = false },
		} {
			other := same
			change(&other)
			if _, _, err := w.v.verify(t.Context(), w.m.View(), w.binding(), nil, other); err == nil || !strings.Contains(err.Error(), "module 020000000000 is being verified for a") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestRolloutStateWaitsForModulesOfThisNode checks that a node that has applied
// an activation answers only once it serves the module itself. Otherwise a
// caller that then asks which module serves would conclude that the activation
// was aborted.
func TestRolloutStateWaitsForModulesOfThisNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The node does not trust the module, so it has nothing to load.
		w := newSignedWorld(t, signing.Require)
		r := &Rollouts{Service: &Service{types: w.types, modules: w.types.modules}}
		b, _ := w.state.View().Activation("a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.AwaitServed(ctx, b.Revision); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it answers although this node has not loaded its modules: %v", err)
		}
		served := make(chan error, 1)
		go func() { served <- r.AwaitServed(t.Context(), b.Revision) }()
		synctest.Wait()
		if err := w.types.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
