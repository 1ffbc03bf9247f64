package edge_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/replay"
	"github.com/hostd/hostd/host/services"
	"github.com/hostd/hostd/sharding/access"
)

// looks records the types on whose entities a module was run, and returns
// results that contain their state.
type looks struct {
	mu    sync.Mutex
	types []string
}

func (l *looks) look(entityType string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.types = append(l.types, entityType)
}

func (l *looks) seen() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.types)
}

func (l *looks) CheckCompatibility(_ context.Context, q modules.CompatibilityQuery) (modules.Compatibility, error) {
	if q.PresenceOnly {
		return modules.Compatibility{Complete: true, Present: true}, nil
	}
	l.look(q.EntityType)
	return modules.Compatibility{Complete: true, Entities: 1, FaultyEntities: 1, Faults: []modules.ReplayFault{{EntityID: "e", Message: "the guest wrote: balance 12"}}}, nil
}

func (l *looks) Verify(_ context.Context, r replay.VerifyRequest, tell func(replay.Verified) error) error {
	l.look(r.EntityType)
	return tell(replay.Verified{EntityID: "e", Events: 1, Difference: "balance 12"})
}

// Begin implements rollout.Rollouts. It only calls Check.
func (l *looks) Begin(ctx context.Context, b modules.RolloutBegin) (uint64, error) {
	_, err := b.Check(ctx, b.EntityType)
	return 1, err
}

func (*looks) AwaitServed(context.Context, uint64) error { return nil }
func (*looks) State(context.Context, string) (modules.RolloutState, error) {
	return modules.RolloutState{}, nil
}
func (*looks) Change(context.Context, modules.RolloutOrder) (modules.RolloutState, error) {
	return modules.RolloutState{}, nil
}

// TestModulesOfOthersAreNotRunOnAType: a caller that does not own a type
// cannot have its module run on the type's entities, even if the operation
// would be rejected afterwards. The operations are verifications,
// comparisons, activations and rollouts.
func TestModulesOfOthersAreNotRunOnAType(t *testing.T) {
	var ran looks
	g := guardWith(t, edge.Options{Admin: true}, func(d *services.Options) {
		d.Module.Compatibility, d.Module.Verifications, d.Module.Rollouts = &ran, &ran, &ran
	}, "root", "ann", "bo")
	g.begin(t)
	for _, name := range []string{"ann", "bo"} {
		g.bind(t, "token:"+name, "deployer")
	}
	as := func(name string) modulev1connect.ModuleServiceClient {
		return modulev1connect.NewModuleServiceClient(g.as(name), g.url)
	}
	if _, err := as("ann").UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: []byte("\x00asm-one"), Activate: true})); err != nil {
		t.Fatal(err)
	}
	up, err := as("bo").UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: []byte("\x00asm-two")}))
	if err != nil {
		t.Fatal(err)
	}
	digest := up.Msg.GetDigest()
	for _, c := range []struct {
		what    string
		attempt func(name string) error
	}{
		{"verify", func(name string) error {
			stream, err := as(name).VerifyModule(t.Context(), connect.NewRequest(&modulev1.VerifyModuleRequest{EntityType: "uploaded", Digest: digest, Scope: &modulev1.VerifyModuleRequest_All{All: true}}))
			if err != nil {
				return err
			}
			defer stream.Close()
			for stream.Receive() {
			}
			return stream.Err()
		}},
		{"compare", func(name string) error {
			_, err := as(name).CheckCompatibility(t.Context(), connect.NewRequest(&modulev1.CheckCompatibilityRequest{EntityType: "uploaded", Digest: digest}))
			return err
		}},
		{"activate", func(name string) error {
			_, err := as(name).ActivateModule(t.Context(), connect.NewRequest(&modulev1.ActivateModuleRequest{EntityType: "uploaded", Digest: digest}))
			return err
		}},
		{"begin a rollout", func(name string) error {
			_, err := as(name).ActivateModule(t.Context(), connect.NewRequest(&modulev1.ActivateModuleRequest{EntityType: "uploaded", Digest: digest, Rollout: &modulev1.RolloutPlan{Share: 1}}))
			return err
		}},
		{"force", func(name string) error {
			_, err := as(name).ActivateModule(t.Context(), connect.NewRequest(&modulev1.ActivateModuleRequest{EntityType: "uploaded", Digest: digest, Force: true, Limits: &modulev1.Limits{MaxEvents: 1}}))
			return err
		}},
	} {
		before := len(ran.seen())
		err := c.attempt("bo")
		info, ok := errorInfo(err)
		if !ok || info.GetReason() != "NOT_OWNER" || strings.Contains(err.Error(), "balance") {
			t.Errorf("bo would %s a type of ann's, and is told %v", c.what, err)
		}
		if now := ran.seen(); len(now) != before {
			t.Errorf("bo would %s a type of ann's, and the module was run on %v", c.what, now[before:])
		}
		before = len(ran.seen())
		_ = c.attempt("ann")
		if len(ran.seen()) == before {
			t.Errorf("ann would %s her type, and the module was not run", c.what)
		}
	}
	res, err := g.clusterAs("bo").CheckAccess(t.Context(), connect.NewRequest(&clusterv1.CheckAccessRequest{Verb: "deploy", EntityType: "uploaded"}))
	if err != nil || res.Msg.GetAllowed() {
		t.Errorf("bo asks whether it may: %v, %v", res, err)
	}
}

// TestShadowsNeedDeploy: a setting that lets a second module decide commands of
// a type requires the verb deploy in addition to the verb for settings. Deleting
// the setting does not.
func TestShadowsNeedDeploy(t *testing.T) {
	g := guard(t, edge.Options{Admin: true}, "root", "op", "both")
	g.begin(t)
	g.bind(t, "token:op", "operator")
	g.bind(t, "token:both", "operator", "deployer")
	put := func(name, key, value string) error {
		_, err := g.clusterAs(name).PutSetting(t.Context(), connect.NewRequest(&clusterv1.PutSettingRequest{Key: key, Value: value}))
		return err
	}
	shadow, by := "entity.counter.shadow", strings.Repeat("ab", 32)+" 100%"
	wantDenied(t, "a shadow by who has settings", put("op", shadow, by), true)
	wantDenied(t, "a value by who has settings", put("op", "entity.counter.value.shadow", by), false)
	wantDenied(t, "a shadow by who has both", put("both", shadow, by), false)
	wantDenied(t, "the end of one by who has settings", put("op", shadow, ""), false)
}

// TestModulesWithTypesOfOthersAreNotRun: a caller that may deploy only one of a
// module's types cannot run the module on entities of that type. A
// verification, a comparison and a shadow would run the module, and the caller
// may not activate the module either.
func TestModulesWithTypesOfOthersAreNotRun(t *testing.T) {
	var ran looks
	g := guardWith(t, edge.Options{Admin: true}, func(d *services.Options) {
		d.Module.Compatibility, d.Module.Verifications, d.Module.Rollouts = &ran, &ran, &ran
	}, "root", "ann")
	g.begin(t)
	deploys := func(types ...string) {
		g.role(t, "deploys", access.Rule{Effect: access.Allow, Verbs: []string{access.Deploy, access.Settings}, Types: types})
	}
	deploys("uploaded")
	g.bind(t, "token:ann", "deploys")
	ann, root := modulev1connect.NewModuleServiceClient(g.as("ann"), g.url), modulev1connect.NewModuleServiceClient(g.as("root"), g.url)
	if _, err := ann.UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: []byte("\x00asm-one"), Activate: true})); err != nil {
		t.Fatal(err)
	}
	up, err := root.UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: []byte("\x00asm-two second")}))
	if err != nil {
		t.Fatal(err)
	}
	digest := up.Msg.GetDigest()
	attempts := map[string]func() error{
		"verify": func() error {
			stream, err := ann.VerifyModule(t.Context(), connect.NewRequest(&modulev1.VerifyModuleRequest{EntityType: "uploaded", Digest: digest, Scope: &modulev1.VerifyModuleRequest_All{All: true}}))
			if err != nil {
				return err
			}
			defer stream.Close()
			for stream.Receive() {
			}
			return stream.Err()
		},
		"compare": func() error {
			_, err := ann.CheckCompatibility(t.Context(), connect.NewRequest(&modulev1.CheckCompatibilityRequest{EntityType: "uploaded", Digest: digest}))
			return err
		},
		"shadow": func() error {
			_, err := g.clusterAs("ann").PutSetting(t.Context(), connect.NewRequest(&clusterv1.PutSettingRequest{Key: "entity.uploaded.shadow", Value: digest + " 10%"}))
			return err
		},
	}
	for what, attempt := range attempts {
		err := attempt()
		if info, ok := errorInfo(err); !ok || info.GetReason() != "ROLE_REQUIRED" || info.GetMetadata()["type"] != "second" {
			t.Errorf("%s: it is told %v", what, err)
		}
	}
	if now := ran.seen(); len(now) != 0 {
		t.Errorf("the module was run on %v", now)
	}
	deploys("uploaded", "second")
	for what, attempt := range attempts {
		wantDenied(t, what+" by who may deploy both", attempt(), false)
	}
}

// TestSignatureReplacementNeedsDeploy: only a caller that may deploy the module's
// types can replace its signature, because the signature decides on which nodes
// the module is served.
func TestSignatureReplacementNeedsDeploy(t *testing.T) {
	g := guard(t, edge.Options{Admin: true}, "root", "ann", "bo")
	g.begin(t)
	g.role(t, "deploys", access.Rule{Effect: access.Allow, Verbs: []string{access.Deploy}, Types: []string{"bo-*"}})
	g.bind(t, "token:ann", "deployer")
	g.bind(t, "token:bo", "deploys")
	push := func(name, signature string) error {
		_, err := modulev1connect.NewModuleServiceClient(g.as(name), g.url).UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: []byte("\x00asm-one"), Signature: []byte(signature)}))
		return err
	}
	wantDenied(t, "ann uploads", push("ann", "hers"), false)
	wantDenied(t, "bo uploads the same without a signature", push("bo", ""), false)
	wantDenied(t, "bo signs it", push("bo", "his"), true)
	wantDenied(t, "ann signs it again", push("ann", "new"), false)
}
