package edge_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/audit"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/host/authz"
	"github.com/hostd/hostd/host/edge"
	"github.com/hostd/hostd/host/edge/authorize"
	"github.com/hostd/hostd/host/edge/quota"
	"github.com/hostd/hostd/host/services"
	"github.com/hostd/hostd/sharding/access"
	"github.com/hostd/hostd/sharding/meta"
)

// guarded is a site that authenticates callers and enforces their roles.
type guarded struct {
	*site
	tokens  map[string]string
	auth    *authorize.Authorizer
	known   atomic.Bool
	time    atomic.Int64 // the clock of the quotas
	mu      sync.Mutex
	refused []string // rejected commands of streams: type/id#command id
}

// bearer sends a token with every call.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	return b.next.RoundTrip(r)
}

// guard serves a world to the named tokens and to anonymous callers. No caller
// has a role yet.
func guard(t *testing.T, opts edge.Options, names ...string) *guarded {
	t.Helper()
	return guardWith(t, opts, func(*services.Options) {}, names...)
}

// rolesOf provides the cluster state of a guarded node.
type rolesOf struct{ g *guarded }

func (r rolesOf) Known(uint64) bool              { return r.g.known.Load() }
func (r rolesOf) Fresh() bool                    { return true }
func (r rolesOf) Confirm(context.Context) error  { return nil }
func (r rolesOf) Closed() bool                   { return false }
func (r rolesOf) TypesOf(digest string) []string { return r.g.world.TypesOf(digest) }
func (r rolesOf) ServedWith(string) []string     { return nil }

// denied notes denied commands, and passes them to an audit log if the log
// is not nil.
type denied struct {
	g    *guarded
	next *audit.Calls
}

func (d denied) RecordDenied(ctx context.Context, entityType, entityID, commandID string) {
	d.g.mu.Lock()
	defer d.g.mu.Unlock()
	d.g.refused = append(d.g.refused, entityType+"/"+entityID+"#"+commandID)
	if d.next != nil {
		d.next.RecordDenied(ctx, entityType, entityID, commandID)
	}
}

// guardWith is guard with different dependencies.
func guardWith(t *testing.T, opts edge.Options, change func(*services.Options), names ...string) *guarded {
	t.Helper()
	g := &guarded{tokens: map[string]string{}}
	g.known.Store(true)
	var lines strings.Builder
	for _, name := range names {
		g.tokens[name] = authn.NewToken()
		line, err := authn.TokenLine(name, g.tokens[name], time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		lines.WriteString(line + "\n")
	}
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if opts.Auth, err = authn.New(authn.Options{Anonymous: true, TokenFile: file}); err != nil {
		t.Fatal(err)
	}
	g.auth = authorize.New(authorize.Options{Logger: slog.New(slog.DiscardHandler), Cluster: rolesOf{g}, Audit: denied{g, opts.Audit}})
	opts.Roles = g.auth
	opts.Quotas = quota.New(quota.Options{Roles: g.auth, Now: func() time.Time { return time.Unix(1_000_000, g.time.Load()) }})
	g.site = serveWith(t, opts, change)
	g.world.Kept.Changed = func(v *meta.View) {
		opts.Auth.SetTokens(v.RoleRevision(), v.Tokens())
		g.auth.Set(authz.Compile(v.RoleRevision(), v.Roles(), v.RoleBindings()))
	}
	return g
}

// begin puts the first roles in force, which make root admin.
func (g *guarded) begin(t *testing.T) {
	t.Helper()
	g.auth.Set(authz.Compile(0, nil, nil))
	g.bind(t, "token:root", access.RoleAdmin)
}

func (g *guarded) bind(t *testing.T, subject string, roles ...string) {
	t.Helper()
	if _, err := g.world.Kept.PutRoleBinding(t.Context(), access.Binding{Subject: subject, Roles: roles}); err != nil {
		t.Fatal(err)
	}
}

func (g *guarded) role(t *testing.T, name string, rules ...access.Rule) {
	t.Helper()
	if _, err := g.world.Kept.PutRole(t.Context(), access.Role{Name: name, Rules: rules}); err != nil {
		t.Fatal(err)
	}
}

func (g *guarded) as(name string) *http.Client {
	return &http.Client{Transport: bearer{g.tokens[name], g.h2.Transport}}
}

func (g *guarded) entitiesAs(name string) entityv1connect.EntityServiceClient {
	return entityv1connect.NewEntityServiceClient(g.as(name), g.url)
}

func (g *guarded) clusterAs(name string) clusterv1connect.ClusterServiceClient {
	return clusterv1connect.NewClusterServiceClient(g.as(name), g.url)
}

func wantDenied(t *testing.T, what string, err error, denied bool) {
	t.Helper()
	if denied != (connect.CodeOf(err) == connect.CodePermissionDenied && err != nil) {
		t.Errorf("%s: %v", what, err)
	}
}

var clerk = access.Rule{Effect: access.Allow, Verbs: []string{access.Invoke, access.Query, access.Read}, Types: []string{"counter"}, IDPrefixes: []string{"${principal.name}/"}, Commands: []string{"add", "total"}}

func TestRolesDecideCalls(t *testing.T) {
	g := guard(t, edge.Options{}, "root", "ann", "bo")
	g.begin(t)
	g.role(t, "clerk", clerk, access.Rule{Effect: access.Allow, Verbs: []string{access.Read}, Types: []string{"counter"}, IDPrefixes: []string{"${principal.name}/"}})
	g.bind(t, "token:ann", "clerk")
	ann, root := g.entitiesAs("ann"), g.entitiesAs("root")
	send := func(c entityv1connect.EntityServiceClient, id, command string) error {
		r := add(id, 1)
		r.Command = command
		_, err := c.SendCommand(t.Context(), connect.NewRequest(r))
		return err
	}
	wantDenied(t, "its own", send(ann, "ann/1", "add"), false)
	wantDenied(t, "another command", send(ann, "ann/1", "echo"), true)
	wantDenied(t, "of another", send(ann, "bo/1", "add"), true)
	wantDenied(t, "without a role", send(g.entitiesAs("bo"), "bo/1", "add"), true)
	wantDenied(t, "anonymous", send(g.entitiesAs(""), "/1", "add"), true)
	wantDenied(t, "admin", send(root, "bo/2", "add"), false)

	err := send(ann, "bo/1", "add")
	var refused *connect.Error
	if !errors.As(err, &refused) || refused.Message() != `token "ann" lacks the verb invoke for "add" of "counter", id "bo/1": no rule of its roles allows it` {
		t.Errorf("it is told %v", err)
	} else if value, err := refused.Details()[0].Value(); err != nil || value.(*errdetails.ErrorInfo).GetReason() != "ROLE_REQUIRED" || value.(*errdetails.ErrorInfo).GetMetadata()["type"] != "counter" || value.(*errdetails.ErrorInfo).GetMetadata()["verb"] != "invoke" {
		t.Errorf("with %v, %v", value, err)
	}
	info, err := root.GetEntity(t.Context(), connect.NewRequest(&entityv1.GetEntityRequest{EntityType: "counter", EntityId: "bo/1"}))
	if err != nil || info.Msg.GetSequence() != 0 {
		t.Errorf("what was refused was written: %v, %v", info, err)
	}

	query := func(id, name string) error {
		_, err := ann.QueryEntity(t.Context(), connect.NewRequest(&entityv1.QueryEntityRequest{EntityType: "counter", EntityId: id, Query: name}))
		return err
	}
	wantDenied(t, "query", query("ann/1", "total"), false)
	wantDenied(t, "another query", query("ann/1", "echo"), true)
	list := func(prefix string) error {
		_, err := ann.ListEntities(t.Context(), connect.NewRequest(&entityv1.ListEntitiesRequest{EntityType: "counter", IdPrefix: prefix}))
		return err
	}
	wantDenied(t, "list of its own", list("ann/"), false)
	wantDenied(t, "list of all that it may see", list(""), false)
	wantDenied(t, "list of another", list("bo/"), true)
	events := func(id string) error {
		s, err := ann.ReadEvents(t.Context(), connect.NewRequest(&entityv1.ReadEventsRequest{EntityType: "counter", EntityId: id}))
		if err != nil {
			return err
		}
		defer s.Close()
		for s.Receive() {
		}
		return s.Err()
	}
	wantDenied(t, "events of its own", events("ann/1"), false)
	wantDenied(t, "events of another", events("bo/2"), true)
	subscription, err := ann.SubscribeEvents(t.Context(), connect.NewRequest(&entityv1.SubscribeEventsRequest{EntityType: "counter"}))
	if err == nil {
		subscription.Receive()
		err = subscription.Err()
		subscription.Close()
	}
	wantDenied(t, "events of all", err, true)

	// The node's configuration does not allow changes of the cluster, but an
	// admin may make them nevertheless.
	_, err = g.clusterAs("root").PutSetting(t.Context(), connect.NewRequest(&clusterv1.PutSettingRequest{Key: "a", Value: "b"}))
	wantDenied(t, "setting by admin", err, false)
	_, err = g.clusterAs("ann").PutSetting(t.Context(), connect.NewRequest(&clusterv1.PutSettingRequest{Key: "a", Value: "c"}))
	wantDenied(t, "setting by a clerk", err, true)
}

func TestRolesDecideEachCommandOfAStream(t *testing.T) {
	g := guard(t, edge.Options{}, "root", "ann", "bo")
	g.begin(t)
	g.role(t, "clerk", clerk)
	g.bind(t, "token:ann", "clerk")
	stream := g.entitiesAs("ann").SendCommandStream(t.Context())
	other := add("bo/1", 1)
	other.CommandId = "x"
	if err := stream.Send(message(1, add("ann/1", 1), other, add("ann/2", 1))); err != nil {
		t.Fatal(err)
	}
	codes := map[uint64]string{}
	for _, a := range collect(t, stream, 3) {
		codes[a.GetCorrelationId()] = a.GetError().GetCode()
	}
	if len(codes) != 3 || codes[1] != "" || codes[2] != "permission_denied" || codes[3] != "" {
		t.Errorf("answers: %v", codes)
	}
	// The next command is decided by the new roles.
	g.role(t, "clerk", access.Rule{Effect: access.Allow, Verbs: []string{access.Invoke}, IDPrefixes: []string{"bo/"}})
	if err := stream.Send(message(4, add("ann/1", 1), add("bo/1", 1))); err != nil {
		t.Fatal(err)
	}
	for _, a := range collect(t, stream, 2) {
		codes[a.GetCorrelationId()] = a.GetError().GetCode()
	}
	if codes[4] != "permission_denied" || codes[5] != "" {
		t.Errorf("after the change: %v", codes)
	}
	stream.CloseRequest()
	collect(t, stream, 0)
	stream.CloseResponse()
	g.mu.Lock()
	defer g.mu.Unlock()
	if got := strings.Join(g.refused, " "); got != "counter/bo/1#x counter/ann/1#" {
		t.Errorf("refused: %s", got)
	}
}

func TestSendStreamNeedsInvokeRight(t *testing.T) {
	g := guard(t, edge.Options{}, "root", "bo")
	g.begin(t)
	g.bind(t, "token:bo", "viewer")
	closed := g.entitiesAs("bo").SendCommandStream(t.Context())
	closed.CloseRequest()
	_, err := closed.Receive()
	wantDenied(t, "a stream of who may send nothing", err, true)
	closed.CloseResponse()
}

func TestStreamsEndWhenRolesAreRevoked(t *testing.T) {
	g := guard(t, edge.Options{}, "root", "ann")
	g.begin(t)
	g.bind(t, "token:ann", "invoker", "viewer")
	if _, err := g.entitiesAs("root").SendCommand(t.Context(), connect.NewRequest(add("a", 1))); err != nil {
		t.Fatal(err)
	}
	if _, err := g.clusterAs("root").PutSetting(t.Context(), connect.NewRequest(&clusterv1.PutSettingRequest{Key: "a", Value: "b"})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	commands := g.entitiesAs("ann").SendCommandStream(ctx)
	if err := commands.Send(message(1, add("a", 1))); err != nil {
		t.Fatal(err)
	}
	collect(t, commands, 1)
	events, err := g.entitiesAs("ann").ReadEvents(ctx, connect.NewRequest(&entityv1.ReadEventsRequest{EntityType: "counter", EntityId: "a", Follow: true}))
	if err != nil || !events.Receive() || !events.Receive() {
		t.Fatal(err)
	}
	settings, err := g.clusterAs("ann").WatchSettings(ctx, connect.NewRequest(&clusterv1.WatchSettingsRequest{}))
	if err != nil || !settings.Receive() {
		t.Fatal(err)
	}
	kept, err := g.clusterAs("root").WatchSettings(ctx, connect.NewRequest(&clusterv1.WatchSettingsRequest{}))
	if err != nil || !kept.Receive() {
		t.Fatal(err)
	}
	g.bind(t, "token:ann", "deployer") // which may only read
	_, err = commands.Receive()
	wantDenied(t, "the commands", err, true)
	commands.CloseRequest()
	commands.CloseResponse()
	if _, err := g.clusterAs("root").PutSetting(ctx, connect.NewRequest(&clusterv1.PutSettingRequest{Key: "a", Value: "c"})); err != nil {
		t.Fatal(err)
	}
	if !settings.Receive() {
		t.Errorf("a stream ended that is allowed: %v", settings.Err())
	}
	if _, err := g.world.Kept.DeleteRoleBinding(ctx, "token:ann"); err != nil {
		t.Fatal(err)
	}
	for what, s := range map[string]interface {
		Receive() bool
		Err() error
		Close() error
	}{"the events": events, "the settings": settings} {
		for s.Receive() {
		}
		wantDenied(t, what, s.Err(), true)
		s.Close()
	}
	if !kept.Receive() || kept.Msg().GetSetting().GetValue() != "c" {
		t.Errorf("the stream of another ended: %v", kept.Err())
	}
	cancel()
	for kept.Receive() {
	}
	kept.Close()
}

// Until the node knows the roles of its cluster, it only answers calls about
// its own state, because roles may exist that restrict the caller. When the
// node knows that there is no admin, every caller may do everything.
func TestNodeRejectsCallsUntilRolesAreKnown(t *testing.T) {
	g := guard(t, edge.Options{Admin: true}, "root")
	for _, step := range []string{"no table", "not caught up"} {
		if _, err := g.entitiesAs("root").SendCommand(t.Context(), connect.NewRequest(add("a", 1))); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("%s: %v", step, err)
		}
		if _, err := g.clusterAs("root").PutRoleBinding(t.Context(), connect.NewRequest(&clusterv1.PutRoleBindingRequest{Subject: "token:root", Roles: []string{"admin"}})); connect.CodeOf(err) != connect.CodeUnavailable {
			t.Errorf("%s: %v", step, err)
		}
		if _, err := g.clusterAs("root").GetCluster(t.Context(), connect.NewRequest(&clusterv1.GetClusterRequest{})); err != nil {
			t.Errorf("%s: %v", step, err)
		}
		if _, err := g.clusterAs("root").InitializeCluster(t.Context(), connect.NewRequest(&clusterv1.InitializeClusterRequest{})); err != nil {
			t.Errorf("%s: %v", step, err)
		}
		g.known.Store(false)
		g.auth.Set(authz.Compile(0, nil, nil))
	}
	g.known.Store(true)
	for _, who := range []string{"root", ""} {
		if _, err := g.entitiesAs(who).SendCommand(t.Context(), connect.NewRequest(add("a", 1))); err != nil {
			t.Error(err)
		}
	}
	// A table in force is applied, however old it is.
	g.bind(t, "token:root", access.RoleAdmin)
	g.known.Store(false)
	_, err := g.entitiesAs("root").SendCommand(t.Context(), connect.NewRequest(add("a", 1)))
	wantDenied(t, "admin", err, false)
	_, err = g.entitiesAs("").SendCommand(t.Context(), connect.NewRequest(add("a", 1)))
	wantDenied(t, "anonymous", err, true)
}

func TestFirstAdminIsTheCaller(t *testing.T) {
	g := guard(t, edge.Options{Admin: true}, "root", "ann")
	g.auth.Set(authz.Compile(0, nil, nil))
	bind := func(who, subject string, roles ...string) error {
		_, err := g.clusterAs(who).PutRoleBinding(t.Context(), connect.NewRequest(&clusterv1.PutRoleBindingRequest{Subject: subject, Roles: roles}))
		return err
	}
	if err := bind("root", "token:rot", "admin"); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("somebody else is made admin: %v", err)
	}
	if err := bind("", "token:root", "admin"); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("by the anonymous: %v", err)
	}
	if err := errors.Join(bind("root", "token:ann", "viewer"), bind("root", "token:root", "admin"), bind("root", "token:other", "admin")); err != nil {
		t.Error(err)
	}
	wantDenied(t, "a viewer gives roles", bind("ann", "token:ann", "admin"), true)
	if _, err := g.clusterAs("root").DeleteRoleBinding(t.Context(), connect.NewRequest(&clusterv1.DeleteRoleBindingRequest{Subject: "token:other"})); err != nil {
		t.Error(err)
	}
	if _, err := g.clusterAs("root").DeleteRoleBinding(t.Context(), connect.NewRequest(&clusterv1.DeleteRoleBindingRequest{Subject: "token:root"})); connect.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("the last admin: %v", err)
	}
	can := func(who, verb, entityType string) *clusterv1.CheckAccessResponse {
		res, err := g.clusterAs(who).CheckAccess(t.Context(), connect.NewRequest(&clusterv1.CheckAccessRequest{Verb: verb, EntityType: entityType}))
		if err != nil {
			t.Fatal(err)
		}
		return res.Msg
	}
	if r := can("ann", "read", "counter"); !r.GetAllowed() || r.GetName() != "ann" || strings.Join(r.GetRoles(), " ") != "viewer" {
		t.Errorf("read: %v", r)
	}
	if r := can("ann", "invoke", ""); r.GetAllowed() || !strings.Contains(r.GetReason(), "no rule of its roles allows it") {
		t.Errorf("invoke: %v", r)
	}
	if r := can("", "", ""); !r.GetAllowed() || r.GetKind() != "anonymous" {
		t.Errorf("who is it: %v", r)
	}
	if _, err := g.clusterAs("ann").CheckAccess(t.Context(), connect.NewRequest(&clusterv1.CheckAccessRequest{Verb: "fly"})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("a verb that is none: %v", err)
	}
}

// TestCallersCannotGrantRightsTheyLack: a caller that may give roles cannot
// give more than it has, by any call, unless it is admin.
func TestCallersCannotGrantRightsTheyLack(t *testing.T) {
	g := guard(t, edge.Options{Admin: true}, "root", "ann")
	g.begin(t)
	g.role(t, "officer", access.Rule{Effect: access.Allow, Verbs: []string{access.Security, access.Read}})
	g.role(t, "everything", access.Rule{Effect: access.Allow, Verbs: []string{access.Any}})
	g.role(t, "closed", access.Rule{Effect: access.Deny, Verbs: []string{access.Invoke}})
	g.bind(t, "token:ann", "officer", "closed")
	g.bind(t, "token:bo", "closed")
	hash := sha256.Sum256([]byte("a token"))
	for _, who := range []string{"ann", "root"} {
		put := func(role string, effect access.Effect, verbs ...string) error {
			_, err := g.clusterAs(who).PutRole(t.Context(), connect.NewRequest(&clusterv1.PutRoleRequest{RoleName: role, Rules: []*clusterv1.RoleRule{{Effect: string(effect), Verbs: verbs}}}))
			return err
		}
		bind := func(subject string, roles ...string) error {
			_, err := g.clusterAs(who).PutRoleBinding(t.Context(), connect.NewRequest(&clusterv1.PutRoleBindingRequest{Subject: subject, Roles: roles}))
			return err
		}
		token := func(name string, roles ...string) error {
			_, err := g.clusterAs(who).CreateToken(t.Context(), connect.NewRequest(&clusterv1.CreateTokenRequest{TokenName: name, TokenSha256: hash[:], Roles: roles}))
			return err
		}
		unbind := func(subject string) error {
			_, err := g.clusterAs(who).DeleteRoleBinding(t.Context(), connect.NewRequest(&clusterv1.DeleteRoleBindingRequest{Subject: subject}))
			return err
		}
		limited := who != "root"
		wantDenied(t, who+" puts a role of what it holds", put("reads", access.Allow, access.Read), false)
		wantDenied(t, who+" gives what it holds", bind("token:cy", "reads", "officer"), false)
		wantDenied(t, who+" makes a token of what it holds", token(who+"-reads", "reads"), false)
		wantDenied(t, who+" takes roles away", unbind("token:cy"), false)
		wantDenied(t, who+" puts a role of everything", put("mine", access.Allow, access.Any), limited)
		wantDenied(t, who+" has its own role allow more", put("officer", access.Allow, access.Security, access.Read, access.Invoke), limited)
		wantDenied(t, who+" takes away what denies", put("closed", access.Deny, access.Export), limited)
		wantDenied(t, who+" gives everything", bind("token:cy", "everything"), limited)
		wantDenied(t, who+" gives all that is built in", bind("token:cy", "admin"), limited)
		wantDenied(t, who+" gives a role that nobody knows", bind("token:cy", "unheard-of"), limited)
		wantDenied(t, who+" makes a token of everything", token(who+"-all", "everything"), limited)
		if limited { // meanwhile root has changed what the role denies
			wantDenied(t, who+" gives itself what is left without what denies", bind("token:ann", "officer"), true)
			wantDenied(t, who+" takes a binding away that denies", unbind("token:bo"), true)
		}
	}
}

// A caller that may deploy some types can only activate modules of those types.
// A rejected activation changes nothing.
func TestUploadActivatesOnlyDeployableTypes(t *testing.T) {
	g := guard(t, edge.Options{}, "root", "ann")
	g.begin(t)
	deploys := func(types ...string) {
		g.role(t, "deploys", access.Rule{Effect: access.Allow, Verbs: []string{access.Deploy}, Types: types})
	}
	deploys("other")
	g.bind(t, "token:ann", "deploys")
	ann := modulev1connect.NewModuleServiceClient(g.as("ann"), g.url)
	upload := func(activate bool) error {
		_, err := ann.UploadModule(t.Context(), connect.NewRequest(&modulev1.UploadModuleRequest{Wasm: []byte("\x00asm-one"), Activate: activate}))
		return err
	}
	stream := func() error {
		s := ann.UploadModuleStream(t.Context())
		_ = s.Send(&modulev1.UploadModuleStreamRequest{Wasm: []byte("\x00asm-one"), Activate: true})
		_, err := s.CloseAndReceive()
		return err
	}
	wantDenied(t, "stored", upload(false), false)
	wantDenied(t, "activated", upload(true), true)
	wantDenied(t, "activated by a stream", stream(), true)
	root := modulev1connect.NewModuleServiceClient(g.as("root"), g.url)
	list, err := root.ListModules(t.Context(), connect.NewRequest(&modulev1.ListModulesRequest{}))
	if err != nil || len(list.Msg.GetModules()) != 1 || len(list.Msg.GetModules()[0].GetActiveFor()) != 0 {
		t.Errorf("what was refused serves: %v, %v", list, err)
	}
	deploys("upl*")
	wantDenied(t, "activated", upload(true), false)
	wantDenied(t, "activated by a stream", stream(), false)
	if _, err := g.world.Kept.DeleteRoleBinding(t.Context(), "token:ann"); err != nil {
		t.Fatal(err)
	}
	wantDenied(t, "stored", upload(false), true)
	wantDenied(t, "a stream", stream(), true)
}

// Each rejection is recorded in the audit log, including the rejection of a
// command of a stream.
func TestRejectionsByRolesAreAudited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	log, err := audit.Open(audit.Options{Path: path, Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		log.Run(ctx)
	}()
	g := guard(t, edge.Options{Audit: audit.NewCalls(log, services.Audited(false, false))}, "root", "ann")
	g.begin(t)
	g.role(t, "clerk", clerk)
	g.bind(t, "token:ann", "clerk")
	_, err = g.entitiesAs("ann").SendCommand(t.Context(), connect.NewRequest(add("bo/1", 1)))
	wantDenied(t, "a call", err, true)
	stream := g.entitiesAs("ann").SendCommandStream(t.Context())
	named := add("bo/2", 1)
	named.CommandId = "x"
	if err := stream.Send(message(1, named, add("ann/1", 1))); err != nil {
		t.Fatal(err)
	}
	collect(t, stream, 2)
	stream.CloseRequest()
	collect(t, stream, 0)
	stream.CloseResponse()
	if _, err := g.clusterAs("root").PutRoleBinding(t.Context(), connect.NewRequest(&clusterv1.PutRoleBindingRequest{Subject: "token:ann", Roles: []string{"viewer", "clerk"}})); err != nil {
		t.Fatal(err)
	}
	stop()
	<-ended
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	for i, want := range []string{
		`"verb":"invoke","type":"counter","id":"bo/1","target":"command=add","code":"permission_denied"`,
		`"verb":"invoke","type":"counter","id":"bo/2","command":"x","code":"permission_denied"`,
		`"verb":"security","target":"roles=viewer,clerk subject=token:ann"`,
		`"verb":"security","target":"roles=viewer,clerk subject=token:ann","result":"revision=`,
	} {
		if i >= len(lines) || !strings.Contains(lines[i], want) {
			t.Errorf("line %d lacks %s in\n%s", i+1, want, text)
		}
	}
	if len(lines) != 4 {
		t.Errorf("%d lines:\n%s", len(lines), text)
	}
}

// TestProfilesOverHTTPAreForAdmins: /debug/pprof/ serves the same profiles as
// ProfileNode, to the same callers.
func TestProfilesOverHTTPAreForAdmins(t *testing.T) {
	g := guard(t, edge.Options{Admin: true, Debug: true}, "root", "op")
	get := func(name string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url+"/debug/pprof/goroutine?debug=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := g.as(name).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	if status := get("op"); status != http.StatusServiceUnavailable {
		t.Errorf("before the roles are known: %d", status)
	}
	g.begin(t)
	g.bind(t, "token:op", "operator", "deployer")
	for name, want := range map[string]int{"root": http.StatusOK, "op": http.StatusForbidden} {
		if status := get(name); status != want {
			t.Errorf("%s: %d, want %d", name, status, want)
		}
	}
}
