package edge_test

import (
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/sharding/access"
)

// A type belongs to the caller that first activated a module for it. Other
// callers may not change its module, its settings or its owner, except callers
// that may admin the type.
func TestTypeBelongsToItsFirstActivator(t *testing.T) {
	g := guard(t, edge.Options{Admin: true}, "root", "ann", "bo")
	g.begin(t)
	for _, name := range []string{"ann", "bo"} {
		g.bind(t, "token:"+name, "deployer", "operator")
	}
	as := func(name string) modulev1connect.ModuleServiceClient {
		return modulev1connect.NewModuleServiceClient(g.as(name), g.url)
	}
	wasm := []byte("\x00asm-one")
	first, err := as("ann").UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: wasm, Activate: true}))
	if err != nil {
		t.Fatal(err)
	}
	digest := first.Msg.GetDigest()
	attempts := map[string]func(name string) error{
		"upload": func(name string) error {
			_, err := as(name).UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: wasm, Activate: true}))
			return err
		},
		"activate": func(name string) error {
			_, err := as(name).ActivateModule(t.Context(), connect.NewRequest(&modulev1.ActivateModuleRequest{EntityType: "uploaded", Digest: digest}))
			return err
		},
		"limit": func(name string) error {
			_, err := as(name).ActivateModule(t.Context(), connect.NewRequest(&modulev1.ActivateModuleRequest{EntityType: "uploaded", Digest: digest, Limits: &modulev1.Limits{MaxEvents: 1}}))
			return err
		},
		"roll back": func(name string) error {
			_, err := as(name).RollbackModule(t.Context(), connect.NewRequest(&modulev1.RollbackModuleRequest{EntityType: "uploaded"}))
			return err
		},
		"suspend": func(name string) error {
			_, err := g.clusterAs(name).PutSetting(t.Context(), connect.NewRequest(&clusterv1.PutSettingRequest{Key: "entity.uploaded.suspended", Value: "true"}))
			return err
		},
		"own": func(name string) error {
			_, err := as(name).SetOwner(t.Context(), connect.NewRequest(&modulev1.SetOwnerRequest{EntityType: "uploaded", Owner: "token:ann"}))
			return err
		},
	}
	may := func(name string) (allowed bool, why string) {
		res, err := g.clusterAs(name).CheckAccess(t.Context(), connect.NewRequest(&clusterv1.CheckAccessRequest{Verb: "deploy", EntityType: "uploaded"}))
		if err != nil {
			t.Fatal(err)
		}
		return res.Msg.GetAllowed(), res.Msg.GetReason()
	}
	for what, attempt := range attempts {
		for name, denied := range map[string]bool{"ann": false, "root": false, "bo": true} {
			err := attempt(name)
			wantDenied(t, name+" would "+what, err, denied)
			if info, ok := errorInfo(err); denied && (!ok || info.GetReason() != "NOT_OWNER" || info.GetMetadata()["type"] != "uploaded" || strings.Contains(err.Error(), "ann")) {
				t.Errorf("%s would %s, and is told %v", name, what, err)
			}
			if allowed, why := may(name); allowed == denied {
				t.Errorf("%s asks whether it may: %v, %s", name, allowed, why)
			}
		}
	}
	wantDenied(t, "a setting of another type", func() error {
		_, err := g.clusterAs("bo").PutSetting(t.Context(), connect.NewRequest(&clusterv1.PutSettingRequest{Key: "entity.counter.suspended", Value: "true"}))
		return err
	}(), false)
	if _, err := as("ann").SetOwner(t.Context(), connect.NewRequest(&modulev1.SetOwnerRequest{EntityType: "uploaded", Owner: "anonymous"})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("the anonymous as owner: %v", err)
	}
	give := func(name string) error {
		_, err := as(name).SetOwner(t.Context(), connect.NewRequest(&modulev1.SetOwnerRequest{EntityType: "uploaded", Owner: "token:bo"}))
		return err
	}
	wantDenied(t, "ann would put a type among those of bo", give("ann"), true)
	if err := give("root"); err != nil {
		t.Fatal(err)
	}
	wantDenied(t, "what was given away", attempts["activate"]("ann"), true)
	wantDenied(t, "what was given to bo", attempts["activate"]("bo"), false)
	list, err := as("ann").GetModule(t.Context(), connect.NewRequest(&modulev1.GetModuleRequest{By: &modulev1.GetModuleRequest_EntityType{EntityType: "uploaded"}}))
	if err != nil || len(list.Msg.GetModule().GetActivations()) != 1 || list.Msg.GetModule().GetActivations()[0].GetOwner() != "token:bo" {
		t.Errorf("the owner is not shown: %v, %v", list, err)
	}
}

func errorInfo(err error) (*errdetails.ErrorInfo, bool) {
	var e *connect.Error
	if !errors.As(err, &e) {
		return nil, false
	}
	for _, d := range e.Details() {
		if value, err := d.Value(); err == nil {
			if info, ok := value.(*errdetails.ErrorInfo); ok {
				return info, true
			}
		}
	}
	return nil, false
}

// A caller that may deploy only one of a module's types cannot activate the
// module for any type, regardless of who owns it.
func TestActivationNeedsAllTypes(t *testing.T) {
	g := guard(t, edge.Options{}, "root", "ann")
	g.begin(t)
	deploys := func(types ...string) {
		g.role(t, "deploys", access.Rule{Effect: access.Allow, Verbs: []string{access.Deploy}, Types: types})
	}
	deploys("uploaded")
	g.bind(t, "token:ann", "deploys")
	ann := modulev1connect.NewModuleServiceClient(g.as("ann"), g.url)
	up, err := ann.UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: []byte("\x00asm-two second")}))
	if err != nil {
		t.Fatal(err)
	}
	activate := func() error {
		_, err := ann.ActivateModule(t.Context(), connect.NewRequest(&modulev1.ActivateModuleRequest{EntityType: "uploaded", Digest: up.Msg.GetDigest()}))
		return err
	}
	back := func() error {
		_, err := ann.RollbackModule(t.Context(), connect.NewRequest(&modulev1.RollbackModuleRequest{EntityType: "uploaded"}))
		return err
	}
	wantDenied(t, "activate", activate(), true)
	deploys("uploaded", "second")
	wantDenied(t, "activate", activate(), false)
	wantDenied(t, "roll back", back(), false)
	deploys("uploaded")
	err = back()
	wantDenied(t, "roll back", err, true)
	if info, ok := errorInfo(err); !ok || info.GetReason() != "ROLE_REQUIRED" || info.GetMetadata()["type"] != "second" {
		t.Errorf("it is told %v", err)
	}
}

// An upload that activates a module activates no type unless its caller may
// activate all types of the module.
func TestUploadsActivateAllTypesOrNone(t *testing.T) {
	g := guard(t, edge.Options{}, "root", "ann", "bo")
	g.begin(t)
	g.bind(t, "token:ann", "deployer")
	g.bind(t, "token:bo", "deployer")
	as := func(name string) modulev1connect.ModuleServiceClient {
		return modulev1connect.NewModuleServiceClient(g.as(name), g.url)
	}
	push := func(name, wasm string) (string, error) {
		up, err := as(name).UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: []byte(wasm), Activate: true}))
		if err != nil {
			return "", err
		}
		return up.Msg.GetDigest(), nil
	}
	first, err := push("bo", "\x00asm-one second")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := as("root").SetOwner(t.Context(), connect.NewRequest(&modulev1.SetOwnerRequest{EntityType: "uploaded", Owner: "token:ann"})); err != nil {
		t.Fatal(err)
	}
	_, err = push("ann", "\x00asm-two second")
	wantDenied(t, "a module with a type of another", err, true)
	serves, err := as("ann").GetModule(t.Context(), connect.NewRequest(&modulev1.GetModuleRequest{By: &modulev1.GetModuleRequest_EntityType{EntityType: "uploaded"}}))
	if err != nil || serves.Msg.GetModule().GetDigest() != first {
		t.Errorf("what was refused serves: %v, %v", serves, err)
	}
	if _, err := push("ann", "\x00asm-three"); err != nil {
		t.Error(err)
	}
}

// A rule about a type also applies to calls that name the type by a module's
// digest or by the key of a setting, and settings can be granted for some types
// only.
func TestRulesApplyToIndirectlyNamedTypes(t *testing.T) {
	g := guard(t, edge.Options{Admin: true}, "root", "ann", "bo")
	g.begin(t)
	root := modulev1connect.NewModuleServiceClient(g.as("root"), g.url)
	up, err := root.UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: []byte("\x00asm-two second")}))
	if err != nil {
		t.Fatal(err)
	}
	all := []string{access.Any}
	g.role(t, "notsecond", access.Rule{Effect: access.Allow, Verbs: all}, access.Rule{Effect: "deny", Verbs: []string{"read", "download", "settings"}, Types: []string{"second"}})
	g.role(t, "first", access.Rule{Effect: access.Allow, Verbs: []string{"read", "settings"}, Types: []string{"uploaded"}})
	g.bind(t, "token:ann", "notsecond")
	g.bind(t, "token:bo", "first")
	modules := func(name string) modulev1connect.ModuleServiceClient {
		return modulev1connect.NewModuleServiceClient(g.as(name), g.url)
	}
	put := func(key string) func(string) error {
		return func(name string) error {
			_, err := g.clusterAs(name).PutSetting(t.Context(), connect.NewRequest(&clusterv1.PutSettingRequest{Key: key, Value: "true"}))
			return err
		}
	}
	list := func(prefix string) func(string) error {
		return func(name string) error {
			_, err := g.clusterAs(name).ListSettings(t.Context(), connect.NewRequest(&clusterv1.ListSettingsRequest{KeyPrefix: prefix}))
			return err
		}
	}
	for _, c := range []struct {
		what    string
		ann, bo bool // whether the call is rejected
		call    func(name string) error
	}{
		{"describe by digest", true, true, func(name string) error {
			_, err := modules(name).GetModule(t.Context(), connect.NewRequest(&modulev1.GetModuleRequest{By: &modulev1.GetModuleRequest_Digest{Digest: up.Msg.GetDigest()}}))
			return err
		}},
		{"download", true, true, func(name string) error {
			in, err := modules(name).DownloadModule(t.Context(), connect.NewRequest(&modulev1.DownloadModuleRequest{Digest: up.Msg.GetDigest()}))
			if err == nil {
				in.Receive()
				err = in.Err()
			}
			return err
		}},
		{"list modules", true, true, func(name string) error {
			_, err := modules(name).ListModules(t.Context(), connect.NewRequest(&modulev1.ListModulesRequest{}))
			return err
		}},
		{"suspend the denied type", true, true, put("entity.second.suspended")},
		{"suspend another type", false, false, put("entity.uploaded.suspended")},
		{"set a value of the denied type", true, true, put("entity.second.value.x")},
		{"set something of the cluster", false, true, put("something")},
		{"list settings", true, true, list("")},
		{"list settings of the denied type", true, true, list("entity.second.")},
		{"list settings of the other type", false, false, list("entity.uploaded.")},
		{"list settings of the cluster", false, true, list("log.")},
	} {
		wantDenied(t, "ann would "+c.what, c.call("ann"), c.ann)
		wantDenied(t, "bo would "+c.what, c.call("bo"), c.bo)
	}
}
