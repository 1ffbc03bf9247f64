package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	journalv1 "github.com/hostd/hostd/api/gen/hostd/journal/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/authn"
	"github.com/hostd/hostd/tests/support/testkit"
)

// credentials are the tokens of a test and the node's credentials file.
type credentials struct {
	t    *testing.T
	file string
	good string // a token that never expires
	past string // an expired token
}

func newCredentials(t *testing.T) *credentials {
	t.Helper()
	c := &credentials{t: t, file: filepath.Join(t.TempDir(), "tokens"), good: authn.NewToken(), past: authn.NewToken()}
	c.write(c.line("ci", c.good, time.Time{}), c.line("guest", c.past, time.Now().Add(-time.Hour)))
	return c
}

func (c *credentials) line(name, token string, expires time.Time) string {
	c.t.Helper()
	line, err := authn.TokenLine(name, token, expires)
	if err != nil {
		c.t.Fatal(err)
	}
	return line
}

// write replaces the file atomically.
func (c *credentials) write(lines ...string) {
	c.t.Helper()
	if err := os.WriteFile(c.file+".new", []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(c.file+".new", c.file); err != nil {
		c.t.Fatal(err)
	}
}

func (c *credentials) flags(mode string) []string {
	return []string{"--auth", mode, "--token-file", c.file}
}

// procedure is an RPC that clients may call.
type procedure struct {
	path   string
	stream bool
}

// procedures returns all procedures of the client services.
func procedures() (out []procedure) {
	for _, file := range []protoreflect.FileDescriptor{
		entityv1.File_hostd_entity_v1_entity_proto, modulev1.File_hostd_module_v1_module_proto,
		clusterv1.File_hostd_cluster_v1_cluster_proto, journalv1.File_hostd_journal_v1_journal_proto,
	} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for k := range service.Methods().Len() {
				m := service.Methods().Get(k)
				out = append(out, procedure{"/" + string(service.FullName()) + "/" + string(m.Name()), m.IsStreamingClient() || m.IsStreamingServer()})
			}
		}
	}
	for _, version := range []string{"v1", "v1alpha"} {
		out = append(out, procedure{"/grpc.reflection." + version + ".ServerReflection/ServerReflectionInfo", true})
	}
	return append(out, procedure{"/hostd.entity.v1.EntityService/NoSuchProcedure", false})
}

// attempt calls a procedure with an empty message. It returns the status and
// the beginning of the response body.
func (s *surface) attempt(t *testing.T, p procedure, token string) (status int, answer string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	kind, body := "application/json", []byte("{}")
	if p.stream {
		kind, body = "application/connect+json", append([]byte{0, 0, 0, 0, 2}, body...)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.node.API()+p.path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := s.http.Do(r)
	if err != nil {
		t.Fatalf("%s: %v", p.path, err)
	}
	defer res.Body.Close()
	text := make([]byte, 4<<10)
	n, _ := res.Body.Read(text) // a stream may never end
	return res.StatusCode, string(text[:n])
}

// TestEveryProcedureAuthenticatesCallers checks, for each auth mode, that every
// procedure answers the callers that the mode admits and rejects all other callers.
func TestEveryProcedureAuthenticatesCallers(t *testing.T) {
	all := procedures()
	if len(all) < 40 {
		t.Fatalf("only %d procedures", len(all))
	}
	for _, c := range []struct {
		mode                       string
		anonymous, good, bad, past bool
	}{
		{"none", true, true, true, true},
		{"allow", true, true, false, false},
		{"required", false, true, false, false},
	} {
		t.Run(c.mode, func(t *testing.T) {
			with := newCredentials(t)
			var flags []string
			if c.mode != "none" {
				flags = with.flags(c.mode)
			}
			s := start(t, testkit.NodeOptions{Flags: flags, Token: with.good})
			// A watch of settings sends a response only if there is a setting.
			if _, err := s.node.Client(client.Options{}).PutSetting(t.Context(), "a", "b"); err != nil {
				t.Fatal(err)
			}
			for _, p := range all {
				for _, k := range []struct {
					name, token string
					in          bool
				}{
					{"anonymous", "", c.anonymous}, {"a good token", with.good, c.good},
					{"a token that nobody has", authn.NewToken(), c.bad}, {"an expired token", with.past, c.past},
				} {
					status, answer := s.attempt(t, p, k.token)
					// Callers that were refused too often are rejected with a
					// rate limit.
					refused := strings.Contains(answer, `"code":"unauthenticated"`) && (status == http.StatusUnauthorized || p.stream) ||
						strings.Contains(answer, "had an invalid credential") && (status == http.StatusTooManyRequests || p.stream)
					if refused == k.in {
						t.Errorf("%s, %s: status %d, %q", p.path, k.name, status, answer)
					}
				}
			}
			s.checkOpen(t, c.anonymous)
		})
	}
}

// checkOpen checks how a node answers plain HTTP requests without a credential.
func (s *surface) checkOpen(t *testing.T, anonymous bool) {
	t.Helper()
	for path, open := range map[string]bool{"/livez": true, "/readyz": true, "/metrics": true, "/": anonymous, "/nothing": anonymous} {
		res, err := http.Get(s.node.API() + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if in := res.StatusCode != http.StatusUnauthorized && res.StatusCode != http.StatusTooManyRequests; in != open {
			t.Errorf("GET %s without a credential: %s", path, res.Status)
		}
	}
	for _, p := range protocols {
		check := connect.NewClient[emptypb.Empty, emptypb.Empty](s.http, s.node.API()+"/grpc.health.v1.Health/Check", p.opts...)
		if _, err := check.CallUnary(context.Background(), connect.NewRequest(&emptypb.Empty{})); err != nil && connect.CodeOf(err) != connect.CodeUnimplemented {
			t.Errorf("the health service without a credential, %s: %v", p.name, err)
		}
	}
}

// TestUnauthenticatedIsReportedInEveryProtocol checks that callers receive the error code in
// every protocol.
func TestUnauthenticatedIsReportedInEveryProtocol(t *testing.T) {
	with := newCredentials(t)
	s := start(t, testkit.NodeOptions{Flags: with.flags("required")})
	for _, p := range protocols {
		list := modulev1connect.NewModuleServiceClient(s.http, s.node.API(), p.opts...)
		_, err := list.ListModules(context.Background(), connect.NewRequest(&modulev1.ListModulesRequest{}))
		if connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("%s: %v", p.name, err)
		}
		req := connect.NewRequest(&modulev1.ListModulesRequest{})
		req.Header().Set("Authorization", "Bearer "+with.good)
		if _, err := list.ListModules(context.Background(), req); err != nil {
			t.Errorf("%s, with a token: %v", p.name, err)
		}
	}
}

// endless is a request body that counts the bytes read from it.
type endless struct{ read atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.read.Add(int64(len(p)))
	return len(p), nil
}

// TestUnauthenticatedBodyIsNotRead checks that if an unauthenticated caller
// sends a body of 1 GiB, the node receives only the bytes that were in flight
// when it read the header.
func TestUnauthenticatedBodyIsNotRead(t *testing.T) {
	const whole = 1 << 30
	with := newCredentials(t)
	s := start(t, testkit.NodeOptions{Flags: with.flags("required")})
	for _, c := range []struct {
		name   string
		http   *http.Client
		length int64
	}{
		{"HTTP/1.1", &http.Client{Transport: &http.Transport{}}, whole},
		{"HTTP/1.1 in chunks", &http.Client{Transport: &http.Transport{}}, -1},
		{"HTTP/2", s.http, whole},
	} {
		body := &endless{}
		r, err := http.NewRequest(http.MethodPost, s.node.API()+modulev1connect.ModuleServiceUploadModuleProcedure, io.LimitReader(body, whole))
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = c.length
		r.Header.Set("Content-Type", "application/proto")
		res, err := c.http.Do(r)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		res.Body.Close()
		// The client can send at most the bytes that fit into the kernel's buffers
		// and HTTP/2's flow control window.
		if n := body.read.Load(); res.StatusCode != http.StatusUnauthorized || n > 32<<20 {
			t.Errorf("%s: %s after %d bytes", c.name, res.Status, n)
		}
	}
}

// TestRevokedTokensEndStreams checks that revoking a token ends the caller's
// open streams and rejects its next call.
func TestRevokedTokensEndStreams(t *testing.T) {
	with := newCredentials(t)
	other := authn.NewToken()
	stays := with.line("other", other, time.Time{})
	with.write(with.line("ci", with.good, time.Time{}), stays)
	node := testkit.StartNode(t, testkit.NodeOptions{Flags: with.flags("required"), Token: with.good})
	node.Push("counter")
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	mine, others := node.Client(client.Options{}), node.Client(client.Options{Token: other})
	stream := mine.Stream(client.StreamOptions{})
	defer stream.Close(ctx)
	send := func() error {
		answered := make(chan error, 1)
		err := stream.Send(ctx, client.Command{EntityType: "counter", EntityID: "a", Name: "add", Data: []byte(`{"amount":1}`)}, func(_ client.Reply, err error) { answered <- err })
		if err != nil {
			return err
		}
		return <-answered
	}
	if err := send(); err != nil {
		t.Fatal(err)
	}
	watch := func(c *client.Client) (began, ended chan error) {
		began, ended = make(chan error, 1), make(chan error, 1)
		go func() {
			for _, err := range c.WatchCluster(ctx) {
				if err != nil {
					ended <- err
					return
				}
				select {
				case began <- nil:
				default:
				}
			}
			ended <- errors.New("it has ended")
		}()
		return began, ended
	}
	began, ended := watch(mine)
	<-began
	began, goesOn := watch(others)
	<-began
	with.write("nonsense")
	node.Hangup()
	node.Await("the bad file is told of", func() bool { return strings.Contains(node.Log(), "cannot reload a credential file") })
	if err := send(); err != nil {
		t.Fatalf("with a bad file: %v", err)
	}
	with.write(stays)
	if err := <-ended; client.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("the stream of a token that was removed ended with %v", err)
	}
	if err := send(); err == nil { // a command in flight has an unknown outcome
		t.Error("a command on the stream of a token that was removed is answered")
	}
	if err := send(); client.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a command on the stream of a token that was removed: %v", err)
	}
	if _, err := mine.Cluster(ctx); client.CodeOf(err) != connect.CodeUnauthenticated {
		t.Errorf("a call with a token that was removed: %v", err)
	}
	if _, err := others.Cluster(ctx); err != nil {
		t.Errorf("a call with the token that is left: %v", err)
	}
	select {
	case err := <-goesOn:
		t.Errorf("the stream of the token that is left has ended: %v", err)
	default:
	}
	for _, token := range []string{with.good, other, with.past} {
		if strings.Contains(node.Log(), token) {
			t.Errorf("a token is in the log:\n%s", node.Log())
		}
	}
}

// TestNodesForwardForTheirCallers checks that a cluster with authentication
// serves every call at every node, like a cluster without authentication.
func TestNodesForwardForTheirCallers(t *testing.T) {
	with := newCredentials(t)
	c := testkit.StartCluster(t, 3, testkit.ClusterOptions{Shards: 8, Flags: with.flags("required"), Token: with.good})
	c.Push("counter")
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	ran := map[string]bool{}
	for i, n := range c.Nodes() {
		cl, err := client.New([]string{n.API()}, client.Options{Token: with.good, GivenOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		for k := range 16 {
			reply, err := cl.Send(ctx, client.Command{EntityType: "counter", EntityID: fmt.Sprint("e", k), Name: "add", Data: []byte(`{"amount":1}`)})
			if err != nil {
				t.Fatalf("%s: %v", n.ID(), err)
			}
			ran[reply.NodeID] = true
			if e, err := cl.Entity(ctx, "counter", fmt.Sprint("e", k)); err != nil || e.GetSequence() != uint64(i+1) {
				t.Fatalf("%s: %v, %v", n.ID(), e, err)
			}
		}
		stranger, err := client.New([]string{n.API()}, client.Options{GivenOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer stranger.Close()
		if _, err := stranger.Entity(ctx, "counter", "e0"); client.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("%s answers a stranger: %v", n.ID(), err)
		}
	}
	if len(ran) < 2 {
		t.Errorf("all commands ran on %v: nothing was forwarded", ran)
	}
}

// TestUnsafeAuthConfigurationsAreRejected checks that serve rejects a configuration that would let
// nobody in, or that looks safer than it is.
func TestUnsafeAuthConfigurationsAreRejected(t *testing.T) {
	with := newCredentials(t)
	for _, c := range []struct {
		says  string
		flags []string
	}{
		{"no credential is configured", []string{"--auth", "required"}},
		{"no credential is configured", []string{"--auth", "allow"}},
		{"auth is none", []string{"--token-file", with.file}},
		{"must be none, allow or required", []string{"--auth", "yes", "--token-file", with.file}},
		{"oidc-audience: must be set", []string{"--auth", "required", "--oidc-issuer", "https://example.org"}},
		{"must be an https URL", []string{"--auth", "required", "--oidc-issuer", "http://example.org", "--oidc-audience", "hostd"}},
		{"jwt-keys-file: needs oidc-issuer", slices.Concat(with.flags("required"), []string{"--jwt-keys-file", with.file})},
		{"no such file", []string{"--auth", "required", "--token-file", with.file + "x"}},
		{"listen: 0.0.0.0 is not a loopback address", slices.Concat(with.flags("required"), []string{"--listen", "0.0.0.0:0"})},
	} {
		n := testkit.NewNode(t, testkit.NodeOptions{Flags: c.flags})
		if err := n.TryStart(); err == nil || !strings.Contains(n.Log(), c.says) {
			t.Errorf("%q: %v\n%s", c.flags, err, n.Log())
		}
	}
}
