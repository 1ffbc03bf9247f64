package moduleapi_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"connectrpc.com/connect"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/moduleapi"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/sharding/meta"
)

// rollouts is a fake Rollouts with one fixed state.
type rollouts struct{ now modules.RolloutState }

func (r rollouts) Begin(context.Context, modules.RolloutBegin) (uint64, error) { return 0, nil }
func (r rollouts) State(context.Context, string) (modules.RolloutState, error) { return r.now, nil }
func (r rollouts) AwaitServed(context.Context, uint64) error                   { return nil }
func (r rollouts) Change(context.Context, modules.RolloutOrder) (modules.RolloutState, error) {
	return r.now, nil
}

// TestAbortIsReported checks that the response reports an abort, with and without
// a shadow.
func TestAbortIsReported(t *testing.T) {
	const want = "aborted by the rule faults>1% at 1970-01-01 00:00:05"
	get := func(now modules.RolloutState) (*modulev1.GetRolloutResponse, error) {
		h := moduleapi.NewHandler(moduleapi.Options{Rollouts: rollouts{now}, Log: slog.New(slog.DiscardHandler)})
		res, err := h.GetRollout(t.Context(), connect.NewRequest(&modulev1.GetRolloutRequest{EntityType: "order"}))
		if err != nil {
			return nil, err
		}
		return res.Msg, nil
	}
	aborted := &meta.ActivationChange{Kind: meta.ChangeAbort, By: "the rule faults>1%", At: 5e9}
	got, err := get(modules.RolloutState{EntityType: "order", Aborted: aborted})
	if err != nil || !strings.Contains(got.GetAborted(), want) || got.GetShadow() != nil || got.GetRollout() != nil {
		t.Errorf("without a shadow: %v, %v", got, err)
	}
	if _, err := get(modules.RolloutState{EntityType: "order"}); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("where there is nothing: %v", err)
	}
	got, err = get(modules.RolloutState{EntityType: "order", Aborted: aborted, Shadow: &modules.ShadowReport{}})
	if err != nil || !strings.Contains(got.GetAborted(), want) || got.GetShadow() == nil || got.GetRollout() != nil {
		t.Errorf("beside a shadow: %v, %v", got, err)
	}
	if got, err := get(modules.RolloutState{EntityType: "order", Shadow: &modules.ShadowReport{}}); err != nil || got.GetAborted() != "" {
		t.Errorf("where nothing was aborted: %v, %v", got, err)
	}
}

// TestStoredAndAPIRolloutStatesMatch checks that the stored states and the
// states of the API correspond to each other.
func TestStoredAndAPIRolloutStatesMatch(t *testing.T) {
	named := map[modulev1.Rollout_State]bool{modulev1.Rollout_STATE_UNSPECIFIED: true}
	for _, state := range []meta.RolloutState{
		meta.RolloutRunning, meta.RolloutPaused, meta.RolloutAborting, meta.RolloutHeld, meta.RolloutAborted, meta.RolloutVerifying, meta.RolloutRefused,
	} {
		h := moduleapi.NewHandler(moduleapi.Options{Log: slog.New(slog.DiscardHandler), Rollouts: rollouts{
			modules.RolloutState{EntityType: "order", Rollout: &meta.Rollout{State: state}},
		}})
		res, err := h.GetRollout(t.Context(), connect.NewRequest(&modulev1.GetRolloutRequest{EntityType: "order"}))
		if err != nil {
			t.Fatal(err)
		}
		if got := res.Msg.GetRollout().GetState(); named[got] {
			t.Errorf("%s is %v, as is another state or none", state, got)
		} else {
			named[got] = true
		}
	}
	if len(named) != len(modulev1.Rollout_State_name) {
		t.Errorf("%d of %d states have a stored state", len(named), len(modulev1.Rollout_State_name))
	}
}
