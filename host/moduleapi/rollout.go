package moduleapi

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/modules/trial"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding/meta"
)

// rollouts manages the rollouts of the cluster. Every method first waits until
// this node has applied all earlier decisions.
type rollouts interface {
	Begin(ctx context.Context, b modules.RolloutBegin) (revision uint64, err error)
	State(ctx context.Context, entityType string) (modules.RolloutState, error)
	AwaitServed(ctx context.Context, revision uint64) error
	Change(ctx context.Context, o modules.RolloutOrder) (modules.RolloutState, error)
}

// begin starts a rollout, in which a module serves a part of a type's entities.
func (s *handler) begin(ctx context.Context, r *modulev1.ActivateModuleRequest, digest journal.Digest) (*connect.Response[modulev1.ActivateModuleResponse], error) {
	if s.Rollouts == nil {
		return nil, status.Public(s.Log, request.ErrUnsupported)
	}
	if r.GetLimits() != nil {
		return nil, status.Public(s.Log, status.Argument("limits apply to the whole type and cannot be changed by a rollout: change them before or after"))
	}
	plan, err := planOf(r.GetRollout())
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	out := &modulev1.ActivateModuleResponse{}
	begin := modules.RolloutBegin{EntityType: r.GetEntityType(), Digest: digest, RolloutPlan: plan, By: authorize.Caller(ctx), Approver: s.owners.approver()}
	begin.Check = func(ctx context.Context, entityType string) (string, error) {
		fitted, err := s.checkReplacement(ctx, entityType, digest, r.GetForce(), r.GetAcceptDifferences())
		out.Warnings = append(out.Warnings, fitted.warnings...)
		return fitted.forcedBy, err
	}
	begin.Truncated = modules.Truncated{Prove: s.Compatibility != nil, Accept: r.GetAcceptDifferences(), Force: r.GetForce(), Warn: func(text string) { out.Warnings = append(out.Warnings, text) }}
	if out.Revision, err = s.Rollouts.Begin(ctx, begin); err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(out), nil
}

// GetRollout returns the state of a type's rollout.
func (s *handler) GetRollout(ctx context.Context, r *connect.Request[modulev1.GetRolloutRequest]) (*connect.Response[modulev1.GetRolloutResponse], error) {
	out, err := s.rollout(ctx, r.Msg)
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(out), nil
}

func (s *handler) rollout(ctx context.Context, r *modulev1.GetRolloutRequest) (*modulev1.GetRolloutResponse, error) {
	if s.Rollouts == nil {
		return nil, request.ErrUnsupported
	}
	now, err := s.Rollouts.State(ctx, r.GetEntityType())
	if err != nil {
		return nil, err
	}
	if r.GetServed() && !now.Rollout.IsVerifying() {
		if err := s.Rollouts.AwaitServed(ctx, now.Revision); err != nil {
			return nil, err
		}
	}
	aborted := ""
	if a := now.Aborted; a != nil {
		aborted = fmt.Sprintf("its last rollout was aborted by %s at %s", cmp.Or(a.By, "somebody"), time.Unix(0, a.At).UTC().Format(time.DateTime))
	}
	switch {
	case now.Rollout == nil && now.Shadow == nil && aborted == "":
		return nil, errNone
	case now.Rollout == nil:
		return &modulev1.GetRolloutResponse{Shadow: shadowMessage(now.Shadow), Aborted: aborted}, nil
	}
	out := &modulev1.GetRolloutResponse{Rollout: rolloutMessage(now)}
	out.Shadow = shadowMessage(now.Shadow)
	return out, nil
}

// errNone means that one module serves all entities of the type.
var errNone = status.New(connect.CodeNotFound, "the type has no rollout; 'hostd module activate TYPE DIGEST --percent 5' starts one")

// ChangeRollout promotes, pauses, resumes or aborts a type's rollout.
func (s *handler) ChangeRollout(ctx context.Context, r *connect.Request[modulev1.ChangeRolloutRequest]) (*connect.Response[modulev1.ChangeRolloutResponse], error) {
	out, err := s.changeRollout(ctx, r.Msg)
	if err != nil {
		return nil, status.Public(s.Log, err)
	}
	return connect.NewResponse(out), nil
}

func (s *handler) changeRollout(ctx context.Context, r *modulev1.ChangeRolloutRequest) (*modulev1.ChangeRolloutResponse, error) {
	if s.Rollouts == nil {
		return nil, request.ErrUnsupported
	}
	if r.GetAction() == modulev1.ChangeRolloutRequest_ACTION_UNSPECIFIED {
		return nil, status.Argument("the action is missing")
	}
	now, err := s.Rollouts.Change(ctx, modules.RolloutOrder{EntityType: r.GetEntityType(), Action: r.GetAction(), Force: r.GetForce(), By: authorize.Caller(ctx), Approver: s.owners.approver()})
	if err != nil {
		return nil, err
	}
	out := &modulev1.ChangeRolloutResponse{Revision: now.Revision}
	if now.Rollout != nil {
		out.Rollout = rolloutMessage(now)
	}
	return out, nil
}

// rolloutStates maps the stored states, whose spelling must not change, to the
// states of the API.
var rolloutStates = map[meta.RolloutState]modulev1.Rollout_State{
	meta.RolloutRunning:   modulev1.Rollout_STATE_RUNNING,
	meta.RolloutPaused:    modulev1.Rollout_STATE_PAUSED,
	meta.RolloutAborting:  modulev1.Rollout_STATE_ABORTING,
	meta.RolloutHeld:      modulev1.Rollout_STATE_WRITE_PAUSED,
	meta.RolloutAborted:   modulev1.Rollout_STATE_ABORTED,
	meta.RolloutVerifying: modulev1.Rollout_STATE_VERIFYING,
	meta.RolloutRefused:   modulev1.Rollout_STATE_REJECTED,
}

func rolloutMessage(s modules.RolloutState) *modulev1.Rollout {
	out := &modulev1.Rollout{
		EntityType: s.EntityType, Digest: s.Digest.String(), OlderDigest: s.Older.String(), Revision: s.Revision,
		State: rolloutStates[s.Rollout.State],
		Share: s.Share, Prefix: s.Prefix, RemainingEntityIds: s.Stay, EntityTypes: s.Types, RequestedBy: s.By, Note: s.Note, Steps: s.Steps, Rules: s.Rules,
	}
	if c := s.Counts; c != nil {
		out.Newer, out.Older, out.MissingNodeCount = counts(&c.Newer), counts(&c.Older), uint32(c.MissingNodes)
	}
	if s.Pause > 0 {
		out.Pause = durationpb.New(time.Duration(s.Pause))
	}
	if s.DueAt > 0 {
		out.DueAt = timestamppb.New(time.Unix(0, s.DueAt))
	}
	return out
}

// shadowMessage returns nil if s is nil.
func shadowMessage(s *modules.ShadowReport) *modulev1.Shadow {
	if s == nil {
		return nil
	}
	out := &modulev1.Shadow{
		Digest: s.Digest.String(), Share: s.Share, Compared: s.Compared, Differing: s.Differ, Dropped: s.Dropped, Skipped: s.Passed,
		Fuel: s.Fuel, ShadowFuel: s.Other, MissingNodeCount: uint32(s.MissingNodes), Note: s.Note,
	}
	for i, n := range s.By {
		if n > 0 {
			out.Differences = append(out.Differences, &modulev1.ShadowDifference{Kind: trial.Kind(i).Names()[0], Commands: n})
		}
	}
	for _, e := range s.Examples {
		out.Examples = append(out.Examples, &modulev1.ShadowExample{EntityId: e.Entity.ID, Sequence: uint64(e.Sequence), Command: e.Command, Kinds: e.In.Names(), Fault: e.Fault})
	}
	return out
}

func counts(c *trial.Counts) *modulev1.VersionCounts {
	return &modulev1.VersionCounts{Commands: c.Commands, Rejections: c.Rejections, Faults: c.Faults, P99: durationpb.New(c.P99())}
}

// minPause and maxPause limit the pause between two steps.
const (
	minPause = time.Second
	maxPause = 30 * 24 * time.Hour
)

// planOf validates and converts the plan of a request.
func planOf(p *modulev1.RolloutPlan) (modules.RolloutPlan, error) {
	out := modules.RolloutPlan{Part: meta.Part{Share: p.GetShare(), Prefix: p.GetPrefix()}, Steps: p.GetSteps(), Pause: p.GetPause().AsDuration(), Rules: p.GetRules()}
	if _, err := trial.ParseRules(out.Rules); err != nil {
		return out, status.Argument(err.Error())
	}
	if out.Part == (meta.Part{}) {
		return out, status.Argument("the rollout has no entities: set a share or a prefix")
	}
	for i, share := range out.Steps {
		if before := append([]uint32{out.Share}, out.Steps...)[i]; share <= before {
			return out, status.Argument("the steps must be increasing")
		}
	}
	switch {
	case len(out.Steps) == 0 && p.GetPause() != nil:
		return out, status.Argument("a pause needs steps")
	case len(out.Steps) > 0 && (!p.GetPause().IsValid() || out.Pause < minPause || out.Pause > maxPause):
		return out, status.Argument(fmt.Sprintf("the pause between two steps must be between %v and %v", minPause, maxPause))
	}
	return out, nil
}
